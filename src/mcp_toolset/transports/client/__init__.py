"""Connections to mounted servers at a URL: dispatchers over streamable HTTP and HTTP+SSE, and the HTTP below.

`upstream.target` opens them. It may import `transports`, `context` and the rooms below.
"""
