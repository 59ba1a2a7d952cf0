"""A `Store` of your own: here a dictionary stands for the database."""

import time
from collections.abc import Sequence
from math import inf
from random import getrandbits
from typing import NamedTuple

from mcp_toolset.shared import Entry, Put, Store


class Row(NamedTuple):
    entry: Entry
    at: int | None  # its place in the order of the shelf
    until: float


class Database(Store):
    """Entries in a dictionary; yours sends one request, or one transaction, in each method."""

    name = "the database"  # models read it: no address, no password

    def __init__(self) -> None:
        self.shelves: dict[str, dict[str, Row]] = {}
        self.requests = 0

    def row(self, shelf: str, name: str) -> Row | None:
        row = self.shelves.get(shelf, {}).get(name)
        return row if row is not None and row.until > time.time() else None

    def in_order(self, shelf: str) -> list[str]:
        rows = [(row.at, name) for name in self.shelves.get(shelf, {}) if (row := self.row(shelf, name))]
        return [name for _, name in sorted((at, name) for at, name in rows if at is not None)]

    async def get(self, *places: tuple[str, str]) -> Sequence[Entry | None]:
        self.requests += 1
        return [row.entry if (row := self.row(*place)) else None for place in places]

    async def write(
        self, *puts: Put, synced: bool = True, tell: bytes = b""
    ) -> Sequence[Entry | None] | None:
        self.requests += 1
        standing = [self.row(put.shelf, put.name) for put in puts]
        for put, row in zip(puts, standing, strict=True):
            if put.known is not None and put.known != (row.entry.tag if row else 0):
                return [row.entry if row else None for row in standing]
        for put, row in zip(puts, standing, strict=True):
            self.put(put, row or Row(Entry(b"", 0), None, inf))
        return None

    def put(self, put: Put, before: Row) -> None:
        shelf = self.shelves.setdefault(put.shelf, {})
        shelf.pop(put.name, None)
        if put.value is not None:
            at = before.at if put.at is None else put.at
            until = before.until if put.ttl is None else time.time() + put.ttl
            shelf[put.name] = Row(Entry(put.value, put.tag or getrandbits(52) + 1), at, until)
        if put.max_entries is not None:
            for name in self.in_order(put.shelf)[: -put.max_entries]:
                del shelf[name]

    async def names(self, shelf: str) -> Sequence[str]:
        self.requests += 1
        return self.in_order(shelf)[::-1]

    async def lives(self, owner: str) -> bool:
        return False
