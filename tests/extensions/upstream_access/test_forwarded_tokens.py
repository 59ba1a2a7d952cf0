"""What a mounted server says of a token that a caller forwards to it is shown to nobody."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.support.echoing import echoing
from tests.support.personal_server import personal_server
from tests.support.served import listening

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.auth import StaticTokens

pytestmark = pytest.mark.anyio

TOKEN = "f0rwardedT0kenOfAlice12345678901"
MEETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "me", "version": "1"}}


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_u19_an_error_result_and_the_log_hold_no_token_that_was_forwarded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with echoing() as echo, anyio.fail_after(60):
        up = RemoteToolset(f"{echo.base}/tells", name="up", forward_authorization=True)
        server = ToolsetServer(up.prefixed("up"), auth=[StaticTokens({"alice": TOKEN})])
        app = server.http_app()
        async with app.router.lifespan_context(app):
            headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://127.0.0.1", headers=headers
            ) as http:
                request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": MEETING}
                met = await http.post("/mcp", json=request)
                http.headers["Mcp-Session-Id"] = met.headers["mcp-session-id"]
                await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
                params = {"name": "up_say", "arguments": {"a": "b"}}
                request = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
                answer = await http.post("/mcp", json=request)
    assert '"isError":true' in answer.text and "no login with" in answer.text
    assert TOKEN not in answer.text and TOKEN not in caplog.text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("protocol", ["legacy", "modern"])
async def test_u115_no_session_with_a_server_sends_a_callers_token_that_is_not_to_be_forwarded(
    mode: Any, protocol: Any
) -> None:
    seen = list[bytes]()
    app = ToolsetServer(Toolset(add), name="up").http_app()

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        seen.extend(value for _, value in scope.get("headers", ()))
        await app(scope, receive, send)

    noting.state = app.state  # type: ignore[attr-defined]
    with anyio.fail_after(60):
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(listening(noting))
            up = RemoteToolset(f"{url}/mcp", name="up", protocol=protocol)
            bridge = ToolsetServer(up, auth=[StaticTokens({"alice": TOKEN})], keep=False)
            own = await stack.enter_async_context(listening(bridge.http_app()))
            headers = {"Authorization": f"Bearer {TOKEN}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=60))
            target: Any = streamable_http_client(f"{own}/mcp", http_client=http)
            client = await stack.enter_async_context(Client(target, mode=mode, cache=None))
            await bridge.settled()
            assert [tool.name for tool in (await client.list_tools()).tools] == ["add"]
            assert not (await client.call_tool("add", {"a": 1, "b": 2})).is_error
    assert seen and not [value for value in seen if TOKEN.encode() in value]


async def _answer(context: Any, params: Any) -> Any:
    raise AssertionError("nobody asks")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("modern", [False, True], ids=["legacy server", "modern server"])
async def test_u115_what_a_server_lists_to_one_forwarded_token_is_listed_to_no_other(
    mode: Any, modern: bool
) -> None:
    tokens = {"alice": TOKEN, "bob": TOKEN[::-1]}
    who = {f"Bearer {token}": name for name, token in tokens.items()}
    tools = {name: {f"of_{name}": name} for name in (*tokens, "nobody")}
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(60))
        known = lambda headers: who.get(headers.get("authorization", ""), "nobody")  # noqa: E731
        up = stack.enter_context(personal_server(tools, known, modern=modern))
        verifier = StaticTokens(tokens)
        mounted = RemoteToolset(up.url, name="up", forward_authorization=True)
        bridge = ToolsetServer(mounted, auth=[verifier], keep=False)
        own = await stack.enter_async_context(listening(bridge.http_app()))
        await bridge.settled()
        for name, token in (*tokens.items(), *reversed(tokens.items())):
            http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
            await stack.enter_async_context(http)
            target: Any = streamable_http_client(f"{own}/mcp", http_client=http)
            # What a client has declared beside the others makes the server list again.
            client = Client(target, mode=mode, cache=None, elicitation_callback=_answer)
            await stack.enter_async_context(client)
            await client.list_tools()
            await bridge.settled()
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert not listed & {f"of_{other}" for other in tokens if other != name}, (name, listed)
