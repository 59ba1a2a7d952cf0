"""The journals that the tests of their protocol run over."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_toolset.extensions.journal.journal_store import JournalStore
from mcp_toolset.extensions.journal.sqlite_journal import SqliteJournal


async def _by_itself() -> None:
    return None


@dataclass
class Stores:
    """Makes journals in one place.

    Attributes:
        made: A journal, to be entered.
        expire: Lets what has to expire do so, where a server does it by its own clock.
    """

    made: Callable[..., JournalStore]
    expire: Callable[[], Awaitable[None]] = _by_itself


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncGenerator[Stores]:
    def made(**options: Any) -> JournalStore:
        return SqliteJournal(folder / "journal.sqlite3", **options)

    yield Stores(made)


@asynccontextmanager
async def redis(folder: Path) -> AsyncGenerator[Stores]:
    from tests.support.valkey import valkey_process

    from mcp_toolset.extensions.journal.redis_journal import RedisJournal
    from mcp_toolset.shared.connection import StoreConnection

    async with AsyncExitStack() as stack:
        server = stack.enter_context(valkey_process())

        def made(**options: Any) -> JournalStore:
            connection = StoreConnection(server.url, timeout=30)
            stack.push_async_callback(connection.aclose)
            return RedisJournal(connection, **options)

        yield Stores(made)


@asynccontextmanager
async def postgres(folder: Path) -> AsyncGenerator[Stores]:
    from mcp_toolset.extensions.journal.postgres_journal import PostgresJournal

    where = os.environ[POSTGRES]
    async with PostgresJournal(where) as journal:
        await journal._rows("DELETE FROM mcp_toolset_journal RETURNING 1")
    yield Stores(lambda **options: PostgresJournal(where, **options))


Place = Callable[[Path], AbstractAsyncContextManager[Stores]]

POSTGRES = "MCP_TOOLSET_TEST_POSTGRES"
"""Names a PostgreSQL server; see scripts/journal_postgres."""

STORES: Mapping[str, Place] = {
    "sqlite": sqlite,
    "redis": redis,
    **({"postgres": postgres} if POSTGRES in os.environ else {}),
}
