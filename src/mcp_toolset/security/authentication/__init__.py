"""Authentication of callers: verifiers of tokens, and what one request is answered that has none.

`transports.http` and `server` use it. It may import `tools` and `errors`, and an HTTP client to fetch keys.
"""
