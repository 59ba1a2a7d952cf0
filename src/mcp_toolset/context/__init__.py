"""The other end of a request: the client, what it may be asked, and how reports reach it."""
