"""A skill for agents with a shell: `mcp-toolset skill` writes a `SKILL.md`; see docs/shell-agents.md."""
