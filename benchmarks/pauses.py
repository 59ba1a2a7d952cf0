"""The pauses by a big catalog: the time in which no client is answered while it is loaded and searched.

    python benchmarks/pauses.py [--tools 10000] [--json FILE]

A server in this process mounts so many tools of `raw_upstream.py` and has a tool of its own, which an SDK
client calls over and over meanwhile. A pause is CPU time that the event loop spends on one thing, read off
a callback that comes back every half millisecond; the latencies are those of that client's calls, which a
busy machine adds to. The catalog is mounted once as it is and once deferred, behind search.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from costs import HERE
from mcp import Client
from measuring import markdown
from reporting import say, surroundings

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool

EVERY = 0.0005
DEADLINE = 60.0
QUERIES = ("return the text that was given", "as much text as was asked for", "echo77")


@tool
async def ping() -> str:
    """Answer at once."""
    return "pong"


class Pulse:
    """A callback that comes back all the time, and notes how long it was kept from it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.longest = 0.0
        self.spent = time.thread_time()
        self.beating = True
        self.beat()

    def beat(self) -> None:
        now = time.thread_time()
        self.longest, self.spent = max(self.longest, now - self.spent), now
        if self.beating:
            self.loop.call_later(EVERY, self.beat)


class Watch:
    """Pauses and latencies, phase by phase."""

    def __init__(self, pulse: Pulse) -> None:
        self.pulse = pulse
        self.latencies: list[float] = []
        self.rows: list[dict[str, Any]] = []

    async def call(self, client: Client) -> None:
        while self.pulse.beating:
            began = time.perf_counter()
            await client.call_tool("ping", {})
            self.latencies.append(time.perf_counter() - began)

    async def phase(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        await anyio.sleep(10 * EVERY)
        self.pulse.longest, self.latencies = 0.0, []
        began = time.perf_counter()
        with anyio.fail_after(DEADLINE):
            await work()
        await anyio.sleep(2 * EVERY)
        taken = sorted(self.latencies)
        row = {
            "phase": name,
            "seconds": time.perf_counter() - began,
            "longest pause, ms": 1e3 * self.pulse.longest,
            "calls meanwhile": len(taken),
            "p99 of them, ms": 1e3 * taken[int(0.99 * (len(taken) - 1))] if taken else None,
        }
        self.rows.append(row)
        say("pauses", str(row))


@asynccontextmanager
async def watched(server: ToolsetServer) -> AsyncGenerator[Watch]:
    watch = Watch(Pulse())
    async with server, Client(server.lowlevel) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(watch.call, client)
            yield watch
            watch.pulse.beating = False


async def measured(tools: int, *, deferred: bool) -> list[dict[str, Any]]:
    remote = RemoteToolset([sys.executable, "-S", str(HERE / "raw_upstream.py"), str(tools)], name="up")
    mounted = remote.deferred() if deferred else remote
    # Something deferred from the beginning: what search needs is loaded before anybody calls.
    server = ToolsetServer(Toolset(ping, Toolset(name="none").deferred()) if deferred else Toolset(ping))
    kind = "deferred" if deferred else "listed"

    async def load() -> None:
        await server.attach(mounted)
        await until(lambda: len(server.bindings()) > tools)

    async def refresh() -> None:
        await server.call_as_host("echo", {"text": "x", "edition": 1})
        binding = server.bindings()[-1]
        await until(lambda: server.bindings()[-1].definition.digest != binding.definition.digest)

    async with watched(server) as watch:

        async def search() -> None:
            for query in QUERIES:
                await server.call_tool("search_tools", {"query": query})

        await watch.phase(f"{kind}: load", load)
        if deferred:
            await watch.phase("deferred: search", search)
        await watch.phase(f"{kind}: refresh", refresh)
        return watch.rows


async def until(condition: Callable[[], bool]) -> None:
    """Wait; looking costs little, and so does not disturb."""
    while not condition():  # noqa: ASYNC110
        await anyio.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="with few tools: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    logging.disable()
    tools = 200 if options.quick else options.tools
    about = surroundings("pauses", {"tools": tools, "quick": options.quick})
    rows = [
        row for deferred in (False, True) for row in anyio.run(partial(measured, tools, deferred=deferred))
    ]
    shown = [
        [row["phase"], *(f"{row[key]:.1f}" if row[key] is not None else "" for key in list(row)[1:])]
        for row in rows
    ]
    print(markdown(list(rows[0]), shown))
    if options.json:
        options.json.write_text(json.dumps({**about(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
