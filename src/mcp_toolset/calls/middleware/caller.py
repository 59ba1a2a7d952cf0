"""The key of a caller, by which middleware counts calls and caches results, and a bounded LRU table."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final, Generic, TypeVar

from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.call import ToolContext

MAX_KEPT: Final = 10_000
"""The default number of entries of one middleware; the least recently used is dropped first."""

HOST: Final = "host"
"""The caller of a call without a client: the program itself."""

_log: Final = logging.getLogger("mcp_toolset.names")

_K = TypeVar("_K")
_V = TypeVar("_V")


def caller_of(context: ToolContext) -> str | None:
    """The principal, else the session, else the program itself; `None` for an unknown client.

    The modern protocol has no sessions, so without authentication its callers cannot be told apart.
    """
    if context.principal:
        return f"principal:{context.principal}"
    if context.session:
        return f"session:{context.session}"
    return HOST if context.protocol_version is None else None


class Nobody:
    """Logs once that rules for some callers match nobody, as the context of a loop names no caller."""

    def __init__(self) -> None:
        self._is_told = False

    def look(self, context: ToolContext) -> None:
        """Look at the context of a call for which there are such rules; a client has no say in it."""
        if context.identity is None and context.protocol_version is None and not self._is_told:
            self._is_told = True
            mend = "give RoundContext(principal=Identity.of(…))"
            _log.warning("rules for callers by name, role or scope match nobody here: %s", mend)


class Recent(Generic[_K, _V]):
    """A table of bounded size that drops the least recently used entry."""

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` entries; `DefinitionError` unless the limit is positive."""
        if limit < 1:
            raise DefinitionError(f"a middleware needs room for at least one entry, not {limit}")
        self._limit = limit
        self._entries: OrderedDict[_K, _V] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        """The entry of a key; counts as a use."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: _K, value: _V) -> None:
        """Set an entry, and drop the least recently used if there are too many."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def drop(self, key: _K) -> None:
        """Remove an entry, if it exists."""
        self._entries.pop(key, None)

    def keys(self) -> list[_K]:
        """The keys, the least recently used first."""
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
