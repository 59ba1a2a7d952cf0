"""How mounted servers are told who asks: logins and tokens, and connections for single callers."""

MENDS = {"login": "mcp-toolset login"}
