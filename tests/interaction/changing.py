"""A server whose tool `change` gives `target` another description, and `add` adds a tool.

Both say so in the session of their call alone, and to those who listen in 2026-07-28.

Over stdio each connection is a server of its own; over HTTP and SSE all sessions of an era are of one. It is
served as `asker.py` is.
"""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from tests.interaction import asker

ANYTHING: dict[str, Any] = {"type": "object"}


class Changing:
    """The number of the definition of `target`, and the tools that were added."""

    def __init__(self) -> None:
        self.version = 1
        self.added: dict[str, str] = {}
        self.bus = InMemorySubscriptionBus()

    async def list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        target = f"Version {self.version}."
        described = {"change": "Change the target.", "add": "Add a tool.", "target": target, **self.added}
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=text, input_schema=ANYTHING)
                for name, text in described.items()
            ]
        )

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name == "change":
            self.version += 1
        if params.name == "add":
            self.added["added"] = "It was added."
        if params.name in ("change", "add"):
            await ctx.session.send_tool_list_changed()
            await self.bus.publish(ToolsListChanged())
        return asker.text(f"version {self.version} ran")


def make() -> Server[Any]:
    changing = Changing()
    return Server[Any](
        "changing",
        version="1",
        on_list_tools=changing.list,
        on_call_tool=changing.call,
        on_subscriptions_listen=ListenHandler(changing.bus),
    )


if __name__ == "__main__":
    asker.main(make)
