"""The cost of profiles: a call through one against a call of the server itself, and the memory of each.

    python benchmarks/profiles.py [--rounds 15] [--calls 300] [--quick] [--json FILE]

One process serves a hub of 20 servers with 100 profiles over HTTP. Calls go to the server and to a profile in
turn, over connections that stay open; every round divides its medians. The memory is that of Python objects
while all profiles are open, and a reload is one that changes nothing of them, and one that changes all.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
from authenticated import Caller
from measuring import markdown
from reporting import say, surroundings

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, serve, tool
from mcp_toolset.transports.http.app import bound_socket, run_app

VERSION: Final = "2026-07-28"
SERVERS: Final = 20
TOOLS: Final = 10
PROFILES: Final = 100
EACH: Final = 4
"""Servers of one profile."""


def tools_of(name: str) -> Toolset:
    """Ten tools with a schema of some size."""

    def made(number: int) -> Any:
        def run(query: str, limit: int = 10, tags: list[str] | None = None) -> dict[str, str]:
            """Search the records of this thing and return the best hits in order."""
            return {"query": query}

        return tool(name=f"search_{number}")(run)

    return Toolset(*map(made, range(TOOLS)), name=name)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def hub() -> ToolsetServer:
    """Twenty mounted servers, one of which is a process, and a tool of the program's own."""
    names = [f"s{number}" for number in range(1, SERVERS)]
    mounts = [RemoteToolset(ToolsetServer(tools_of(one)).lowlevel, name=one).prefixed(one) for one in names]
    process = RemoteToolset([sys.executable, __file__, "--echo"], name="s0").prefixed("s0")
    profiles = {
        f"p{number}": {
            "tools": [
                "add",
                "s0/*",
                *(f"s{1 + (number + more) % (SERVERS - 1)}/*" for more in range(EACH - 1)),
            ],
            "names": {"s1_search_1": "find"},
        }
        for number in range(PROFILES)
    }
    profiles["search"] = {"surface": "search"}
    return ToolsetServer(Toolset(add, process, *mounts), name="hub", profiles=profiles)


@contextmanager
def serving() -> Iterator[int]:
    """The hub in a process of its own: its port."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def served() -> None:
    """Serve the hub; print its port."""
    with bound_socket("127.0.0.1", 0) as listening:
        async with hub() as server:
            await server.settled()
            sys.stdout.write(f"{listening.getsockname()[1]}\n")
            sys.stdout.flush()
            await run_app(server.http_app(), listening)


def measured(port: int, era: str, name: str, rounds: int, calls: int) -> dict[str, Any]:
    """The medians of one tool in one era, at the server and at two profiles.

    The second profile shows what chance makes of the ratio of two alike.
    """
    with ExitStack() as stack:
        paths = {"server": "/mcp", "profile": "/p/p0/mcp", "other": "/p/p1/mcp"}
        callers = {kind: Caller(port, None, era, path, name) for kind, path in paths.items()}
        for caller in callers.values():
            stack.callback(caller.close)
            for _ in range(calls):
                caller.call()
        p50: dict[str, list[float]] = {kind: [] for kind in paths}
        for _ in range(rounds):
            times: dict[str, list[float]] = {kind: [] for kind in paths}
            for number in range(calls):
                kinds = list(paths)
                for kind in kinds[number % 3 :] + kinds[: number % 3]:
                    times[kind].append(callers[kind].call())
            for kind in paths:
                p50[kind].append(statistics.median(times[kind]))

    def ratio(kind: str, base_kind: str) -> float:
        each = (one / base for one, base in zip(p50[kind], p50[base_kind], strict=True))
        return round(statistics.median(each), 3)

    microseconds = {kind: round(1e6 * statistics.median(p50[kind]), 1) for kind in ("server", "profile")}
    return {
        "era": era,
        "tool": "local" if name == "add" else "mounted",
        "server_us": microseconds["server"],
        "profile_us": microseconds["profile"],
        "x_of_two_profiles": ratio("other", "profile"),
        "x_profile": ratio("profile", "server"),
    }


def children() -> int:
    """The processes that this one has started."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return len(file.read().split())


async def sizes(profiles: int) -> dict[str, Any]:
    """The memory and the time of each profile, as all are opened."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(hub())
        await server.settled()
        extension = server.extensions["profiles"]
        first = await extension.view("p0", None)
        before, began = children(), time.perf_counter()
        for number in range(1, profiles):
            await extension.view(f"p{number}", None)
        opening = (time.perf_counter() - began) / (profiles - 1)
        gc.collect()
        began = time.perf_counter()
        for view in tuple(server.views):
            await view.refresh()
        same = time.perf_counter() - began
        began = time.perf_counter()
        for view in tuple(server.views):
            view.become(replace(view.options, instructions="other words"))
            await view.refresh()
        rebuilt = time.perf_counter() - began
        started = children() - before
        tools = len(first.tools())
    tracemalloc.start()
    kib = {}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(hub())
        await server.settled()
        extension = server.extensions["profiles"]
        await extension.view("p0", None)
        gc.collect()
        now = tracemalloc.get_traced_memory()[0]
        for number in range(1, profiles):
            await extension.view(f"p{number}", None)
        gc.collect()
        kib["listed"] = (tracemalloc.get_traced_memory()[0] - now) / (profiles - 1) / 1024
        now = tracemalloc.get_traced_memory()[0]
        await extension.view("search", None)
        gc.collect()
        kib["search"] = (tracemalloc.get_traced_memory()[0] - now) / 1024
    tracemalloc.stop()
    return {
        "profiles": profiles,
        "tools_each": tools,
        "kib_each": round(kib["listed"]),
        "kib_of_all_tools_behind_search": round(kib["search"]),
        "ms_to_open_each": round(1e3 * opening, 1),
        "ms_reload_without_change": round(1e3 * same),
        "ms_reload_that_changes_all": round(1e3 * rebuilt),
        "processes_started": started,
    }


def main() -> None:
    """Measure memory, then both eras."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=300, help="calls at each address in a round")
    parser.add_argument("--quick", action="store_true", help="see that it runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        return serve(Toolset(add), name="echo", log=False)
    if options.serve:
        return anyio.run(served)
    rounds, calls = (2, 10) if options.quick else (options.rounds, options.calls)
    finished = surroundings("profiles", {"rounds": rounds, "calls": calls})
    say("profiles", "memory")
    size = anyio.run(sizes, 5 if options.quick else PROFILES)
    rows: list[dict[str, Any]] = []
    with serving() as port:
        for era in ("legacy", "modern"):
            for name in ("add", "s0_add"):
                say("profiles", f"{era} {name}")
                rows.append(measured(port, era, name, rounds, calls))
    report = {**finished(), "size": size, "rows": rows}
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    sys.stdout.write(markdown(list(size), [[str(cell) for cell in size.values()]]) + "\n\n")
    sys.stdout.write(markdown(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows]) + "\n")
    return None


if __name__ == "__main__":
    main()
