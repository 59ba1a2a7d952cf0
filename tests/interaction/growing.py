"""A server of both eras over HTTP whose resources are the same for all its sessions; `grow` adds one."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resources import TextResource

server = MCPServer("growing")


def add() -> None:
    name = f"r{len(server._resource_manager.list_resources())}"  # pyright: ignore[reportPrivateUsage]
    server.add_resource(TextResource(uri=f"mem://{name}", name=name, text="here"))


@server.tool()
async def grow(ctx: Context[Any, Any]) -> str:
    add()
    await ctx.session.send_resource_list_changed()
    await ctx.notify_resources_changed()
    return "grown"


add()
if __name__ == "__main__":
    server.run(transport="streamable-http", port=0)
