"""`store_at`: the store at a place: at a URL, or in a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeGuard

from mcp_toolset.errors import ConfigError
from mcp_toolset.stores.store import MemoryStore, Store

_REDIS: Final = ("redis", "rediss", "valkey", "valkeys", "unix")
_POSTGRES: Final = ("postgresql", "postgres")


def is_url(place: object) -> TypeGuard[str]:
    """True if a place is a URL; any other text is the path of a file."""
    return isinstance(place, str) and "://" in place


def store_at(
    place: str | os.PathLike[str] | None,
    name: str,
    *,
    owned: bool = False,
    now: Callable[[], float] = time.time,
) -> Store:
    """The store at a place, to be entered.

    Args:
        place: A URL, or the path of a file; `None` for the memory of this process.
        name: What errors call it, such as `the journal of calls`.
        owned: Whether it has to be told which of its users live.
        now: Seconds since the epoch.

    Raises:
        ConfigError: there is no such kind of store, the URL cannot be used, or an extra is not installed.
    """
    if place is None:
        return MemoryStore(now)
    if not is_url(place):
        from mcp_toolset.stores.sqlite import FileStore

        return FileStore(Path(place), name, owned=owned, now=now)
    scheme = place.partition(":")[0].lower()
    if scheme in _REDIS:
        from mcp_toolset.stores.redis import RedisStore

        return RedisStore(place, name, owned=owned)
    if scheme in _POSTGRES:
        from mcp_toolset.stores.postgres import PostgresStore

        return PostgresStore(place, name, now)
    known = ", ".join(f"{one}://" for one in (*_REDIS, *_POSTGRES))
    raise ConfigError(f"the URL of {name} begins with one of {known}; name a file by its path")
