"""`PostgresJournal`: a journal in one table of PostgreSQL, for processes of several machines.

Each process holds an advisory lock of its session. The database ends it with the connection, however that is.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

import anyio

from mcp_toolset.errors import ConfigError, StoreError
from mcp_toolset.extensions.journal.journal_store import (
    DAY,
    LIFETIME,
    Found,
    Intent,
    Outcome,
    Record,
    standing_of,
)

__all__ = ["PostgresJournal"]

_TABLE: Final = """CREATE TABLE IF NOT EXISTS mcp_toolset_journal (
    id text PRIMARY KEY, fingerprint text NOT NULL, who text NOT NULL, session text NOT NULL,
    server text NOT NULL, tool text NOT NULL, arguments text NOT NULL, source text NOT NULL,
    nonce text NOT NULL, attempt integer NOT NULL, state text NOT NULL, owner bigint NOT NULL,
    began double precision NOT NULL, ended double precision NOT NULL DEFAULT 0,
    outcome bytea, note text NOT NULL DEFAULT ''
)"""
_MAKING: Final = 0x4D54736A

_NAMES: Final = "id, fingerprint, who, session, server, tool, arguments, source, nonce"
_LIVES: Final = """EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((classid::bigint << 32) | objid::bigint) = call.owner)"""
_ROW: Final = f"SELECT call.*, {_LIVES} FROM mcp_toolset_journal AS call"

_BEGIN: Final = f"""INSERT INTO mcp_toolset_journal AS call ({_NAMES}, attempt, state, owner, began)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 1, 'begun', %s, %s)
    ON CONFLICT (id) DO UPDATE SET
        ({_NAMES}, attempt, state, owner, began, ended, outcome, note) = (
            excluded.id, excluded.fingerprint, excluded.who, excluded.session, excluded.server,
            excluded.tool, excluded.arguments, excluded.source, excluded.nonce, 1, 'begun',
            excluded.owner, excluded.began, 0, NULL, '')
    WHERE call.began < %s AND NOT (call.state = 'begun' AND {_LIVES}) RETURNING 1"""
_AGAIN: Final = """UPDATE mcp_toolset_journal
    SET attempt = attempt + 1, state = 'begun', nonce = %s, owner = %s, began = %s, ended = 0
    WHERE id = %s AND attempt = %s RETURNING 1"""
_END: Final = """UPDATE mcp_toolset_journal SET state = %s, ended = %s, outcome = %s, note = %s
    WHERE id = %s AND attempt = %s RETURNING 1"""
_RELEASE: Final = "DELETE FROM mcp_toolset_journal WHERE id = %s AND attempt = %s RETURNING 1"
_IDLE: Final = f"call.id = %s AND NOT (call.state = 'begun' AND {_LIVES}) RETURNING 1"
_SETTLE: Final = f"""UPDATE mcp_toolset_journal AS call
    SET state = 'done', ended = %s, outcome = NULL, note = %s WHERE {_IDLE}"""
_NEVER: Final = f"DELETE FROM mcp_toolset_journal AS call WHERE {_IDLE}"

PRUNE_EVERY: Final = 1000
"""Calls after which old rows are removed."""


class PostgresJournal:
    """A journal in the table `mcp_toolset_journal`, over one connection. It runs on asyncio."""

    name = "the journal of calls"

    def __init__(
        self, conninfo: str, *, lifetime: float = LIFETIME, now: Callable[[], float] = time.time
    ) -> None:
        """Use a database; the table is made when the journal is entered, if it is not there.

        Args:
            conninfo: Where it is: `postgresql://…`, or words as libpq has them.
            lifetime: Seconds for which a call is remembered.
            now: Seconds since the epoch.

        Raises:
            ConfigError: the extra `postgres` is not installed.
        """
        try:
            self._driver: Any = import_module("psycopg")
        except ImportError:
            raise ConfigError("this journal needs the extra: pip install 'mcp-toolset[postgres]'") from None
        self._conninfo = conninfo
        self._lifetime = lifetime
        self._kept = max(lifetime, DAY)
        self._now = now
        self._owner = secrets.randbits(62)
        self._turn = anyio.Lock()
        self._connection: Any = None
        self._users = 0
        self._begun = 0

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            StoreError: the database cannot be reached or used.
        """
        self._users += 1
        try:
            await self._rows("SELECT 1")
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
            await self._close()

    async def begin(self, intent: Intent) -> Found | None:
        """See `JournalStore`."""
        now = self._now()
        oldest = now - self._lifetime
        self._begun += 1
        if self._begun % PRUNE_EVERY == 1:
            await self._rows("DELETE FROM mcp_toolset_journal WHERE began < %s RETURNING 1", now - self._kept)
        while not await self._rows(_BEGIN, *intent, self._owner, now, oldest):
            # A record may be released between the two steps.
            if found := await self._rows(f"{_ROW} WHERE call.id = %s", intent.id):
                return _found(found[0])
        return None

    async def find(self, id: str) -> Found | None:
        """See `JournalStore`."""
        query = f"{_ROW} WHERE call.id = %s AND (call.began >= %s OR (call.state = 'begun' AND {_LIVES}))"
        found = await self._rows(query, id, self._now() - self._lifetime)
        return _found(found[0]) if found else None

    async def take_over(self, intent: Intent, attempt: int) -> bool:
        """See `JournalStore`."""
        return bool(await self._rows(_AGAIN, intent.nonce, self._owner, self._now(), intent.id, attempt))

    async def end(self, id: str, attempt: int, outcome: Outcome) -> None:
        """See `JournalStore`."""
        await self._rows(_END, outcome.state, self._now(), outcome.sealed, outcome.note, id, attempt)

    async def release(self, id: str, attempt: int) -> None:
        """See `JournalStore`."""
        await self._rows(_RELEASE, id, attempt)

    async def records(self, *, prefix: str = "", limit: int = 100, undone: bool = False) -> Sequence[Found]:
        """See `JournalStore`."""
        query = f"""{_ROW} WHERE left(call.id, %s) = %s AND call.began >= %s AND call.state <> %s
            ORDER BY call.began DESC LIMIT %s"""
        words = (len(prefix), prefix, self._now() - self._lifetime, "done" if undone else "", limit)
        return [_found(row) for row in await self._rows(query, *words)]

    async def settle(self, id: str, note: str | None) -> bool:
        """See `JournalStore`."""
        if note is None:
            return bool(await self._rows(_NEVER, id))
        return bool(await self._rows(_SETTLE, self._now(), note, id))

    async def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of one statement, which is a transaction of its own."""
        async with self._turn:
            try:
                connection = self._connection or await self._connected()
                cursor = await connection.execute(query, values)
                return await cursor.fetchall()
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
            await connection.execute(_TABLE)
            index = "CREATE INDEX IF NOT EXISTS mcp_toolset_journal_began ON mcp_toolset_journal (began)"
            await connection.execute(index)
        found = await connection.execute("SELECT * FROM mcp_toolset_journal LIMIT 0")
        if tuple(column.name for column in found.description) != (*Intent._fields, *Record._fields[1:]):
            raise StoreError(f"{self.name}: its table was made by another version of mcp-toolset; rename it")
        await connection.execute("SELECT pg_advisory_lock_shared(%s)", (self._owner,))
        return connection

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _found(row: tuple[Any, ...]) -> Found:
    intent, (attempt, state, owner, began, ended, outcome, note, lives) = Intent(*row[:9]), row[9:]
    sealed = None if outcome is None else bytes(outcome)
    record = Record(intent, attempt, state, str(owner), began, ended, sealed, note)
    return Found(record, standing_of(state, lives))
