"""A tool that takes long, so that clients may call it as a task."""

import anyio

from mcp_toolset import ToolContext, Toolset, ToolsetServer, serve, tool


@tool(task="optional")
async def report(topic: str, context: ToolContext) -> str:
    """Write a report on a topic."""
    for step in range(1, 4):
        await context.progress(step, 3, f"part {step}")
        await anyio.sleep(0.1)
    return f"A report on {topic}"


server = ToolsetServer(Toolset(report), name="reports", suspended=True)

if __name__ == "__main__":
    serve(server)
