"""Statistics: calls and tokens are counted, for `mcp-toolset stats`; see docs/observing.md."""
