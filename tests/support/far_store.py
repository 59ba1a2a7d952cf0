"""Stores in another process, over TCP, for tests: `python -m tests.support.far_store` serves them.

It prints its port, and ends when its input does. A store can be told to be slow or to answer as it was once.
"""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from mcp_toolset.catalog.grants.store import GrantFilter, GrantRecord, MemoryGrantStore, ToolGrant
from mcp_toolset.stores.store import MemoryStore

if TYPE_CHECKING:
    from mcp_toolset.extensions.limits.rate import TokensTaken

ROOT = Path(__file__).parents[2]


def _shelves(grants: MemoryGrantStore) -> dict[str, Any]:
    store = grants._grants._store
    assert isinstance(store, MemoryStore)
    return store._shelves


class Shelf:
    """What one store keeps: grants, texts, and when buckets of tokens were filled."""

    def __init__(self) -> None:
        self.grants = MemoryGrantStore()
        self.texts: dict[str, Any] = {}
        self.tokens: dict[str, int] = {}
        self.latency = 0.0
        self.old: MemoryGrantStore | None = None

    def save(self, records: Sequence[GrantRecord], definitions: Mapping[str, Any]) -> list[GrantRecord]:
        return self.grants.add(records, definitions)

    def find(self, owner: str, key: str, name: str) -> ToolGrant | None:
        seen = self.old or self.grants
        return seen.get(key) or (seen.latest(owner, name) if owner else None)

    def held(self, owner: str) -> list[ToolGrant]:
        return (self.old or self.grants).held(owner)

    def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        return self.grants.recorded(owner, replay, id)

    def records(self, owner: str | None) -> list[GrantRecord]:
        return self.grants.records(owner)

    def definition(self, digest: str) -> Any:
        return self.grants.definition(digest)

    def take(self, key: str) -> bool:
        grant = self.grants.get(key)
        return grant is not None and not grant.revoked and self.grants.take(key)

    def give_back(self, key: str) -> None:
        self.grants.give_back(key)

    def revoke(self, which: GrantFilter) -> int:
        return self.grants.revoke(which)

    def freeze(self) -> None:
        """Look up grants as they are now, whatever is written from now on."""
        kept = MemoryGrantStore()
        shelves = copy.deepcopy(_shelves(self.grants))
        _shelves(kept).update(shelves)
        self.old = kept

    def be_slow(self, seconds: float) -> None:
        self.latency = seconds

    def load_text(self, key: str) -> Any:
        return self.texts.get(key)

    def keys(self) -> list[str]:
        return list(self.texts)

    def put_text(self, key: str, text: Any) -> None:
        self.texts[key] = text

    def take_tokens(self, key: str, calls: int, wanted: int) -> int:
        left = self.tokens.setdefault(key, calls)
        taken = min(left, wanted)
        self.tokens[key] = left - taken
        return taken


async def serve() -> None:
    shelves: dict[str, Shelf] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            size = int.from_bytes(await reader.readexactly(4))
            space, method, arguments = pickle.loads(await reader.readexactly(size))
            shelf = shelves.setdefault(space, Shelf())
            await anyio.sleep(shelf.latency)
            body = pickle.dumps(getattr(shelf, method)(*arguments))
            writer.write(len(body).to_bytes(4) + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


class FarStore:
    """A client of such a store: grants, and what else the tests keep far away. It keeps what it asked for."""

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

    async def save(self, records: Sequence[GrantRecord], definitions: Mapping[str, Any]) -> list[GrantRecord]:
        return await self.ask("save", list(records), {key: dict(one) for key, one in definitions.items()})

    async def find(self, owner: str, key: str, name: str) -> ToolGrant | None:
        return await self.ask("find", owner, key, name)

    async def held(self, owner: str) -> list[ToolGrant]:
        return await self.ask("held", owner)

    async def recorded(self, owner: str, replay: str, id: str) -> GrantRecord | None:
        return await self.ask("recorded", owner, replay, id)

    async def records(self, owner: str | None = None) -> list[GrantRecord]:
        return await self.ask("records", owner)

    async def definition(self, digest: str) -> Mapping[str, Any] | None:
        return await self.ask("definition", digest)

    async def take(self, key: str) -> bool:
        return await self.ask("take", key)

    async def give_back(self, key: str) -> None:
        await self.ask("give_back", key)

    async def revoke(self, which: GrantFilter) -> int:
        return await self.ask("revoke", which)


class FarLimits(FarStore):
    """Token buckets there, which never fill again."""

    async def take(  # type: ignore[override]
        self, key: str, *, calls: int, per_seconds: float, wanted: int
    ) -> TokensTaken:
        from mcp_toolset.extensions.limits.rate import TokensTaken

        return TokensTaken(await self.ask("take_tokens", key, calls, wanted), wait=7.0)


class FarCache(FarStore):
    """Bytes there, by key."""

    async def load(self, key: str) -> bytes | None:
        return await self.ask("load_text", key)

    async def save(self, key: str, value: bytes, *, seconds: float) -> None:  # type: ignore[override]
        await self.ask("put_text", key, value)


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
