"""Clients that make a call again under its key when they get no answer, while replicas are killed.

The three replicas of `chaos.py` record calls in the store that they share. Each client calls until it is
told what has become of its call. Some calls are repeated though they were answered, and some are made twice
at the same time.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio
from mcp import Client
from tests.replicas.chaos import KINDS, connected, leaf
from tests.replicas.three import killing, three

ANSWERED: Final = ("ran", "replayed")
BY_NEWS: Final = ("ran", "replayed", "done", "unknown", "running", "refused")
TRIES: Final = 10


@dataclass
class Told:
    """What clients were told, by key.

    Attributes:
        ends: How each call stood at its last answer.
        counts: How often something was seen.
        faults: What must not happen.
        kills: When replicas were killed.
    """

    ends: dict[str, str] = field(default_factory=dict[str, str])
    counts: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    kills: list[float] = field(default_factory=list[float])

    def count(self, kind: str, what: str) -> None:
        self.counts[f"{kind}: {what}"] += 1


class Caller:
    """One client; it opens anew when its connection ends, and goes on with the call that it was about."""

    def __init__(self, kind: str, number: int, base: str, told: Told, until: anyio.Event) -> None:
        self._kind, self._base, self._told, self._until = kind, base, told, until
        self._random = random.Random(f"{kind} {number}")
        self._key, self._seconds, self._tries = "", 0.0, 0

    async def run(self) -> None:
        self._next()
        while not self._until.is_set():
            try:
                async with connected(self._kind, self._base, lambda: None) as client:
                    while not self._until.is_set():
                        await self._once(client)
            except anyio.get_cancelled_exc_class():
                raise
            # Whatever ends a connection, a user's client connects again, and makes the call again.
            except Exception as fault:
                self._lost(leaf(fault))
                await anyio.sleep(0.2)

    def _next(self) -> None:
        self._key, self._seconds, self._tries = uuid4().hex, self._random.uniform(0, 0.2), 0

    async def _once(self, client: Client) -> None:
        """Make the call; if it was answered, perhaps make it once more."""
        chance = self._random.random()
        self._tries += 1
        states: list[str] = []

        async def call() -> None:
            states.append(await self._state(client))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            if chance < 0.1 and self._tries == 1:
                group.start_soon(call)
                self._told.count(self._kind, "made twice at the same time")
        state = min(states, key=BY_NEWS.index)
        if self._tries > 1:
            self._told.count(self._kind, f"made again after no answer: {state}")
        self._told.ends[self._key] = state
        if state in ANSWERED and chance > 0.8:
            again = await self._state(client)
            self._told.count(self._kind, f"repeated after an answer: {again}")
            if again not in ("replayed", "refused"):
                self._told.faults.append(f"{self._key} was {state}, then {again}")
        if state in ("running", "refused"):
            await anyio.sleep(0.5)
        else:
            self._next()

    async def _state(self, client: Client) -> str:
        arguments = {"id": self._key, "seconds": self._seconds}
        meta: Any = {"mcp-toolset/replay-key": self._key}
        result = await client.call_tool("append", arguments, meta=meta)
        noted: Any = (result.meta or {}).get("mcp-toolset/journal", {})
        state = noted.get("state", "refused" if result.is_error else "ran")
        text = getattr(result.content[0], "text", "")
        if state == "refused":
            self._told.counts[f"refused: {text[:90]}"] += 1
        elif result.is_error is (state in ANSWERED) or (state in ANSWERED and text != self._key):
            self._told.faults.append(f"{self._key}: {state}, {text[:200]}")
        return state

    def _lost(self, fault: BaseException) -> None:
        self._told.count(self._kind, "answers lost")
        self._told.counts[f"{type(fault).__name__} {str(fault)[:70]}"] += 1
        if self._tries >= TRIES:
            self._told.faults.append(f"{self._key}: no answer in {TRIES} tries, {fault!r}")
            self._next()


async def main(arguments: argparse.Namespace) -> int:
    os.environ["REPLICAS_JOURNAL"] = "1"
    folder = Path(tempfile.mkdtemp(prefix="retries"))
    effects, told, until = folder / "effects", Told(), anyio.Event()
    async with three(folder, effects) as (base, replicas):
        async with anyio.create_task_group() as kills:
            kills.start_soon(killing, replicas, arguments.every, told.kills)
            async with anyio.create_task_group() as group:
                for kind in KINDS:
                    for number in range(arguments.clients):
                        group.start_soon(Caller(kind, number, base, told, until).run)
                await anyio.sleep(arguments.seconds)
                until.set()
            kills.cancel_scope.cancel()
    return report(told, effects, folder)


def report(told: Told, effects: Path, folder: Path) -> int:
    """Print what was seen, and return the number of things that must not happen."""
    ran, ends = Counter(effects.read_text().split()), Counter(told.ends.values())
    twice = [key for key, times in ran.items() if times > 1]
    false = [key for key, state in told.ends.items() if state in ANSWERED and not ran[key]]
    happened = sum(1 for key, state in told.ends.items() if state == "unknown" and ran[key])
    print(f"{len(told.kills)} kills; {len(told.ends)} calls; {len(twice)} executed twice")
    print(f"{len(false)} answered and not executed; {len(told.faults)} other faults")
    print(f"outcomes: {dict(ends)}; of the unknown ones, {happened} had happened")
    for name, times in sorted(told.counts.items()):
        print(f"  {name}: {times}")
    print(*told.faults[:10], f"logs: {folder}", sep="\n")
    return min(len(twice) + len(false) + len(told.faults), 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--every", type=float, default=5, help="seconds between two kills")
    parser.add_argument("--clients", type=int, default=4, help="clients of each kind")
    raise SystemExit(anyio.run(main, parser.parse_args()))
