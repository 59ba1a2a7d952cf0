"""`mcp-toolset install`: the configuration files of MCP clients, and how entries are added and removed.

`cli.commands.install` uses it. It may import `cli`, `upstream.secrets`, `config` and `errors`.
"""
