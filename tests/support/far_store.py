"""Stores in another process, over TCP, for tests: `python -m tests.support.far_store` serves them.

It prints its port, and ends when its input does. A store can be told to be slow or to answer as it was once.
"""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from mcp_toolset.shared import Entry, Put, Store
from mcp_toolset.stores.store import MemoryStore, Place

ROOT = Path(__file__).parents[2]


class Shelf(MemoryStore):
    """What one store keeps: entries, texts, and when buckets of tokens were filled."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, Any] = {}
        self.tokens_left: dict[str, int] = {}
        self.latency = 0.0
        self.old: MemoryStore | None = None

    async def get(self, *places: Place) -> Sequence[Entry | None]:
        return await (super().get(*places) if self.old is None else self.old.get(*places))

    async def freeze(self, frozen: bool) -> None:
        """Look up entries as they are now, whatever is written from now on."""
        self.old = MemoryStore() if frozen else None
        if self.old is not None:
            self.old._shelves.update(copy.deepcopy(self._shelves))

    async def places(self) -> list[Place]:
        return [(shelf, name) for shelf, kept in self._shelves.items() for name in kept.rows]

    async def be_slow(self, seconds: float) -> None:
        self.latency = seconds

    async def load_text(self, key: str) -> Any:
        return self.texts.get(key)

    async def put_text(self, key: str, text: Any) -> None:
        self.texts[key] = text

    async def take_tokens(self, key: str, calls: int, wanted: int) -> int:
        left = self.tokens_left.setdefault(key, calls)
        taken = min(left, wanted)
        self.tokens_left[key] = left - taken
        return taken


async def serve() -> None:
    shelves: dict[str, Shelf] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            size = int.from_bytes(await reader.readexactly(4))
            space, method, arguments = pickle.loads(await reader.readexactly(size))
            shelf = shelves.setdefault(space, Shelf())
            await anyio.sleep(shelf.latency)
            body = pickle.dumps(await getattr(shelf, method)(*arguments))
            writer.write(len(body).to_bytes(4) + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


class FarStore(Store):
    """A client of such a store. It keeps what it asked for."""

    def __init__(self, port: int, space: str) -> None:
        self.name = f"grants of {space}"
        self.port = port
        self.space = space
        self.asked: list[str] = []

    async def ask(self, method: str, *arguments: Any) -> Any:
        self.asked.append(method)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            body = pickle.dumps((self.space, method, arguments))
            writer.write(len(body).to_bytes(4) + body)
            size = int.from_bytes(await reader.readexactly(4))
            return pickle.loads(await reader.readexactly(size))
        finally:
            writer.close()

    async def get(self, *places: Place) -> Sequence[Entry | None]:
        return await self.ask("get", *places)

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        return await self.ask("write", *puts)

    async def names(self, shelf: str) -> Sequence[str]:
        return await self.ask("names", shelf)

    async def lives(self, owner: str) -> bool:
        return await self.ask("lives", owner)


class FarLimits(FarStore):
    """Token buckets there, which never fill again."""

    async def tokens(
        self, shelf: str, name: str, *, calls: int, per_seconds: float, wanted: int
    ) -> tuple[int, float]:
        return await self.ask("take_tokens", name, calls, wanted), 7.0


@contextmanager
def far_stores() -> Generator[int]:
    """The port of a process with stores."""
    command = [sys.executable, "-m", "tests.support.far_store"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(30)


if __name__ == "__main__":
    asyncio.run(serve())
