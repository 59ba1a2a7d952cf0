"""What clients see while the shared store is killed, frozen, slow, full, or fails over to a copy of itself.

`scripts/replicas --store` runs it. For each state of the store it prints what a client sees, and how many
milliseconds each request took.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.abc
import httpx
from mcp import Client
from tests.support.asking import Person
from tests.support.valkey import ValkeyProcess

from mcp_toolset import ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.policy import Limits
from mcp_toolset.shared import SharedState

Act = Callable[[], Awaitable[str]]
HELLO = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "c", "version": "1"}, "capabilities": {}}
ACCEPTS = {"accept": "application/json, text/event-stream"}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def limited() -> str:
    """A tool with a limit."""
    return "ran"


@tool(read_only=True)
def read_invoice(number: int) -> str:
    """Read an invoice."""
    return f"invoice {number}"


@tool
async def room(context: ToolContext) -> str:
    """Book a room after a question."""
    return str((await context.ask("Which size?")).content["answer"])


class Relay:
    """A TCP relay before the store: it can be slow, and lead to another store."""

    def __init__(self, port: int) -> None:
        self.target, self.delay, self.port = port, 0.0, 0

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
        task_status.started()
        await listener.serve(self._relay)

    async def _relay(self, client: anyio.abc.SocketStream) -> None:
        try:
            store = await anyio.connect_tcp("127.0.0.1", self.target)
        except OSError:
            await client.aclose()
            return
        async with client, store, anyio.create_task_group() as group:
            group.start_soon(self._copy, store, client, 0.0, group.cancel_scope)
            await self._copy(client, store, None, group.cancel_scope)

    async def _copy(
        self,
        source: anyio.abc.SocketStream,
        target: anyio.abc.SocketStream,
        delay: float | None,
        scope: anyio.CancelScope,
    ) -> None:
        try:
            async for part in source:
                await anyio.sleep(self.delay if delay is None else delay)
                await target.send(part)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        scope.cancel()


class Stores:
    """A primary store and a copy of it, over TCP."""

    def __init__(self, folder: Path) -> None:
        self.ports = [_free(), _free()]
        self.primary, self.copy = (
            ValkeyProcess(folder / name, "--port", str(port), "--maxmemory-policy", "noeviction")
            for name, port in zip("pc", self.ports, strict=True)
        )

    def start(self) -> None:
        for each in (self.primary, self.copy):
            each.socket.parent.mkdir(exist_ok=True)
            each.start()

    def stop(self) -> None:
        self.primary.kill()
        self.copy.kill()


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


async def told(work: Awaitable[Any]) -> str:
    """What a client sees of a call: its result, or why not."""
    try:
        result = await work
    # The table shows whatever a client is told.
    except Exception as fault:
        return f"error: {fault}"
    return f"{'refused: ' if result.is_error else ''}{result.content[0].text}"


class Scene:
    """Two replicas, their clients, and what these do."""

    def __init__(self, shared: SharedState, clients: list[Client], web: httpx.AsyncClient) -> None:
        self.shared, self.clients, self.web = shared, clients, web
        self.warm, self.sessions = "", ["", ""]

    async def begin(self) -> None:
        self.warm = await self._grant()
        await self.clients[0].call_tool("call_tool", {"grant": self.warm, "arguments": {"number": 1}})
        for place in range(2):
            began = await self._post(0, "initialize", HELLO)
            self.sessions[place] = began.headers["mcp-session-id"]

    def acts(self) -> dict[str, Act]:
        here = self.clients[0]
        warm = {"grant": self.warm, "arguments": {"number": 1}}
        return {
            "a call": lambda: told(here.call_tool("add", {"a": 1, "b": 2})),
            "tools/list": self._listed,
            "a search": lambda: told(here.call_tool("search_tools", {"query": "invoice"})),
            "a call by a grant that is known": lambda: told(here.call_tool("call_tool", warm)),
            "a grant": lambda: told(here.call_tool("resolve_tools", {"ids": ["read_invoice"]})),
            "a call with a limit": lambda: told(here.call_tool("limited", {})),
            "a question and its answer": lambda: told(here.call_tool("room", {})),
            "a session that the replica knows": lambda: self._pinged(0, 0),
            "a session that the replica does not know": lambda: self._pinged(1, 1),
        }

    async def _grant(self) -> str:
        resolved = await self.clients[0].call_tool("resolve_tools", {"ids": ["read_invoice"]})
        assert resolved.structured_content is not None
        return resolved.structured_content["tools"][0]["grant"]

    async def _listed(self) -> str:
        return f"{len((await self.clients[0].list_tools()).tools)} tools"

    async def _pinged(self, replica: int, session: int) -> str:
        answer = await self._post(replica, "ping", {}, self.sessions[session])
        began = await self._post(0, "initialize", HELLO)
        if began.status_code == 200:
            # At the next look it is one that the other replica has not seen.
            self.sessions[1] = began.headers["mcp-session-id"]
        return str(answer.status_code)

    async def _post(self, replica: int, method: str, params: Any, session: str = "") -> httpx.Response:
        head = {**ACCEPTS, **({"mcp-session-id": session} if session else {})}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.web.post(f"http://r{replica}/mcp", json=body, headers=head)


@asynccontextmanager
async def scene(url: str) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        states, clients, mounts = [SharedState(url), SharedState(url)], list[Client](), dict[str, Any]()
        for number, state in enumerate(states):
            server = ToolsetServer(
                Toolset(add, limited, room, Toolset(read_invoice).deferred()),
                shared=state,
                limits={"limited": Limits(rate="1000/min")},
                capabilities=["ask"],
                keep=False,
            )
            app = server.http_app(allowed_hosts=[f"r{number}"])
            await stack.enter_async_context(app.router.lifespan_context(app))
            answers = Person(*[{"answer": "small"}] * 1000)
            clients.append(
                await stack.enter_async_context(Client(server.lowlevel, elicitation_callback=answers))
            )
            mounts[f"http://r{number}"] = httpx.ASGITransport(app)
        web = await stack.enter_async_context(httpx.AsyncClient(mounts=mounts, timeout=30))
        found = Scene(states[0], clients, web)
        await found.begin()
        yield found


async def column(name: str, found: Scene) -> None:
    print(f"\n{name}")
    for what, act in found.acts().items():
        began = time.perf_counter()
        said = " ".join((await act()).split())
        print(f"  {(time.perf_counter() - began) * 1000:7.1f} ms  {what}: {said[:110]}")
    print(f"  health: {found.shared.health.state} {found.shared.health.reason}")


async def main() -> None:
    with TemporaryDirectory() as folder:
        stores = Stores(Path(folder))
        stores.start()
        try:
            await _columns(stores)
        finally:
            stores.stop()


async def _columns(stores: Stores) -> None:
    relay = Relay(stores.ports[0])
    async with anyio.create_task_group() as group:
        await group.start(relay.serve)
        shared = SharedState(f"redis://127.0.0.1:{stores.ports[1]}")
        await shared.connection.run("REPLICAOF", "127.0.0.1", stores.ports[0], to="copy")
        async with scene(f"redis://127.0.0.1:{relay.port}") as found:
            await anyio.sleep(2)
            await column("ready", found)
            relay.delay = 0.2
            await column("slow: 200 ms", found)
            relay.delay = 0.0
            stores.primary.freeze()
            await anyio.sleep(4)
            await column("frozen for 4 s", found)
            stores.primary.thaw()
            await anyio.sleep(3)
            await column("thawed", found)
            primary = SharedState(f"redis://127.0.0.1:{stores.ports[0]}")
            await primary.connection.run("CONFIG", "SET", "maxmemory", 1, to="fill")
            await column("full", found)
            await primary.connection.run("CONFIG", "SET", "maxmemory", 0, to="empty")
            await anyio.sleep(1)
            stores.primary.kill()
            await anyio.sleep(1)
            await column("killed", found)
            await shared.connection.run("REPLICAOF", "NO", "ONE", to="promote")
            relay.target = stores.ports[1]
            await anyio.sleep(5)
            await column("failed over to the copy", found)
            await primary.connection.aclose()
            await shared.connection.aclose()
        group.cancel_scope.cancel()


if __name__ == "__main__":
    sys.exit(anyio.run(main))
