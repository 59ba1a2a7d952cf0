"""Mounted servers that each caller reaches with credentials, or headers, of its own.

`RemoteToolset` uses it. It may import the rest of `upstream`.
"""
