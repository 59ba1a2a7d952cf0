"""The cost of a journal: time of a call without a journal and with one, in turns in one run.

    python benchmarks/journal.py [--rounds 20] [--calls 200] [--redis | --store URL] [--json FILE]

Calls of a local tool. In process: without a journal; with one, without a key, under a new key each, and
repeated under a known key; and 16 at a time under new keys, where calls share a sync. By clients of the SDK
in memory, in both eras: without a journal, and with one under a new key each. The journal is a file in this
folder, a Valkey server that this program starts (`--redis`), or a store (`--store`). The last row is a write
of 8,192 bytes to a file in this folder and a sync: no journal can be faster. A ratio divides medians of one
round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
from mcp import Client
from measuring import markdown
from reporting import surroundings

from mcp_toolset import ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.tools.result import REPLAY_META_KEY

TOGETHER = 16
SYNC = "a sync of this disk"
ERAS: dict[str, Any] = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}

Call = Callable[[], Awaitable[object]]
Kinds = dict[str, tuple[Call, str]]
"""By name: a call, and the name of the one that it is compared with."""


class Keyed(ToolContext):
    def __init__(self, key: str | None) -> None:
        self._meta = {} if key is None else {REPLAY_META_KEY: key}

    @property
    def meta(self) -> dict[str, Any]:
        return self._meta


@tool(destructive=True)
async def charge(amount: int) -> str:
    """Charge an amount."""
    return f"charged {amount}"


async def median(call: Call, calls: int) -> float:
    """Microseconds of one call."""
    taken: list[float] = []
    for _ in range(calls):
        began = time.perf_counter()
        await call()
        taken.append((time.perf_counter() - began) * 1_000_000)
    return statistics.median(taken)


def in_process(off: ToolsetServer, on: ToolsetServer) -> Kinds:
    async def once(server: ToolsetServer, key: str | None) -> None:
        await server.call_tool("charge", {"amount": 5}, context=Keyed(key))

    async def together() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(TOGETHER):
                group.start_soon(once, on, str(uuid4()))

    bare, known = "in process, no journal", str(uuid4())
    return {
        bare: (lambda: once(off, None), bare),
        "in process, no key": (lambda: once(on, None), bare),
        "in process, a new key": (lambda: once(on, str(uuid4())), bare),
        "in process, a known key": (lambda: once(on, known), bare),
        f"in process, {TOGETHER} new keys at a time": (together, bare),
    }


def by_client(era: str, off: Client, on: Client) -> Kinds:
    async def call(client: Client) -> None:
        meta: Any = {REPLAY_META_KEY: str(uuid4())}
        await client.call_tool("charge", {"amount": 5}, meta=meta)

    bare = f"client of {era}, no journal"
    return {bare: (lambda: call(off), bare), f"client of {era}, a new key": (lambda: call(on), bare)}


def syncing(file: int) -> Kinds:
    async def sync() -> None:
        os.pwrite(file, b"x" * 8192, 0)
        os.fsync(file)

    return {SYNC: (sync, SYNC)}


async def measured(
    rounds: int, calls: int, place: Path | str, file: int
) -> tuple[dict[str, list[float]], Kinds]:
    found: dict[str, list[float]] = {}
    async with AsyncExitStack() as stack:
        off = await stack.enter_async_context(ToolsetServer(Toolset(charge)))
        on = await stack.enter_async_context(ToolsetServer(Toolset(charge), journal=place))
        kinds = in_process(off, on)
        for era, mode in ERAS.items():
            clients = [await stack.enter_async_context(Client(one.lowlevel, mode=mode)) for one in (off, on)]
            kinds |= by_client(era, *clients)
        kinds |= syncing(file)
        for _ in range(rounds):
            for kind, (call, _) in kinds.items():
                each = TOGETHER if str(TOGETHER) in kind.split() else 1
                found.setdefault(kind, []).append(await median(call, calls // each) / each)
    return found, kinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--json", type=Path)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--store", metavar="URL", help="a store: postgresql:// or redis://")
    where.add_argument("--redis", action="store_true", help="start a Valkey server that syncs each write")
    options = parser.parse_args()
    shown = {key: str(value) for key, value in vars(options).items() if key != "store"}
    finished = surroundings("journal", shown)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=".")))
        place: Path | str = options.store or folder / "journal.sqlite3"
        if options.redis:
            sys.path.insert(0, str(Path(__file__).parents[1]))
            from tests.support.valkey import valkey_process

            place = stack.enter_context(valkey_process("--appendonly", "yes", "--appendfsync", "always")).url
        file = stack.enter_context((folder / "synced").open("wb")).fileno()
        found, kinds = asyncio.run(measured(options.rounds, options.calls, place, file))
    rows: list[list[str]] = []
    for kind, each in found.items():
        pairs = list(zip(each, found[kinds[kind][1]], strict=True))
        added, ratio = statistics.median(a - b for a, b in pairs), statistics.median(a / b for a, b in pairs)
        rows.append([kind, f"{statistics.median(each):.0f}", f"{added:.0f}", f"{ratio:.1f}"])
    print(markdown(["calls", "µs each (p50)", "added, µs", "× without"], rows))
    if options.json:
        options.json.write_text(json.dumps({**finished(), "microseconds": found}))


if __name__ == "__main__":
    main()
