"""What `mcp-toolset new` writes: small projects whose own tests pass."""
