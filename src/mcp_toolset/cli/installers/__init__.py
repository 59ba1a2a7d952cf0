"""`mcp-toolset install`: the files of MCP clients, and how an entry is put into them and taken out.

`cli.commands.install` calls it. It may import `cli`, `upstream.secrets`, `config` and `errors`.
"""
