"""`PostgresStore`: entries in one table of PostgreSQL, for processes of several machines.

Each process holds an advisory lock of its session. The database ends it with the connection, however that is.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from importlib import import_module
from secrets import randbits
from types import TracebackType
from typing import Any, Final, Self

import anyio

from mcp_toolset.errors import ConfigError, StoreError
from mcp_toolset.stores import sql
from mcp_toolset.stores.store import Entry, Place, Put, Store

_COLUMNS: Final = ("shelf", "name", "value", "tag", "at", "until")
_MAKING: Final = 0x4D54736A
_LIVES: Final = """SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((classid::bigint << 32) | objid::bigint) = ?"""


class PostgresStore(Store):
    """Entries in the table `mcp_toolset_entries`, over one connection. It runs on asyncio."""

    def __init__(self, conninfo: str, name: str, clock: Callable[[], float] = time.time) -> None:
        """Use a database; the table is made when the store is entered, if it is not there.

        Args:
            conninfo: The address: `postgresql://…`, or words as libpq has them.
            name: Its name in errors.
            clock: Seconds since the epoch.

        Raises:
            ConfigError: the extra `postgres` is not installed.
        """
        try:
            self._driver: Any = import_module("psycopg")
        except ImportError:
            raise ConfigError(f"{name} needs the extra: pip install 'mcp-toolset[postgres]'") from None
        self.name = name
        self.own = str(randbits(62))
        self._conninfo = conninfo
        self._now = clock
        self._turn = anyio.Lock()
        self._connection: Any = None
        self._users = 0
        self._written = 0

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            StoreError: the database cannot be reached or used.
        """
        self._users += 1
        try:
            async with self._asked():
                pass
        except BaseException:
            self._users -= 1
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection, once the last user has left."""
        self._users -= 1
        if self._users == 0:
            if self._connection is not None:
                # Others see that it has ended before the server has noticed that the connection did.
                with suppress(StoreError):
                    async with self._asked() as connection:
                        await connection.execute("SELECT pg_advisory_unlock_all()")
            await self._close()

    async def get(self, *places: Place) -> Sequence[Entry | None]:
        async with self._asked():
            return await self._entries(places)

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        now = self._now()
        async with self._asked() as connection:
            self._written += 1
            if self._written % sql.FORGET_EVERY == 1:
                await self._done(sql.Statement(sql.FORGET, (now,)))
            # In one order, so that no two processes wait for each other.
            ordered = sorted(puts, key=lambda put: (put.shelf, put.name))
            is_one = len(puts) == 1 and puts[0].max_entries is None
            async with nullcontext() if is_one else connection.transaction() as whole:
                for put in ordered:
                    statement = sql.changing(put, now)
                    if not (await self._done(statement)).rowcount and statement.must:
                        if whole is not None:
                            raise self._driver.Rollback(whole)
                        break
                    if put.max_entries is not None:
                        await self._done(sql.trimming(put))
                else:
                    return None
            return await self._entries([(put.shelf, put.name) for put in puts])

    async def names(self, shelf: str) -> Sequence[str]:
        async with self._asked():
            return [name for (name,) in await self._rows(sql.naming(shelf, self._now()))]

    async def lives(self, owner: str) -> bool:
        async with self._asked():
            return owner == self.own or bool(await self._rows(sql.Statement(_LIVES, (int(owner),))))

    async def _entries(self, places: Sequence[Place]) -> list[Entry | None]:
        now = self._now()
        found = [await self._rows(sql.reading(place, now)) for place in places]
        return [Entry(bytes(rows[0][0]), rows[0][1]) if rows else None for rows in found]

    async def _rows(self, statement: sql.Statement) -> list[tuple[Any, ...]]:
        return await (await self._done(statement)).fetchall()

    async def _done(self, statement: sql.Statement) -> Any:
        return await self._connection.execute(statement.text.replace("?", "%s"), statement.values)

    @asynccontextmanager
    async def _asked(self) -> AsyncGenerator[Any]:
        async with self._turn:
            try:
                yield self._connection or await self._connected()
            except self._driver.Error as fault:
                await self._close()
                raise StoreError(f"{self.name} cannot be read or written: {fault}") from fault
            except anyio.get_cancelled_exc_class():
                # The answer to a statement that was given up must not be taken for that to the next one.
                with anyio.CancelScope(shield=True):
                    await self._close()
                raise

    async def _connected(self) -> Any:
        try:
            connection = await self._driver.AsyncConnection.connect(self._conninfo, autocommit=True)
        except self._driver.ProgrammingError:
            # Its text quotes a part of the address, such as the password.
            mend = "write postgresql://USER:PASSWORD@HOST/DATABASE, with %25 for '%' in the password"
            raise StoreError(f"the address of {self.name} cannot be read; {mend}") from None
        self._connection = connection
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            for statement in sql.TABLES.split(";\n"):
                await connection.execute(statement)
        found = await connection.execute(f"SELECT * FROM {sql.TABLE} LIMIT 0")
        if tuple(column.name for column in found.description) != _COLUMNS:
            raise StoreError(f"{self.name}: its table was made by another version of mcp-toolset; rename it")
        await connection.execute("SELECT pg_advisory_lock_shared(%s)", (int(self.own),))
        return connection

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
