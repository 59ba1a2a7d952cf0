"""Is every notification of a call there before its result, on every path, on a quiet and on a busy machine?

    python benchmarks/notifications.py [--calls 10000] [--busy 4] [--json FILE]

A server numbers what it says before each result. Clients read the bridge's messages as they come over the
wire (stdio, HTTP, HTTP+SSE, in process; both eras), before the server on each transport and in each era. A
notification that never comes is lost; one that comes after the result of its call is late.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import httpx2
from chatty import SAID, hub
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from measuring import markdown
from reporting import say, surroundings

DOORS = ("stdio", "http", "sse", "memory")
ERAS = ("legacy", "modern")
UPSTREAMS = (*product(("stdio", "http", "sse"), ERAS), ("memory", "modern"))
AT_ONCE = 4
CHATTY = str(Path(__file__).with_name("chatty.py"))
META = "io.modelcontextprotocol"
MODERN = "2026-07-28"

Message = dict[str, Any]
Post = Callable[[Message], Coroutine[Any, Any, None]]


class Client:
    """Calls, and counts what comes when; `heard` takes every message in the order of the wire."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.post: Post | None = None
        self.said: dict[int, int] = {}
        self.results: dict[int, anyio.Event] = {}
        self.answer: Message = {}
        self.group: anyio.abc.TaskGroup | None = None
        self.found: Counter[str] = Counter()

    def request(self, number: int, method: str, params: Message) -> Message:
        if self.era == "modern":
            envelope = {
                f"{META}/protocolVersion": MODERN,
                f"{META}/clientInfo": {"name": "counter", "version": "1"},
                f"{META}/clientCapabilities": {},
                f"{META}/logLevel": "debug",
            }
            params = {**params, "_meta": {**envelope, **params.get("_meta", {})}}
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def heard(self, message: Message) -> None:
        params = message.get("params") or {}
        match message.get("method"):
            case "notifications/message":
                self._note(params["data"])
            case "notifications/progress":
                self._note(int(params.get("progress", -1)))
            case "ping":
                assert self.post is not None and self.group is not None
                self.group.start_soon(self.post, {"jsonrpc": "2.0", "id": message["id"], "result": {}})
            case None if message.get("id") in self.results:
                if "result" not in message:
                    raise RuntimeError(f"a call failed: {message}")
                self.answer = message["result"]
                self.results[message["id"]].set()
            case _:
                pass

    def _note(self, number: int) -> None:
        call = number - number % SAID
        self.said[call] = self.said.get(call, 0) + 1
        if call in self.results and self.results[call].is_set():
            self.found["late"] += 1

    async def ask(self, number: int, method: str, params: Message) -> Message:
        assert self.post is not None
        self.results[number] = anyio.Event()
        await self.post(self.request(number, method, params))
        await self.results[number].wait()
        return self.answer

    async def run(self, calls: int, at_once: int) -> Counter[str]:
        """Make the calls; ids are the numbers that each call begins with."""
        assert self.post is not None
        if self.era == "legacy":
            info = {"name": "counter", "version": "1"}
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            await self.ask(-1, "initialize", params)
            await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        # A hub lists what has joined, and says nothing to a client that has not asked for changes.
        while not (await self.ask(-2, "tools/list", {}))["tools"]:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        numbers = iter(range(0, calls * SAID, SAID))

        async def work() -> None:
            for first in numbers:
                params = {"name": "say", "arguments": {"first": first}, "_meta": {"progressToken": first}}
                await self.ask(first, "tools/call", params)

        async with anyio.create_task_group() as self.group:
            for _ in range(at_once):
                self.group.start_soon(work)
        # What is late comes now, if it comes.
        await self.ask(-3, "tools/list", {})
        self.found["calls"] += calls
        self.found["lost"] += calls * SAID - sum(self.said.values())
        return self.found


@contextmanager
def program(*arguments: str, pipes: bool = False) -> Generator[subprocess.Popen[bytes]]:
    """One of the programs of chatty.py."""
    stdin = subprocess.PIPE if pipes else subprocess.DEVNULL
    with subprocess.Popen(
        [sys.executable, CHATTY, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def port_of(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@contextmanager
def target_of(transport: str, era: str) -> Generator[str]:
    """The upstream, as a hub is told of it."""
    if transport == "memory":
        yield "memory"
    elif transport == "stdio":
        yield json.dumps([sys.executable, CHATTY, "server", "stdio", era])
    else:
        with program("server", "http", era) as process:
            yield json.dumps(f"http://127.0.0.1:{port_of(process)}/{'sse' if transport == 'sse' else 'mcp'}")


@asynccontextmanager
async def over_stdio(client: Client, target: str, era: str) -> AsyncGenerator[None]:
    command = [sys.executable, CHATTY, "hub", "stdio", target, era]
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        async def post(message: Message) -> None:
            await stdin.send(json.dumps(message).encode() + b"\n")

        async def read() -> None:
            rest = b""
            async for chunk in stdout:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    client.heard(json.loads(line))

        client.post = post
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            yield
            group.cancel_scope.cancel()
        process.kill()


async def events(response: httpx2.Response) -> AsyncGenerator[tuple[str, str]]:
    kind = ""
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, value


async def _messages(response: httpx2.Response) -> AsyncGenerator[str]:
    if "event-stream" in response.headers.get("content-type", ""):
        async for _, data in events(response):
            if data:
                yield data
    elif body := await response.aread():
        yield body.decode()


def _routing(client: Client, message: Message) -> dict[str, str]:
    """The headers that tell of a modern request."""
    if client.era != "modern":
        return {}
    name = message["params"].get("name")
    headers = {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
    return headers if name is None else {**headers, "mcp-name": name}


@asynccontextmanager
async def over_http(client: Client, target: str, era: str) -> AsyncGenerator[None]:
    with program("hub", "http", target, era) as process:
        url, session = f"http://127.0.0.1:{port_of(process)}/mcp", dict[str, str]()
        async with httpx2.AsyncClient(timeout=60) as http, anyio.create_task_group() as group:

            async def exchange(message: Message) -> None:
                headers = {
                    "accept": "application/json, text/event-stream",
                    **session,
                    **_routing(client, message),
                }
                async with http.stream("POST", url, json=message, headers=headers) as response:
                    if "mcp-session-id" in response.headers:
                        session["mcp-session-id"] = response.headers["mcp-session-id"]
                    async for data in _messages(response):
                        client.heard(json.loads(data))

            async def post(message: Message) -> None:
                if "method" in message and "id" in message:
                    group.start_soon(exchange, message)
                else:
                    await exchange(message)

            client.post = post
            yield
            group.cancel_scope.cancel()


@asynccontextmanager
async def over_sse(client: Client, target: str, era: str) -> AsyncGenerator[None]:
    with program("hub", "http", target, era) as process:
        base, endpoint = f"http://127.0.0.1:{port_of(process)}", list[str]()
        opened = anyio.Event()
        async with httpx2.AsyncClient(timeout=60) as http, anyio.create_task_group() as group:

            async def read() -> None:
                async with http.stream("GET", f"{base}/sse") as response:
                    async for kind, data in events(response):
                        if kind == "endpoint":
                            endpoint.append(data)
                            opened.set()
                        else:
                            client.heard(json.loads(data))

            async def post(message: Message) -> None:
                (await http.post(base + endpoint[0], json=message)).raise_for_status()

            client.post = post
            group.start_soon(read)
            await opened.wait()
            yield
            group.cancel_scope.cancel()


@asynccontextmanager
async def over_memory(client: Client, target: str, era: str) -> AsyncGenerator[None]:
    async with hub(target, era) as server, anyio.create_task_group() as group:
        await server.settled()
        async with create_client_server_memory_streams() as (mine, theirs):
            options = server.lowlevel.create_initialization_options()
            group.start_soon(server.lowlevel.run, *theirs, options)

            async def post(message: Message) -> None:
                await mine[1].send(SessionMessage(jsonrpc_message_adapter.validate_python(message)))

            async def read() -> None:
                async for item in mine[0]:
                    if isinstance(item, SessionMessage):
                        client.heard(item.message.model_dump(by_alias=True, exclude_unset=True))

            client.post = post
            group.start_soon(read)
            yield
            group.cancel_scope.cancel()


ENTRANCES = {"stdio": over_stdio, "http": over_http, "sse": over_sse, "memory": over_memory}


def tells_calls_apart(door: str, era: str, upstream: str) -> bool:
    """Over stdio and SSE nothing says which call a log message belongs to: it goes to the client of all calls
    under way, and over HTTP clients of 2026-07-28 cannot be told apart."""
    return upstream in ("http", "memory") or (door, era) != ("http", "modern")


async def cell(door: str, era: str, upstream: str, spoken: str, calls: int) -> Counter[str]:
    """One path."""
    client = Client(era)
    at_once = AT_ONCE if tells_calls_apart(door, era, upstream) else 1
    with target_of(upstream, spoken) as target:
        async with ENTRANCES[door](client, target, spoken):
            with anyio.fail_after(120):
                return await client.run(calls, at_once)


def _burn() -> None:
    while True:
        sum(range(10_000))


@contextmanager
def busy(processes: int) -> Generator[None]:
    """Other programs that take what time they get."""
    burning = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(processes)]
    for each in burning:
        each.start()
    try:
        yield
    finally:
        for each in burning:
            each.kill()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=10_000, help="in all, half of them on a busy machine")
    parser.add_argument("--busy", type=int, default=4, help="programs that make it busy")
    parser.add_argument("--only", default="", help="paths whose name has this in it")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    about = surroundings("notifications", {"calls": options.calls, "busy": options.busy})
    paths = [
        (door, era, *upstream)
        for door, era, upstream in product(DOORS, ERAS, UPSTREAMS)
        if options.only in f"{door} {era} {' '.join(upstream)}"
    ]
    each = max(1, options.calls // (2 * len(paths)))
    rows: list[dict[str, Any]] = []
    for machine, others in (("quiet", 0), ("busy", options.busy)):
        with busy(others):
            for door, era, upstream, spoken in paths:
                found = anyio.run(cell, door, era, upstream, spoken, each)
                names = {"machine": machine, "door": door, "era": era, "upstream": f"{upstream} {spoken}"}
                rows.append({**names, **{key: found[key] for key in ("calls", "lost", "late")}})
                say("notifications", " ".join(str(value) for value in rows[-1].values()))
    print(markdown(tuple(rows[0]), [tuple(str(value) for value in row.values()) for row in rows]))
    total = {key: sum(row[key] for row in rows) for key in ("calls", "lost", "late")}
    said = total["calls"] * SAID
    print(f"{total['calls']} calls, {said} notifications: {total['lost']} lost, {total['late']} late")
    if options.json:
        options.json.write_text(json.dumps({**about(), "rows": rows, **total}, indent=1) + "\n")
    return 1 if total["lost"] or total["late"] else 0


if __name__ == "__main__":
    sys.exit(main())
