"""The SDK's inner seams are where `bridge/sdk.py` expects them."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.memory import create_client_server_memory_streams
from opentelemetry import trace

from mcp_toolset import Toolset, ToolsetServer
from mcp_toolset.bridge import sdk
from mcp_toolset.bridge.sdk import connection_of, lowlevel_of, routing_headers

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_legacy_connection_is_one_object_for_its_life_and_a_modern_one_is_not(mode: str) -> None:
    seen: list[Connection] = []

    async def remember(ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
        if ctx.method == "tools/list":
            seen.append(connection_of(ctx.session))
        return await call_next(ctx)

    async def none(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    server: Server[Any] = Server("s", on_list_tools=none)
    server.middleware.append(remember)
    with anyio.fail_after(10):
        async with Client(server, mode=mode, cache=None) as client:
            await client.list_tools()
            await client.list_tools()
    assert all(isinstance(connection, Connection) for connection in seen)
    assert (seen[0] is seen[1]) == (mode == "legacy")


async def test_a_modern_server_that_was_slow_to_say_so_is_asked_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sdk, "PROBE_DEADLINE", 0.1)
    asked: list[str] = []
    modern: dict[str, Any] = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {},
        "ttlMs": 0,
        "cacheScope": "private",
    }

    async def answer(context: Any, method: str, params: Any) -> dict[str, Any]:
        asked.append(method)
        if method == "initialize":
            raise sdk.MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, "no", {"supported": ["2026-07-28"]})
        if len(asked) == 1:
            await anyio.sleep_forever()
        return modern

    async def ignore(*_: Any) -> bool:
        return True

    async def refuse(*_: Any) -> dict[str, Any]:
        raise AssertionError

    with anyio.fail_after(20):
        async with (
            create_client_server_memory_streams() as (ours, theirs),
            anyio.create_task_group() as group,
        ):
            await group.start(sdk.stream_dispatcher(*theirs).run, answer, ignore)
            dispatcher = sdk.ObservedDispatcher(sdk.stream_dispatcher(*ours), ignore, refuse, {})
            async with sdk.ClientSession(dispatcher=dispatcher) as session:
                assert await sdk.negotiate(session, dispatcher, None) == "modern"
                assert session.protocol_version == "2026-07-28"
            group.cancel_scope.cancel()
    assert asked == ["server/discover", "initialize", "server/discover"]


def test_the_lowlevel_server_behind_each_kind_of_server_is_found() -> None:
    lowlevel: Server[Any] = Server("s")
    assert lowlevel_of(lowlevel) is lowlevel
    assert isinstance(lowlevel_of(MCPServer("m")), Server)
    assert lowlevel_of(["a", "command"]) is None


def test_routing_headers_are_those_of_the_era() -> None:
    params = {"name": "t"}
    assert routing_headers("2025-11-25", "tools/call", params, {}) == {"mcp-protocol-version": "2025-11-25"}
    modern = routing_headers("2026-07-28", "tools/call", params, {})
    assert {key.lower() for key in modern} == {"mcp-protocol-version", "mcp-method", "mcp-name"}


@pytest.mark.parametrize("provider", ["none", "one"])
async def test_requests_are_traced_exactly_when_somebody_listens(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans: list[str] = []

    class Provider(trace.NoOpTracerProvider):
        def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
            return Tracer()

    class Tracer(trace.NoOpTracer):
        def start_span(self, name: str, *args: Any, **kwargs: Any) -> trace.Span:
            spans.append(name)
            return trace.INVALID_SPAN

    if provider == "one":
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", Provider())
    async with ToolsetServer(Toolset(say)) as server, Client(server.lowlevel, cache=None) as client:
        await client.call_tool("say", {})
    assert ("tools/call say" in spans) == (provider == "one")


def say() -> str:
    """Say something."""
    return "something"
