"""`journal_at`: the journal at a URL, or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mcp_toolset.errors import ConfigError
from mcp_toolset.extensions.journal.journal_store import LIFETIME, JournalStore
from mcp_toolset.extensions.journal.sqlite_journal import SqliteJournal

__all__ = ["journal_at"]

_REDIS: Final = ("redis", "rediss", "valkey", "valkeys", "unix")
_POSTGRES: Final = ("postgresql", "postgres")


def journal_at(place: str | Path | None, *, lifetime: float = LIFETIME) -> JournalStore:
    """The journal at a place.

    Args:
        place: The URL of a store, or the path of a file; `None` for the file of the user.
        lifetime: Seconds for which a call is remembered.
    """
    if not isinstance(place, str):
        return SqliteJournal(place, lifetime=lifetime)
    scheme = place.partition(":")[0].lower()
    if scheme in _REDIS:
        from mcp_toolset.extensions.journal.redis_journal import RedisJournal

        return RedisJournal(place, lifetime=lifetime)
    if scheme in _POSTGRES:
        from mcp_toolset.extensions.journal.postgres_journal import PostgresJournal

        return PostgresJournal(place, lifetime=lifetime)
    known = ", ".join(f"{one}://" for one in (*_REDIS, *_POSTGRES))
    raise ConfigError(
        f"the URL of the journal begins with one of {known}; name a file by `path` in the configuration, or "
        "by --file"
    )
