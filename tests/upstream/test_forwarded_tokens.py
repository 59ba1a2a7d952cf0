"""What a mounted server says of a token that a caller forwards to it is shown to nobody."""

from __future__ import annotations

import logging

import anyio
import httpx2
import pytest
from tests.support.echoing import echoing

from mcp_toolset import RemoteToolset, ToolsetServer
from mcp_toolset.auth import StaticTokens

pytestmark = pytest.mark.anyio

TOKEN = "f0rwardedT0kenOfAlice12345678901"
MEETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "me", "version": "1"}}


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
