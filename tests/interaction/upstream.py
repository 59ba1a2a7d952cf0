"""A server made with the SDK alone, mounted over stdio as the upstream of the interaction tests.

What it saw is read back with its tool `seen`, so that a test can tell what reached it.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ANYTHING: dict[str, Any] = {"type": "object"}
TOOLS: dict[str, types.Tool] = {
    "double": types.Tool(
        name="double",
        description="Double a number.",
        input_schema=NUMBER,
        output_schema={
            "type": "object",
            "properties": {"result": {"type": "integer"}},
            "required": ["result"],
        },
        annotations=types.ToolAnnotations(read_only_hint=True),
    ),
    "guarded": types.Tool(
        name="guarded", description="Refused by a hook of the bridge.", input_schema=ANYTHING
    ),
    "steps": types.Tool(name="steps", description="Report three steps of progress.", input_schema=ANYTHING),
    "wait": types.Tool(name="wait", description="Wait until cancelled.", input_schema=ANYTHING),
    "fail": types.Tool(name="fail", description="Fail as a tool does.", input_schema=ANYTHING),
    "refuse": types.Tool(name="refuse", description="Fail as a protocol does.", input_schema=ANYTHING),
    "lie": types.Tool(
        name="lie", description="Break its own output schema.", input_schema=ANYTHING, output_schema=NUMBER
    ),
    "meta": types.Tool(name="meta", description="Return the request's _meta.", input_schema=ANYTHING),
    "grow": types.Tool(name="grow", description="Add a tool to this server.", input_schema=ANYTHING),
    "seen": types.Tool(name="seen", description="Count what reached this server.", input_schema=ANYTHING),
}


def text(value: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)], is_error=is_error)


class Upstream:
    """The tools, and what was seen of them."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.tools = dict(TOOLS)
        self.bus = InMemorySubscriptionBus()

    async def list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        self.seen["tools/list"] += 1
        return types.ListToolsResult(tools=list(self.tools.values()), ttl_ms=60_000, cache_scope="public")

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.seen[params.name] += 1
        run = getattr(self, f"run_{params.name}", None)
        return await run(ctx, params.arguments or {}) if run else text(f"{params.name} ran")

    async def run_double(self, ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
        value = arguments["n"] * 2
        shown = types.TextContent(type="text", text=str(value))
        return types.CallToolResult(content=[shown], structured_content={"result": value})

    async def run_steps(self, ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
        for step in range(3):
            await ctx.session.report_progress(step + 1, 3, arguments.get("tag", ""))
        return text("done")

    async def run_wait(self, ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.seen["cancelled"] += 1
            raise
        raise AssertionError("unreachable")

    async def run_fail(self, ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
        return text("it broke", is_error=True)

    async def run_refuse(self, ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
        raise MCPError(code=-31999, message="refused by the upstream", data={"why": "test"})

    async def run_lie(self, ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
        return types.CallToolResult(content=[], structured_content={"n": "not a number"})

    async def run_meta(self, ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
        return text(json.dumps(dict(ctx.meta or {}), default=str))

    async def run_grow(self, ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
        name = f"grown{len(self.tools)}"
        self.tools[name] = types.Tool(name=name, description="New.", input_schema=ANYTHING)
        await ctx.session.send_tool_list_changed()
        await self.bus.publish(ToolsListChanged())
        return text(name)

    async def run_seen(self, ctx: Any, arguments: dict[str, Any]) -> types.CallToolResult:
        return text(json.dumps(self.seen))


def make() -> Server[Any]:
    upstream = Upstream()
    return Server(
        "upstream",
        version="1",
        on_list_tools=upstream.list,
        on_call_tool=upstream.call,
        on_subscriptions_listen=ListenHandler(upstream.bus),
    )


async def main() -> None:
    server = make()
    async with stdio_server() as (read, write):
        await server.run(
            read, write, server.create_initialization_options(NotificationOptions(tools_changed=True))
        )


if __name__ == "__main__":
    anyio.run(main)
