"""Tools that a program lists at run time, such as from a database; with manifests, their schemas later."""
