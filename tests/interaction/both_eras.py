"""A server of both protocol eras, on the SDK's, whose tools each ask in the way of one era.

`elicit` sends a request to its client (up to 2025-11-25), `rounds` and `hinted` answer `input_required`
(2026-07-28), each whatever is spoken; `numbers` returns a list, which is structured content in 2026-07-28
alone; `runs` says how often each has begun in this connection.
It is the process behind the relays of `lines.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, cast

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import NotificationOptions, Server
from tests.interaction import lines

FORM: dict[str, Any] = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
ANYTHING: dict[str, Any] = {"type": "object"}
LIST: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
MODERN = "2026-07-28"


async def listed(ctx: Any, params: Any) -> types.ListToolsResult:
    hints = {"hinted": types.ToolAnnotations(read_only_hint=True)}
    names = ("elicit", "rounds", "hinted", "runs")
    tools = [types.Tool(name=name, input_schema=ANYTHING, annotations=hints.get(name)) for name in names]
    output = LIST if ctx.protocol_version >= MODERN else None
    tools.append(types.Tool(name="numbers", input_schema=ANYTHING, output_schema=output))
    return types.ListToolsResult(tools=tools)


def text(value: object) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=json.dumps(value))])


async def call(runs: Counter[str], ctx: Any, params: types.CallToolRequestParams) -> Any:
    if params.name == "runs":
        return text({**runs, "version": ctx.protocol_version})
    runs[params.name] += 1
    if params.name == "numbers":
        structured = [1, 2] if ctx.protocol_version >= MODERN else None
        return text([1, 2]).model_copy(update={"structured_content": structured})
    if params.name == "elicit":
        said = await ctx.session.elicit_form("Which word?", FORM, related_request_id=ctx.request_id)
        return text(said.content["word"])
    if params.input_responses:
        return text(cast("Any", params.input_responses["word"]).content["word"])
    asked = types.ElicitRequest(
        params=types.ElicitRequestFormParams(message="Which word?", requested_schema=FORM)
    )
    return types.InputRequiredResult(input_requests={"word": asked}, request_state="mine")


async def without_sessions(ctx: Any, call_next: Any) -> Any:
    """Refuse the handshake, as a server does that knows 2026-07-28 alone."""
    if ctx.method == "initialize":
        raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, "no", {"supported": ["2026-07-28"]})
    return await call_next(ctx)


async def serve(word: str, read: Any, write: Any) -> None:
    runs: Counter[str] = Counter()

    async def called(ctx: Any, params: types.CallToolRequestParams) -> Any:
        return await call(runs, ctx, params)

    server = Server[Any]("both", version="1", on_list_tools=listed, on_call_tool=called)
    if word == "modern-only":
        server.middleware.insert(0, without_sessions)
    await server.run(read, write, server.create_initialization_options(NotificationOptions()))


if __name__ == "__main__":
    lines.run(serve)
