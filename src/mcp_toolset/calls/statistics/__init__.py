"""Statistics: sums of calls and tokens by server and client, kept for `mcp-toolset stats`."""
