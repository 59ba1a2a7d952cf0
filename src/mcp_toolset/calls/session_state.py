"""`SessionState`: what the tools of a toolset remember for each caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from mcp_toolset.calls.middleware.caller import MAX_KEPT, Recent, caller_of
from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.tools.core.call import ToolContext

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
        """Make each caller's value with `make`. Beyond `most` values the least recently used is dropped.

        Raises:
            DefinitionError: `most` is not positive, or `make` cannot be called.
        """
        if not callable(make):
            raise DefinitionError(
                f"SessionState(make) takes what makes a value, such as list[str], not {make!r}"
            )
        self._make = make
        self._values: Recent[str, T] = Recent(most)

    def of(self, context: ToolContext) -> T:
        """The value of the caller of a call; it may be changed in place.

        Raises:
            CallError: the caller cannot be told apart from others: a client of 2026-07-28, which has no
                sessions, without authentication.
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
