from mcp_toolset import serve

if __name__ == "__main__":
    serve("mcp.json")  # any mcpServers file, as desktop clients have it
