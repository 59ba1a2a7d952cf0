"""The credentials that the bridge itself sends to a mounted server: got by OAuth, stored, renewed.

A transport asks a `TokenSource` for the header of each request. The command `login` stores what it finds.
"""
