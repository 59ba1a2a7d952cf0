"""The two sides of a server: what its own program calls, and what answers its clients.

`server` is made of them. They may import what `server` may.
"""
