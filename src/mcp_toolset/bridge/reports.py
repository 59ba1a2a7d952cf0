"""`CallsInFlight`: whom an upstream's report belongs to, and how it reaches that caller (P5).

A report for nobody is dropped, and so is the oldest one when more come than a slow client takes (F10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

import anyio

from mcp_toolset.tools.call import ToolContext

MAX_WAITING: Final = 256
"""Reports of one upstream that may wait for clients."""

_calling: ContextVar[ToolContext | None] = ContextVar("mcp_toolset_calling", default=None)


class CallsInFlight:
    """The calls that one upstream is working on."""

    def __init__(self) -> None:
        """Start without any."""
        self._callers: dict[object, ToolContext] = {}
        self._waiting: deque[anyio.CancelScope] = deque()

    @contextmanager
    def of(self, context: ToolContext) -> Generator[None]:
        """Count one call as under way for the length of a block."""
        key = object()
        self._callers[key] = context
        token = _calling.set(context)
        try:
            yield
        finally:
            del self._callers[key]
            _calling.reset(token)

    @property
    def owner(self) -> ToolContext | None:
        """The caller that an incoming message is for; nobody when it cannot be told."""
        current = _calling.get()
        if current is not None:
            return current
        return next(iter(self._callers.values())) if len(self._callers) == 1 else None

    async def progress(
        self, context: ToolContext, progress: float, total: float | None, message: str | None
    ) -> None:
        """Pass progress on to the caller that it is for."""
        await self._forward(context.progress, progress, total, message)

    async def notify(self, method: str, params: Any) -> None:
        """Pass a notification on to its caller, if it has one."""
        owner = self.owner
        if owner is not None:
            await self._forward(owner.notify, method, params)

    async def _forward(self, send: Callable[..., Awaitable[None]], *what: Any) -> None:
        with anyio.CancelScope() as scope:
            self._waiting.append(scope)
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popleft().cancel()
            try:
                await send(*what)
            finally:
                with suppress(ValueError):
                    self._waiting.remove(scope)
