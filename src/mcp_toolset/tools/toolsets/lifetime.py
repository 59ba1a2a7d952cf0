"""`ToolsetLifetime`: open the mounted servers of a toolset and close them; `Toolset` inherits it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

import anyio

from mcp_toolset.errors import StateError
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.source import ToolSource
from mcp_toolset.tools.toolsets.opening import Waiting, open_sources, unwind


class ToolsetLifetime:
    """Opens every source of a toolset for the length of a block."""

    _stack: AsyncExitStack | None = None

    def bindings(self) -> list[ToolBinding]:
        """Every tool, flat and in order."""
        raise NotImplementedError

    def sources(self) -> list[ToolSource]:
        """Every source that must be opened."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        """Open every source concurrently, and wait until each is ready or has failed.

        Each source has its own `start_timeout`. A wait of more than a second is reported on stderr if that is
        a terminal. `opened(patience=…)` returns earlier.
        """
        await self._open(Waiting(tells=True))
        return self

    @asynccontextmanager
    async def opened(self, *, patience: float | None = None) -> AsyncGenerator[Self]:
        """Open every source for the length of a block, and wait for them at most `patience` seconds.

        A source that is not ready then continues to start, and its tools join when it is.

        Args:
            patience: Seconds; 0 does not wait at all. `None` waits as `async with toolset` does.
        """
        async with self.opening(Waiting(limit=patience, tells=True)):
            yield self

    @asynccontextmanager
    async def opening(self, waiting: Waiting) -> AsyncGenerator[None]:
        """Open every source for the length of a block, and wait for them as `waiting` says."""
        await self._open(waiting)
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self.__aexit__)
            yield

    async def _open(self, waiting: Waiting) -> None:
        if self._stack is not None:
            raise StateError("this toolset is already open; enter it once, or make another")
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            has_local_tools = any(not binding.source for binding in self.bindings())
            await open_sources(group, self.sources(), waiting, has_local_tools=has_local_tools)
            self._stack = stack.pop_all()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every source, children included."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await unwind(stack, kind, fault, trace)
