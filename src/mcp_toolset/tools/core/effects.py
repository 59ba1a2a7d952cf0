"""`Effects`: how a handler does the steps of a call at most once; `EFFECTS` has those of the current call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol


class Effects(Protocol):
    """Records the steps of one call."""

    async def once(
        self, key: str, work: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...], *, repeat: bool
    ) -> Any:
        """Do a step, or give the recorded value of it; see `ToolContext.effect`."""
        ...


EFFECTS: Final[ContextVar[Effects | None]] = ContextVar("mcp_toolset_effects", default=None)
"""The effects of the call that runs; `None` if no journal records it."""
