"""What the command line shows: answers on stdout, tables, progress, and texts cleared of secrets.

The commands use it. It may import `serving.announcement`, `catalog.pins` and `tools`, and no other module
of `cli`.
"""
