"""The table of entries in SQL, as SQLite and PostgreSQL understand it, with `?` for values."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mcp_toolset.stores.store import Place, Put

TABLE: Final = "mcp_toolset_entries"
TABLES: Final = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    shelf TEXT NOT NULL, name TEXT NOT NULL, value BYTEA NOT NULL, tag BIGINT NOT NULL, at BIGINT,
    until DOUBLE PRECISION, PRIMARY KEY (shelf, name)
);
CREATE INDEX IF NOT EXISTS {TABLE}_order ON {TABLE} (shelf, at) WHERE at IS NOT NULL;
CREATE INDEX IF NOT EXISTS {TABLE}_end ON {TABLE} (until) WHERE until IS NOT NULL"""
FORGET: Final = f"DELETE FROM {TABLE} WHERE until <= ?"

_LIVE: Final = "(until IS NULL OR until > ?)"
_THERE: Final = f"WHERE shelf = ? AND name = ? AND {_LIVE}"
_PUT: Final = f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (shelf, name) DO UPDATE SET "
_ANEW: Final = "value = excluded.value, tag = excluded.tag, at = excluded.at, until = excluded.until"
_OVER: Final = f"""value = excluded.value, tag = excluded.tag,
    at = CASE WHEN {TABLE}.until <= ? THEN excluded.at ELSE coalesce(excluded.at, {TABLE}.at) END,
    until = CASE WHEN {TABLE}.until <= ? THEN excluded.until ELSE coalesce(excluded.until, {TABLE}.until) END
    RETURNING 1"""


class Statement(NamedTuple):
    """A statement, its values, and whether it has to give a row."""

    text: str
    values: tuple[Any, ...]
    must: bool = True


def changing(put: Put, now: float) -> Statement:
    """The statement for a change; it gives a row if the change is made."""
    place = (put.shelf, put.name)
    until = None if put.seconds is None else now + put.seconds
    if put.value is not None and not put.known:
        row = (*place, put.value, put.tag, put.at, until)
        if put.known is None:
            return Statement(_PUT + _OVER, (*row, now, now))
        return Statement(f"{_PUT}{_ANEW} WHERE {TABLE}.until <= ? RETURNING 1", (*row, now))
    if put.known is None:
        return Statement(f"DELETE FROM {TABLE} {_THERE} RETURNING 1", (*place, now), must=False)
    known = (*place, now, put.known)
    if put.value is None:
        return Statement(f"DELETE FROM {TABLE} {_THERE} AND tag = ? RETURNING 1", known)
    given = {"value": put.value, "tag": put.tag, "at": put.at, "until": until}
    given = {name: one for name, one in given.items() if one is not None}
    columns = ", ".join(f"{name} = ?" for name in given)
    text = f"UPDATE {TABLE} SET {columns} {_THERE} AND tag = ? RETURNING 1"
    return Statement(text, (*given.values(), *known))


def trimming(put: Put) -> Statement:
    """The statement that removes the first entries of a shelf that has too many."""
    last = f"SELECT at FROM {TABLE} WHERE shelf = ? AND at IS NOT NULL ORDER BY at DESC LIMIT 1 OFFSET ?"
    return Statement(
        f"DELETE FROM {TABLE} WHERE shelf = ? AND at <= ({last})",
        (put.shelf, put.shelf, put.most),
        must=False,
    )


def reading(place: Place, now: float) -> Statement:
    return Statement(f"SELECT value, tag FROM {TABLE} {_THERE}", (*place, now))


def naming(shelf: str, now: float) -> Statement:
    text = (
        f"SELECT name FROM {TABLE} WHERE shelf = ? AND at IS NOT NULL AND {_LIVE} ORDER BY at DESC, name DESC"
    )
    return Statement(text, (shelf, now))
