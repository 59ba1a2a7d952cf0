"""Streamable HTTP and SSE for clients: the application, its endpoint, legacy sessions, and their limits.

`server` and `serving` call it. It may import `transports`, `context` and the rooms below.
"""
