"""Legacy clients go on at any replica, over a proxy that sends each request to the next one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send
from tests.support.asking import Person, text_of
from tests.support.piped import handshake
from tests.support.served import listening

from mcp_toolset import ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.shared import SharedState
from mcp_toolset.transports.http import shared_sessions

pytestmark = pytest.mark.anyio

JSON = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO = handshake(1)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def room(context: ToolContext) -> str:
    """Book a room."""
    return str((await context.ask("Which size?")).content["answer"])


class Proxy:
    """Sends each request to the next replica that is there."""

    def __init__(self) -> None:
        self.servers: list[ToolsetServer] = []
        self.apps: list[Starlette] = []
        self.url = ""
        self._turns = count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.apps[next(self._turns) % len(self.apps)](scope, receive, send)


@asynccontextmanager
async def replicas(url: str, number: int = 2, *tools: Any) -> AsyncIterator[Proxy]:
    proxy = Proxy()
    async with AsyncExitStack() as stack:
        for _ in range(number):
            toolset = Toolset(add, room, *tools)
            server = ToolsetServer(toolset, shared=SharedState(url), keep=False, capabilities=["ask"])
            app = server.http_app()
            await stack.enter_async_context(app.router.lifespan_context(app))
            proxy.servers.append(server)
            proxy.apps.append(app)
        front = Starlette()
        front.router = proxy  # pyright: ignore[reportAttributeAccessIssue]
        front.state.draining, front.state.request_timeout = proxy.apps[0].state.draining, 60.0
        proxy.url = f"{await stack.enter_async_context(listening(front))}/mcp"
        with anyio.fail_after(60):
            yield proxy


async def test_r3_a_legacy_session_goes_on_at_every_replica(url: str) -> None:
    async with replicas(url, 3) as proxy, Client(proxy.url, mode="legacy") as client:
        for n in range(6):
            assert text_of(await client.call_tool("add", {"a": n, "b": 1})) == str(n + 1)
        assert {tool.name for tool in (await client.list_tools()).tools} == {"add", "room"}


async def test_r3_an_answer_finds_the_replica_that_asked(url: str) -> None:
    person = Person(*[{"answer": str(n)} for n in range(6)])
    async with replicas(url, 3) as proxy:
        async with Client(proxy.url, mode="legacy", elicitation_callback=person) as client:
            for n in range(6):
                assert text_of(await client.call_tool("room", {})) == str(n)


@pytest.mark.parametrize("path", ["/sse", "/mcp"])
async def test_r3_every_transport_goes_through_every_replica(url: str, path: str) -> None:
    async with replicas(url, 3) as proxy:
        address = proxy.url.replace("/mcp", path)
        transport = sse_client(address) if path == "/sse" else address
        person = Person(*[{"answer": str(n)} for n in range(4)])
        async with Client(transport, mode="legacy", elicitation_callback=person) as client:
            for n in range(4):
                assert text_of(await client.call_tool("add", {"a": n, "b": 1})) == str(n + 1)
                assert text_of(await client.call_tool("room", {})) == str(n)


async def test_r3_a_session_survives_the_replica_that_began_it(url: str) -> None:
    async with replicas(url) as proxy, httpx.AsyncClient() as web:
        began = await web.post(proxy.url, json=HELLO, headers=JSON)
        session = {**JSON, "mcp-session-id": began.headers["mcp-session-id"]}
        del proxy.apps[0]
        listed = await web.post(
            proxy.url, json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=session
        )
        assert listed.status_code == 200 and "add" in listed.text


async def test_r3_a_session_that_was_ended_is_ended_at_every_replica(url: str) -> None:
    async with replicas(url, 3) as proxy, httpx.AsyncClient() as web:
        began = await web.post(proxy.url, json=HELLO, headers=JSON)
        session = {**JSON, "mcp-session-id": began.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await web.post(proxy.url, json=ping, headers=session)).status_code == 200
        assert (await web.delete(proxy.url, headers=session)).status_code == 200
        codes = set[int]()
        with anyio.fail_after(20):
            while codes != {404}:
                codes = {(await web.post(proxy.url, json=ping, headers=session)).status_code for _ in "abc"}


async def test_r3_an_id_that_was_altered_is_no_session(url: str) -> None:
    async with replicas(url) as proxy, httpx.AsyncClient() as web:
        began = await web.post(proxy.url, json=HELLO, headers=JSON)
        name = began.headers["mcp-session-id"]
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        for wrong in (
            name[:-1],
            f"0{name[1:]}x",
            f"{'0' * 32}.{name.partition('.')[2]}",
            name.partition(".")[0],
        ):
            for _ in proxy.apps:
                told = await web.post(proxy.url, json=ping, headers={**JSON, "mcp-session-id": wrong})
                assert told.status_code == 404


async def test_r4_every_client_hears_of_a_changed_list_once_it_listens(url: str) -> None:
    heard = anyio.Event()

    async def note(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            heard.set()

    async with replicas(url, 3) as proxy:
        async with Client(proxy.url, mode="legacy", message_handler=note) as client:
            await client.list_tools()
            await proxy.servers[0].choose({"add": False})
            await heard.wait()
            with anyio.fail_after(20):
                while len((await client.list_tools()).tools) != 1:
                    pass


async def test_r4_a_grant_of_one_replica_is_told_where_the_client_listens(url: str) -> None:
    @tool
    def read_invoice(number: int) -> str:
        """Read an invoice."""
        return f"invoice {number}"

    heard = anyio.Event()

    async def note(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            heard.set()

    async with replicas(url, 3, Toolset(read_invoice).deferred()) as proxy:
        async with Client(proxy.url, mode="legacy", message_handler=note) as client:
            await client.call_tool("resolve_tools", {"ids": ["read_invoice"]})
            await heard.wait()
            with anyio.fail_after(20):
                while "read_invoice" not in {each.name for each in (await client.list_tools()).tools}:
                    pass
            for n in range(3):
                assert text_of(await client.call_tool("read_invoice", {"number": n})) == f"invoice {n}"


async def test_u115_an_id_that_is_too_old_opens_no_session(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_sessions, "TTL", -1.0)
    async with replicas(url) as proxy, httpx.AsyncClient() as web:
        began = await web.post(proxy.url, json=HELLO, headers=JSON)
        session = {**JSON, "mcp-session-id": began.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        codes = {(await web.post(proxy.url, json=ping, headers=session)).status_code for _ in proxy.apps}
        assert codes == {200, 404}


@pytest.mark.parametrize("much", ["clientInfo", "experimental", "extensions"])
async def test_u115_a_client_that_says_much_of_itself_gets_an_id_that_fits_into_a_header(
    url: str, much: str
) -> None:
    params: dict[str, Any] = {**HELLO["params"]}
    if much == "clientInfo":
        params[much] = {"name": "c", "version": "1", "websiteUrl": f"https://a.example/{'x' * 20_000}"}
    else:
        params["capabilities"] = {"elicitation": {}, much: {"example.com/x": {"text": "x" * 20_000}}}
    async with replicas(url) as proxy, httpx.AsyncClient() as web:
        began = await web.post(proxy.url, json={**HELLO, "params": params}, headers=JSON)
        assert len(began.headers["mcp-session-id"]) <= 3_000
        session = {**JSON, "mcp-session-id": began.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        codes = [(await web.post(proxy.url, json=ping, headers=session)).status_code for _ in proxy.apps]
        assert codes == [200, 200]
