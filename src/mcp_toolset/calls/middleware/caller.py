"""The caller of a call: its key, a bounded table by such keys, and `SessionState`, which tools keep of it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.tools.core.call import ToolContext

MAX_KEPT: Final = 10_000  # The default number of entries of one middleware; the oldest is dropped.
HOST: Final = "host"  # The caller of a call without a client: the program itself.

_log: Final = logging.getLogger("mcp_toolset.names")

_K = TypeVar("_K")
_V = TypeVar("_V")


def caller_of(context: ToolContext) -> str | None:
    """The principal, else the session, else the program itself; `None` for a modern client without login."""
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
        if limit < 1:
            raise DefinitionError(f"a middleware needs room for at least one entry, not {limit}")
        self._limit = limit
        self._entries: OrderedDict[_K, _V] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: _K, value: _V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def drop(self, key: _K) -> None:
        self._entries.pop(key, None)

    def keys(self) -> list[_K]:
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


T = TypeVar("T")


class SessionState(Generic[T]):
    """A value for each authenticated user, else for each session, in memory.

    ```python
    baskets = SessionState(list[str])


    @tool
    def add_to_basket(item: str, context: ToolContext) -> int:
        baskets.of(context).append(item)
        return len(baskets.of(context))
    ```
    """

    def __init__(self, make: Callable[[], T], *, most: int = MAX_KEPT) -> None:
        """Make each caller's value with `make`; beyond `most` values the least recently used is dropped."""
        if not callable(make):
            raise DefinitionError(
                f"SessionState(make) takes what makes a value, such as list[str], not {make!r}"
            )
        self._make = make
        self._values: Recent[str, T] = Recent(most)

    def of(self, context: ToolContext) -> T:
        """The value of the caller of a call; it may be changed in place.

        Raises `CallError` for a client of 2026-07-28, which has no sessions, without authentication.
        """
        caller = self._known(context)
        value = self._values.get(caller)
        if value is None:
            value = self._make()
            self._values.put(caller, value)
        return value

    def set(self, context: ToolContext, value: T) -> None:
        """Replace the value of the caller of a call; raises as `of` does."""
        self._values.put(self._known(context), value)

    def forget(self, context: ToolContext) -> None:
        """Forget the value of the caller of a call; raises as `of` does."""
        self._values.drop(self._known(context))

    def _known(self, context: ToolContext) -> str:
        caller = caller_of(context)
        if caller is None:
            raise CallError(
                "this tool remembers something for each caller, and this client has neither a session nor an "
                "authenticated user: use a client of 2025-11-25, or turn on authentication"
            )
        return caller
