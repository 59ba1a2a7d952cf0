"""The stores that the tests of the contract run over."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from mcp_toolset.shared import Store
from mcp_toolset.stores.sql import TABLE, Statement
from mcp_toolset.stores.store import store_at


class Stores(Protocol):
    """Makes stores in one place, to be entered: each stands for a process."""

    def __call__(self, *, clock: Callable[[], float] = time.time) -> Store: ...


@asynccontextmanager
async def memory(folder: Path) -> AsyncGenerator[Stores]:
    clocks: list[Callable[[], float]] = [time.time]
    store = store_at(None, "the entries", clock=lambda: clocks[0]())

    def made(*, clock: Callable[[], float] = time.time) -> Store:
        clocks[0] = clock
        return store

    yield made


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncGenerator[Stores]:
    yield lambda *, clock=time.time: store_at(folder / "e.sqlite3", "the entries", owned=True, clock=clock)


@asynccontextmanager
async def direct(folder: Path) -> AsyncGenerator[Stores]:
    from mcp_toolset.stores.sqlite import DirectFile

    made: list[DirectFile] = []

    def make(*, clock: Callable[[], float] = time.time) -> Store:
        made.append(DirectFile(folder / "e.sqlite3", "the entries", clock))
        return made[-1]

    yield make
    for each in made:
        each.close()


@asynccontextmanager
async def redis(folder: Path) -> AsyncGenerator[Stores]:
    from tests.support.valkey import valkey_process

    with valkey_process() as server:
        yield lambda *, clock=time.time: store_at(server.url, "the entries", owned=True)


@asynccontextmanager
async def postgres(folder: Path) -> AsyncGenerator[Stores]:
    from mcp_toolset.stores.postgres import PostgresStore

    where = os.environ[POSTGRES]
    async with PostgresStore(where, "the entries") as store, store._asked():
        await store._done(Statement(f"DELETE FROM {TABLE}", ()))
    yield lambda *, clock=time.time: store_at(where, "the entries", clock=clock)


@asynccontextmanager
async def example(folder: Path) -> AsyncGenerator[Stores]:
    """The one that docs/replicas.md shows."""
    spec = spec_from_file_location("database", Path(__file__).parents[2] / "examples/stores/database.py")
    assert spec is not None and spec.loader is not None
    database: Any = module_from_spec(spec)
    spec.loader.exec_module(database)
    store = database.Database()

    def made(*, clock: Callable[[], float] = time.time) -> Store:
        database.time = SimpleNamespace(time=clock)
        return store

    yield made


Backend = Callable[[Path], AbstractAsyncContextManager[Stores]]

POSTGRES = "MCP_TOOLSET_TEST_POSTGRES"
"""Names a PostgreSQL server; see scripts/journal_postgres."""

BACKENDS: Mapping[str, Backend] = {
    "memory": memory,
    "sqlite": sqlite,
    "direct": direct,
    "redis": redis,
    "example": example,
    **({"postgres": postgres} if POSTGRES in os.environ else {}),
}
