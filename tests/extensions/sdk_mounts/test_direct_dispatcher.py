"""A mounted server of this process: its handler is run on the caller's own context, and is none the wiser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from tests.support.spans import Spans

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.extensions.sdk_mounts import no_back_channel, sdk_answers, tool_handler
from mcp_toolset.protocol.eras import modern_envelope
from mcp_toolset.protocol.json_rpc import MCPError, RequestTimedOut
from mcp_toolset.transports.direct_calls import DirectCalls

pytestmark = pytest.mark.anyio

Handler = Callable[[ServerRequestContext[Any, Any], types.CallToolRequestParams], Awaitable[Any]]

TEXT = [types.TextContent(type="text", text="hi")]
FORM = types.ElicitRequestFormParams(message="?", requested_schema={"type": "object", "properties": {}})
ASKS = types.InputRequiredResult(
    input_requests={"q": types.ElicitRequest(params=FORM)}, request_state="kept by the server"
)
RETURNED: dict[str, Any] = {
    "text": types.CallToolResult(content=list(TEXT)),
    "structured": types.CallToolResult(content=list(TEXT), structured_content=[1, {"a": None}]),
    "error": types.CallToolResult(content=list(TEXT), is_error=True),
    "link": types.CallToolResult(
        content=[types.ResourceLink(type="resource_link", name="n", uri="file:///n", size=3)]
    ),
    "meta": types.CallToolResult.model_validate({"content": [], "_meta": {"a/b": 1}}),
    "question": ASKS,
    "dictionary": {"content": [{"type": "text", "text": "raw"}], "isError": False},
    "unknown fields": {"content": [], "surplus": 1},
    "extension": {"resultType": "example/shape", "anything": [1]},
    "no content": {"content": 7},
    "no result": 7,
    "error data": types.ErrorData(code=-31000, message="no", data={"why": 1}),
}
RAISED: dict[str, Exception] = {"own error": MCPError(-31001, "refused", {"x": 1}), "bug": KeyError("secret")}


def server_of(handler: Handler) -> Server[Any]:
    async def on_list(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="t", input_schema={"type": "object"})])

    return Server("in", on_list_tools=on_list, on_call_tool=handler)


def answering(case: str) -> Server[Any]:
    async def handler(ctx: Any, params: Any) -> Any:
        if case in RAISED:
            raise RAISED[case]
        return RETURNED[case]

    return server_of(handler)


async def passed_on(ctx: Any, call_next: Any) -> Any:
    return await call_next(ctx)


async def outcome(server: Server[Any]) -> Any:
    """What a caller gets, without the stamp that the bridge does not pass on."""
    params = {
        "name": "t",
        "arguments": {},
        "_meta": modern_envelope("2026-07-28", {"name": "c", "version": "1"}, {}),
    }
    async with server.lifespan(server) as state:
        try:
            result = await DirectCalls(sdk_answers(server, state), no_back_channel).send_raw_request(
                "tools/call", params
            )
        except MCPError as fault:
            return fault.code, fault.message, fault.data
    meta = {key: value for key, value in result.pop("_meta", {}).items() if "serverInfo" not in key}
    return {**result, "_meta": meta}


@pytest.mark.parametrize("case", [*RETURNED, *RAISED])
async def test_the_short_way_comes_to_what_the_sdk_comes_to(case: str) -> None:
    through = answering(case)
    through.middleware.append(passed_on)
    straight = answering(case)
    assert tool_handler(straight, "tools/call") and not tool_handler(through, "tools/call")
    assert await outcome(straight) == await outcome(through)


@pytest.mark.parametrize("path", ["straight", "through the SDK"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_handler_sees_the_same_request_either_way(path: str, mode: str) -> None:
    seen: list[Any] = []
    user: ContextVar[str] = ContextVar("user")

    async def handler(ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> Any:
        await ctx.session.report_progress(1, 2, "half")
        meta = {key: value for key, value in (ctx.meta or {}).items() if not key.startswith("io.model")}
        seen.append((ctx.method, params.name, params.arguments, meta, user.get()))
        return types.CallToolResult(content=list(TEXT))

    server = server_of(handler)
    if path != "straight":
        server.middleware.append(passed_on)
    heard: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    with anyio.fail_after(40):
        user.set("ada")
        async with (
            ToolsetServer(Toolset(RemoteToolset(server, name="up"))) as bridge,
            Client(bridge.lowlevel, mode=mode, cache=None) as client,
        ):
            await client.call_tool("t", {"a": 1}, progress_callback=on_progress, meta={"x/y": 2})
    (method, name, arguments, meta, who) = seen[0]
    assert (method, name, arguments, who) == ("tools/call", "t", {"a": 1}, "ada")
    assert meta.get("x/y") == 2
    assert heard == [(1, 2, "half")]


async def test_l20_whoever_collects_traces_sees_the_servers_own_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spans = Spans(monkeypatch)
    straight, through = answering("text"), answering("text")
    through.middleware.append(passed_on)
    assert tool_handler(straight, "tools/call") and not tool_handler(through, "tools/call")
    assert await outcome(straight) == await outcome(through)
    assert spans.begun == ["tools/call t"] * 2


async def test_other_methods_and_servers_without_tools_go_the_ordinary_way() -> None:
    assert tool_handler(answering("text"), "tools/list") is None
    assert tool_handler(Server("none"), "tools/call") is None


async def test_f4_a_handler_that_hangs_is_cancelled_at_its_deadline() -> None:
    ended = anyio.Event()

    async def hang(ctx: Any, params: Any) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    server = server_of(hang)
    with anyio.fail_after(40):
        async with server.lifespan(server) as state:
            with pytest.raises(RequestTimedOut):
                await DirectCalls(sdk_answers(server, state), no_back_channel).send_raw_request(
                    "tools/call", {"name": "t", "arguments": {}}, {"timeout": 0.05}
                )
        assert ended.is_set()
        mount = RemoteToolset(server_of(hang), name="up", timeout=0.1)
        async with ToolsetServer(Toolset(mount)) as bridge:
            result = await bridge.call_tool("t", {})
            assert result.is_error and "no answer within 0.1 s" in result.text


async def test_f4_a_caller_that_is_cancelled_is_not_told_of_a_deadline() -> None:
    began = anyio.Event()

    async def hang(ctx: Any, params: Any) -> Any:
        began.set()
        await anyio.sleep_forever()

    server = server_of(hang)
    with anyio.fail_after(40):
        async with server.lifespan(server) as state, anyio.create_task_group() as group:
            calls = DirectCalls(sdk_answers(server, state), no_back_channel)
            params: dict[str, Any] = {"name": "t", "arguments": {}}
            group.start_soon(partial(calls.send_raw_request, "tools/call", params, {"timeout": 60}))
            await began.wait()
            group.cancel_scope.cancel()


async def test_a_revision_that_the_sdk_does_not_know_is_refused_with_those_it_does() -> None:
    server = answering("text")
    with anyio.fail_after(40):
        async with server.lifespan(server) as state:
            calls = DirectCalls(sdk_answers(server, state), no_back_channel)
            meta = modern_envelope("2099-01-01", {"name": "c", "version": "1"}, {})
            with pytest.raises(MCPError) as refused:
                await calls.send_raw_request("server/discover", {"_meta": meta})
    assert refused.value.code == types.UNSUPPORTED_PROTOCOL_VERSION
    assert refused.value.data == {"supported": ["2026-07-28"], "requested": "2099-01-01"}
