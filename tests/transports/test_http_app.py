"""Both HTTP transports: who may talk to them, and how they listen and end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
import pytest
from mcp import Client
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.support.served import free_socket, served
from tests.transports.test_legacy_sessions import HEADERS, INITIALIZE

from mcp_toolset import Toolset, ToolsetError, ToolsetServer, serve
from mcp_toolset.errors import StateError

pytestmark = pytest.mark.anyio
APP = str(Path(__file__).parents[2] / "examples" / "local_tool" / "app.py")


def nothing() -> str:
    """Do nothing."""
    return ""


@pytest.fixture
async def url() -> AsyncIterator[str]:
    allowed: dict[str, Any] = {
        "allowed_hosts": ["tools.example.com"],
        "allowed_origins": ["https://app.example.com"],
    }
    async with served(ToolsetServer(Toolset(nothing)), **allowed) as url:
        yield url


PATHS = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/sse"),
    ("POST", "/messages/?session_id=0"),
    ("GET", "/none"),
]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example.com"}, 421),
        ({"Host": "127.0.0.1.evil.example.com:80"}, 421),
        ({"Host": "127.0.0.1:80@evil.example.com"}, 421),
        ({"Host": "tools.example.com:99"}, 421),
        ({"Origin": "https://evil.example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.evil.example.com"}, 403),
        ({"Origin": "https://localhost:x"}, 403),
        ({"Host": "evil.example.com", "Origin": "https://evil.example.com"}, 421),
    ],
)
async def test_f31_foreign_hosts_and_origins_are_refused_before_anything_else(
    url: str, headers: dict[str, str], status: int
) -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        for method, path in PATHS:
            answer = await client.request(method, url + path, headers=headers, content=b"x" * 100)
            assert answer.status_code == status, (method, path)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:1"},
        {"Host": "tools.example.com"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "https://app.example.com"},
    ],
)
async def test_f31_loopback_and_what_is_allowed_pass(url: str, headers: dict[str, str]) -> None:
    async with httpx2.AsyncClient() as client:
        answer = await client.post(f"{url}/mcp", headers=headers, content=b"{}")
    assert answer.status_code not in (403, 421)


async def test_f33_a_big_body_is_refused(url: str) -> None:
    async with httpx2.AsyncClient() as client:
        answer = await client.post(
            f"{url}/mcp",
            content=b" " * (5 * 1024 * 1024),
            headers={"Content-Type": "application/json", "Accept": "application/json, text/event-stream"},
        )
    assert answer.status_code == 413


async def test_f30_an_unknown_session_is_not_found(url: str) -> None:
    headers = {
        "Mcp-Session-Id": "0123",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    async with httpx2.AsyncClient() as client:
        answer = await client.post(
            f"{url}/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}
        )
    assert answer.status_code == 404


async def test_an_application_that_does_not_run_says_what_is_missing_and_may_run_again() -> None:
    server = ToolsetServer(Toolset(nothing))
    app = server.http_app()
    host = Starlette(routes=[Mount("/tools", app=app)])
    transport = httpx2.ASGITransport(host)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for _ in range(2):
            with pytest.raises(StateError, match="lifespan"):
                await client.post("/tools/mcp", content=b"{}")
            async with app.router.lifespan_context(app):
                answer = await client.post("/tools/mcp", headers=HEADERS, json=INITIALIZE)
                assert answer.json()["result"]["protocolVersion"] == "2025-11-25"


async def test_a_slash_too_many_leads_to_the_endpoint_whatever_name_a_proxy_has_for_it(url: str) -> None:
    async with httpx2.AsyncClient() as client:
        answer = await client.post(f"{url}/mcp/?a=1", content=b"{}")
    assert (answer.status_code, answer.headers["location"]) == (307, "/mcp?a=1")


def test_a_port_in_use_is_said_with_the_mend() -> None:
    with free_socket() as listening:
        port = listening.getsockname()[1]
        with pytest.raises(ToolsetError, match=f"port {port} on 127.0.0.1 is in use; .*--port"):
            serve(nothing, transport="http", port=port)


def test_answers_in_two_writes_do_not_wait_for_acknowledgements() -> None:
    with free_socket() as listening:
        assert listening.proto == socket.IPPROTO_TCP


@asynccontextmanager
async def running() -> AsyncGenerator[tuple[anyio.abc.Process, str]]:
    process = await anyio.open_process(
        [sys.executable, "-m", "mcp_toolset", "serve", APP, "--transport", "http", "--port", "0"],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        stderr=subprocess.PIPE,
    )
    async with process:
        assert process.stderr is not None
        said = b""
        with anyio.fail_after(40):
            while not (address := re.search(rb"(http://\S+)/mcp\n", said)):
                said += await process.stderr.receive()
        yield process, address[1].decode()


async def ended_quietly(process: anyio.abc.Process) -> None:
    assert process.stderr is not None
    with anyio.fail_after(40):
        assert await process.wait() == 0
    shown = b"".join([chunk async for chunk in process.stderr])
    assert b"Traceback" not in shown and b"ERROR" not in shown, shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_f44_a_signal_ends_an_http_server_with_an_open_sse_stream_and_connected_clients(
    number: signal.Signals,
) -> None:
    async with running() as (process, url), AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient())
        stream = await stack.enter_async_context(http.stream("GET", f"{url}/sse"))
        assert stream.status_code == 200
        for mode in ("legacy", "auto"):
            client = await stack.enter_async_context(Client(f"{url}/mcp", mode=mode))
            await client.call_tool("add", {"a": 1, "b": 1})
        await stack.enter_async_context(client.listen(tools_list_changed=True))
        process.send_signal(number)
        await ended_quietly(process)
