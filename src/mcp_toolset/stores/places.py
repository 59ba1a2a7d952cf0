"""`store_at`: the store that a program or file names: by a path, by a URL, or itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias, TypeGuard, cast

from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.stores.store import MemoryStore, Store

StorePlace: TypeAlias = "str | PathLike[str] | Store"
"""The path of a file, a URL such as `redis://host:6379` or `postgresql://host/db`, or a store."""

_REDIS: Final = ("redis", "rediss", "valkey", "valkeys", "unix")
_POSTGRES: Final = ("postgresql", "postgres")


def is_url(place: object) -> TypeGuard[str]:
    """True if a place is a URL; any other text is the path of a file."""
    return isinstance(place, str) and "://" in place


def path_of(place: object) -> Path | None:
    """The path that a place is; `None` for a URL, a store, and what is no place."""
    if is_url(place) or not isinstance(place, str | PathLike):
        return None
    return Path(cast("PathLike[str]", place))


def users_file(name: str) -> Path:
    """The file of a feature in the user's folder for state."""
    from platformdirs import user_state_path

    return user_state_path("mcp-toolset") / f"{name}.sqlite3"


def store_at(
    place: StorePlace | None, name: str, *, owned: bool = False, now: Callable[[], float] = time.time
) -> Store:
    """The store at a place, to be entered.

    Args:
        place: Where it is; `None` for the memory of this process.
        name: What errors call it, such as `the journal of calls`; a store that is given has its own.
        owned: Whether it has to be told which of its users live.
        now: Seconds since the epoch.

    Raises:
        ConfigError: there is no such kind of store, the URL cannot be used, or an extra is not installed.
        DefinitionError: it is no place.
    """
    if place is None:
        return MemoryStore(now)
    if isinstance(place, Store):
        return place
    if (path := path_of(place)) is not None:
        from mcp_toolset.stores.sqlite import FileStore

        return FileStore(path, name, owned=owned, now=now)
    if not is_url(place):
        raise DefinitionError(f"{name} is kept at a path, at a URL, or in a Store, not in {place!r}")
    scheme = place.partition("://")[0].lower()
    if scheme in _REDIS:
        from mcp_toolset.stores.redis import RedisStore

        return RedisStore(place, name, owned=owned)
    if scheme in _POSTGRES:
        from mcp_toolset.stores.postgres import PostgresStore

        return PostgresStore(place, name, now)
    known = ", ".join(f"{one}://" for one in (*_REDIS, *_POSTGRES))
    raise ConfigError(f"the URL of {name} begins with one of {known}; name a file by its path")
