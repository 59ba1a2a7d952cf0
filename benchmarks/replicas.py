"""The cost of a shared store: calls, grants and searches with it and without; the delay of a revocation.

`python -m benchmarks.replicas` starts a Valkey server; `--store URL` names another one. All servers are in
one process; each figure is the median of the rounds, and the ratio is of medians of the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
from benchmarks.reporting import say, surroundings
from tests.support.valkey import valkey_process

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.grants import GrantLedger
from mcp_toolset.shared import SharedState

Work = Callable[[], Awaitable[Any]]


@tool(read_only=True)
def read_invoice(number: int) -> str:
    """Read an invoice."""
    return f"invoice {number}"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def serving(url: str | None) -> AsyncIterator[ToolsetServer]:
    shared = None if url is None else SharedState(url)
    async with ToolsetServer(
        Toolset(add, Toolset(read_invoice).deferred()), shared=shared, keep=False
    ) as server:
        yield server


async def granted(server: ToolsetServer) -> str:
    resolved = await server.call_tool("resolve_tools", {"ids": ["read_invoice"]})
    return resolved.structured["tools"][0]["grant"]


async def microseconds(work: Work, times: int) -> float:
    spent = list[float]()
    for _ in range(times):
        began = time.perf_counter()
        await work()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent) * 1e6


async def works(server: ToolsetServer) -> dict[str, Work]:
    grant = await granted(server)
    called = {"grant": grant, "arguments": {"number": 7}}
    query = {"query": "read an invoice"}
    return {
        "a call": lambda: server.call_tool("add", {"a": 1, "b": 2}),
        "a call by grant, warm": lambda: server.call_tool("call_tool", called),
        "a search": lambda: server.call_tool("search_tools", query),
        "a grant": lambda: granted(server),
    }


async def cold(url: str, times: int) -> float:
    """A call by a grant that this replica does not know yet."""
    spent = list[float]()
    async with serving(url) as one, serving(url) as other:
        for _ in range(times):
            called = {"grant": await granted(one), "arguments": {"number": 7}}
            began = time.perf_counter()
            result = await other.call_tool("call_tool", called)
            spent.append(time.perf_counter() - began)
            assert result.text == "invoice 7"
    return statistics.median(spent) * 1e6


async def revocations(url: str, times: int) -> list[float]:
    """Milliseconds from a revocation at one replica until it is heard at the other."""
    spent = list[float]()
    async with AsyncExitStack() as stack:
        states = [SharedState(url), SharedState(url)]
        for state in states:
            await stack.enter_async_context(state.running())
            hears = anyio.Event()
            state.topics.on_change.add(lambda current, hears=hears: hears.set() if current else None)
            if not state.topics.is_current:
                await hears.wait()
        here, there = GrantLedger(states[0].grants()), GrantLedger(states[1].grants())
        for number in range(times):
            heard = anyio.Event()
            stop = there.on_revoke(heard.set)
            began = time.perf_counter()
            await here.revoke_async(grant=f"no such grant {number}")
            with anyio.fail_after(10):
                await heard.wait()
            spent.append((time.perf_counter() - began) * 1000)
            stop()
    return spent


async def measured(url: str, rounds: int, times: int) -> dict[str, Any]:
    alone, together = dict[str, list[float]](), dict[str, list[float]]()
    async with serving(None) as plain, serving(url) as shared:
        sides = ((alone, await works(plain)), (together, await works(shared)))
        for number in range(rounds):
            say("replicas", f"round {number + 1} of {rounds}")
            for found, side in sides if number % 2 else sides[::-1]:
                for name, work in side.items():
                    found.setdefault(name, []).append(await microseconds(work, times))
    heard = sorted(await revocations(url, 1000))
    table = {
        name: {
            "alone_us": round(statistics.median(alone[name]), 1),
            "shared_us": round(statistics.median(together[name]), 1),
            "ratio": round(statistics.median(together[name]) / statistics.median(alone[name]), 3),
        }
        for name in alone
    }
    return {
        "works": table,
        "cold_call_us": round(await cold(url, 300), 1),
        "revocation_heard_ms": {
            "p50": round(heard[len(heard) // 2], 3),
            "p99": round(heard[int(len(heard) * 0.99)], 3),
            "most": round(heard[-1], 3),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="the URL of a store; a Valkey server of its own unless given")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--times", type=int, default=300)
    options = parser.parse_args()
    finished = surroundings("replicas", vars(options))
    if options.store:
        found = anyio.run(measured, options.store, options.rounds, options.times)
    else:
        with valkey_process() as store:
            found = anyio.run(measured, store.url, options.rounds, options.times)
    json.dump({**finished(), **found}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
