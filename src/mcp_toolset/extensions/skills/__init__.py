"""Agent Skills over MCP (SEP-2640): served from a folder, and carried; see docs/skills.md."""
