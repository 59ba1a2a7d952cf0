"""Who is on the other end of a request: the client, what it may be asked, and how reports reach it.

`transports`, `server` and `upstream` call it. It may import `protocol` and the rooms below.
"""
