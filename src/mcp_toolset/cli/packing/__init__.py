"""MCP Bundles: a Python target or a configuration as one `.mcpb` file that a client installs."""
