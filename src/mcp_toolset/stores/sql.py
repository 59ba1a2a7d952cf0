"""The table of entries in SQL, as SQLite and PostgreSQL understand it, with `?` for values."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mcp_toolset.stores.store import Place, Put, new_tag

TABLE: Final = "mcp_toolset_entries"
TABLES: Final = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    shelf TEXT NOT NULL, name TEXT NOT NULL, value BYTEA NOT NULL, tag BIGINT NOT NULL, at BIGINT,
    until DOUBLE PRECISION, PRIMARY KEY (shelf, name)
);
CREATE INDEX IF NOT EXISTS {TABLE}_order ON {TABLE} (shelf, at) WHERE at IS NOT NULL;
CREATE INDEX IF NOT EXISTS {TABLE}_end ON {TABLE} (until) WHERE until IS NOT NULL"""
FORGET: Final = f"DELETE FROM {TABLE} WHERE until <= ?"

FORGET_EVERY: Final = 100
"""Steps after which entries that have ended are removed."""

_LIVE: Final = "(until IS NULL OR until > ?)"
_THERE: Final = f"WHERE shelf = ? AND name = ? AND {_LIVE}"
_PUT: Final = f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (shelf, name) DO UPDATE SET "
_ADD: Final = f"""{_PUT} value = excluded.value, tag = excluded.tag, at = excluded.at, until = excluded.until
    WHERE {TABLE}.until <= ?"""
_SET: Final = f"""{_PUT} value = excluded.value, tag = excluded.tag,
    at = CASE WHEN {TABLE}.until <= ? THEN excluded.at ELSE coalesce(excluded.at, {TABLE}.at) END,
    until = CASE WHEN {TABLE}.until <= ? THEN excluded.until
        ELSE coalesce(excluded.until, {TABLE}.until) END"""
_CHANGE: Final = f"UPDATE {TABLE} SET value = ?, tag = ? {_THERE} AND tag = ?"
_MOVE: Final = f"""UPDATE {TABLE} SET value = ?, tag = ?, at = coalesce(?, at), until = coalesce(?, until)
    {_THERE} AND tag = ?"""
_REMOVE: Final = f"DELETE FROM {TABLE} {_THERE}"
_REMOVE_KNOWN: Final = f"{_REMOVE} AND tag = ?"
_GET: Final = f"SELECT value, tag FROM {TABLE} {_THERE}"
_NAMES: Final = f"""SELECT name FROM {TABLE} WHERE shelf = ? AND at IS NOT NULL AND {_LIVE}
    ORDER BY at DESC, name DESC"""
_TRIM: Final = f"""DELETE FROM {TABLE} WHERE shelf = ? AND at <= (
    SELECT at FROM {TABLE} WHERE shelf = ? AND at IS NOT NULL ORDER BY at DESC LIMIT 1 OFFSET ?)"""


class Statement(NamedTuple):
    """A statement, its values, and whether it has to change a row."""

    text: str
    values: tuple[Any, ...]
    must: bool = False


def changing(put: Put, now: float) -> Statement:
    """The statement of a change; if it has to change a row and does not, the change is refused."""
    shelf, name, value, known, at, ttl, _, tag = put
    place, tag = (shelf, name), tag or new_tag()
    if value is None:
        if known is None:
            return Statement(_REMOVE, (*place, now))
        return Statement(_REMOVE_KNOWN, (*place, now, known), must=True)
    until = None if ttl is None else now + ttl
    if known:
        if at is until is None:
            return Statement(_CHANGE, (value, tag, *place, now, known), must=True)
        return Statement(_MOVE, (value, tag, at, until, *place, now, known), must=True)
    row = (*place, value, tag, at, until, now)
    return Statement(_SET, (*row, now)) if known is None else Statement(_ADD, row, must=True)


def trimming(put: Put) -> Statement:
    """The statement that removes the first entries of a shelf that has too many."""
    return Statement(_TRIM, (put.shelf, put.shelf, put.max_entries))


def reading(place: Place, now: float) -> Statement:
    return Statement(_GET, (*place, now))


def naming(shelf: str, now: float) -> Statement:
    return Statement(_NAMES, (shelf, now))
