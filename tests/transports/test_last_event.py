"""A client that wants the events after the last one it has, of a server that keeps none."""

from __future__ import annotations

import httpx2
import pytest
from tests.support.piped import handshake
from tests.support.served import served

from mcp_toolset import Toolset, ToolsetServer

pytestmark = pytest.mark.anyio
HEADERS = {"accept": "application/json, text/event-stream"}


def nothing() -> str:
    """Do nothing."""
    return ""


async def test_u39_a_stream_after_the_last_event_is_a_new_stream() -> None:
    server = ToolsetServer(Toolset(nothing))
    async with served(server) as address, httpx2.AsyncClient(headers=HEADERS) as client:
        url = f"{address}/mcp"
        begun = handshake(1)
        session = {"mcp-session-id": (await client.post(url, json=begun)).headers["mcp-session-id"]}
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await client.post(url, json=ready, headers=session)
        last = {**session, "last-event-id": "12"}
        async with client.stream("GET", url, headers=last) as stream:
            assert stream.status_code == 200
            assert stream.headers["content-type"].startswith("text/event-stream")
            await server.answers.announcements.tools()
            async for line in stream.aiter_lines():
                if "notifications/tools/list_changed" in line:
                    break
