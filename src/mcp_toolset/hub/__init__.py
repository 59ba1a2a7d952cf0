"""From a configuration file to a toolset of mounted servers, and to the next one when the file changes.

The command line, `serving` and applications use it. It may import `server`, `upstream` and the rooms
below.
"""
