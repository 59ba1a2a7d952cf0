"""Kills bridges in the middle of recorded calls, and repeats each call: no effect may happen twice.

A server with one tool runs in a process; the tool waits, appends a line to a file, and waits. A worker is a
bridge that mounts this server over HTTP and calls the tool with a new key, again and again, until it is
killed with SIGKILL at a random moment. Then another bridge, in a process that lives on, repeats each call of
the worker under its key. Everything is forked from one process that has loaded the package.

The journal is a file, or a Valkey server that this program starts (`--redis`), or a store that is named
(`--store`). Stores live on; that a bridge is dead is known after some seconds with Redis and Valkey.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from mcp_toolset import RemoteToolset, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.journal import JournalGuard
from mcp_toolset.tools.result import REPLAY_META_KEY
from mcp_toolset.transports.http.app import bound_socket, run_app

BOUND: Final = 600
"""Seconds for the repeats of the calls of one worker."""

LONGEST: Final = 0.03
"""Seconds after its first call in which a worker is killed."""


class Keyed(ToolContext):
    """A caller with a key."""

    def __init__(self, key: str) -> None:
        self._meta = {REPLAY_META_KEY: key}

    @property
    def meta(self) -> dict[str, Any]:
        return self._meta


def charging(effects: Path) -> Toolset:
    """The server with the effect."""

    @tool(destructive=True)
    async def charge(key: str) -> str:
        """Append a line, at some moment of the call."""
        await anyio.sleep(random.uniform(0, 0.003))
        note(effects, key)
        await anyio.sleep(random.uniform(0, 0.003))
        return f"charged {key}"

    return Toolset(charge)


def note(path: Path, line: str) -> None:
    file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)


async def upstream(effects: Path, write: int) -> None:
    server = ToolsetServer(charging(effects))
    with bound_socket("127.0.0.1", 0) as port:
        os.write(write, f"{port.getsockname()[1]}\n".encode())
        await run_app(server.http_app(), port)


def bridge(port: int, journal: Path | str) -> ToolsetServer:
    mounted = RemoteToolset(f"http://127.0.0.1:{port}/mcp", name="till")
    return ToolsetServer(mounted, journal=journal)


async def call(server: ToolsetServer, key: str) -> tuple[str, str]:
    """The answer to a call: its text, and its state in the journal."""
    result = await server.call_tool("charge", {"key": key}, context=Keyed(key))
    return result.text, ((result.wire.get("_meta") or {}).get("mcp-toolset/journal") or {}).get(
        "state", "ran"
    )


async def worker(port: int, journal: Path | str, name: str, write: int) -> None:
    """Call until killed; the number of each call is told before it is made."""
    async with bridge(port, journal) as server:
        number = 0
        while True:
            os.write(write, b".")
            await call(server, f"{name}.{number}")
            number += 1


async def repeater(port: int, journal: Path | str, read: int, told: Path) -> None:
    """Repeat the calls of each worker whose name and count of calls are read, and note the answers."""
    async with bridge(port, journal) as server, anyio.create_task_group() as group:

        async def repeat(name: str, calls: int) -> None:
            for number in range(calls):
                with anyio.fail_after(BOUND):
                    answer = await call(server, f"{name}.{number}")
                note(told, json.dumps([f"{name}.{number}", *answer, number == calls - 1]))

        lines = os.fdopen(read)
        while line := await anyio.to_thread.run_sync(lines.readline):
            name, calls = line.split()
            group.start_soon(repeat, name, int(calls))


def forked(work: Callable[[], Awaitable[object]], without: int | None = None) -> int:
    """A process that does one thing, without a file that it would keep open."""
    if pid := os.fork():
        return pid
    if without is not None:
        os.close(without)
    code = 1
    try:
        random.seed(os.urandom(8))

        async def run() -> None:
            await work()

        anyio.run(run)
        code = 0
    finally:
        os._exit(code)


def killed(port: int, journal: Path | str, name: str, chance: random.Random) -> int:
    """The number of calls that a worker had begun when it was killed."""
    read, write = os.pipe()
    pid = forked(lambda: worker(port, journal, name, write))
    os.close(write)
    began = os.read(read, 1)
    time.sleep(chance.uniform(0, LONGEST))  # noqa: TID251
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while more := os.read(read, 4096):
        began += more
    os.close(read)
    return len(began)


def swept(kills: int, seed: int, folder: Path, journal: Path | str) -> int:
    """Kill so many workers; the number of faults."""
    effects, told = folder / "effects", folder / "told"
    chance, tally = random.Random(seed), Tally()
    read, write = os.pipe()
    server = forked(lambda: upstream(effects, write))
    port = int(os.fdopen(os.dup(read)).readline())
    asked, ask = os.pipe()
    other = forked(lambda: repeater(port, journal, asked, told), without=ask)
    began = 0
    try:
        for number in range(kills):
            calls = killed(port, journal, str(number), chance)
            began += calls
            os.write(ask, f"{number} {calls}\n".encode())
            if number % 100 == 99:
                print(f"{number + 1} kills", flush=True)
        os.close(ask)
        os.waitpid(other, 0)
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
    for line in told.read_text().splitlines():
        key, text, state, cut_off = json.loads(line)
        tally.take(key, text, state, cut_off=cut_off)
    if len(tally.known) != began:
        tally.faults.append(f"{began - len(tally.known)} calls were not answered")
    return tally.report(kills, Counter(effects.read_text().split()))


@dataclass
class Tally:
    """The answers to the repeats.

    Attributes:
        told: The number of times that each answer was given.
        known: By the key of each call, whether its outcome was known.
        faults: Answers that must not be.
    """

    told: Counter[str] = field(default_factory=Counter[str])
    known: dict[str, bool] = field(default_factory=dict[str, bool])
    faults: list[str] = field(default_factory=list[str])

    def take(self, key: str, text: str, state: str, *, cut_off: bool) -> None:
        self.told[f"{'cut off' if cut_off else 'ended'}, then: {state}"] += 1
        known = self.known[key] = state in ("ran", "replayed")
        if (known and text != f"charged {key}") or not (known or (cut_off and state == "unknown")):
            self.faults.append(f"{key}: {state}, {text}")

    def report(self, kills: int, effects: Counter[str]) -> int:
        for answer, times in sorted(self.told.items()):
            print(f"{times:7} {answer}")
        unknown = [key for key, known in self.known.items() if not known]
        twice = [key for key, times in effects.items() if times > 1]
        lost = [key for key, known in self.known.items() if known and not effects[key]]
        print(f"{sum(1 for key in unknown if effects[key]):7} of those with an unknown outcome had happened")
        print(f"{kills} kills, {len(self.known)} calls")
        print(f"{len(twice)} effects twice, {len(lost)} results without an effect")
        print(f"{len(self.known) - len(unknown)} outcomes known, {len(unknown)} said unknown", end="")
        print(f", {len(self.faults)} other answers", *self.faults[:10], sep="\n  ")
        return len(twice) + len(lost) + len(self.faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--store", metavar="URL", help="a store: postgresql:// or redis://")
    place.add_argument("--redis", action="store_true", help="start a Valkey server for the journal")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        journal: Path | str = options.store or folder / "journal.sqlite3"
        if options.redis:
            from tests.support.valkey import valkey_process

            journal = stack.enter_context(valkey_process()).url
        JournalGuard(journal)
        print(f"{urlsplit(str(journal)).scheme or 'sqlite'}, seed {options.seed}", flush=True)
        return 1 if swept(options.kills, options.seed, folder, journal) else 0


if __name__ == "__main__":
    sys.exit(main())
