from mcp_toolset import serve

serve("mcp.json")  # any mcpServers file, as desktop clients have it
