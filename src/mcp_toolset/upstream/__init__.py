"""Mounted servers: `RemoteToolset`, its supervised connection, and calls forwarded to the server.

`hub` and applications call it. It may import `transports` and the rooms below, never `server`.
"""
