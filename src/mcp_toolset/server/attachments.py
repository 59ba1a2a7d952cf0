"""Toolsets that join and leave a server while it runs.

Each has a task of its own that opens it, holds it open and closes it again. One that leaves is out of
the registry first, so that nothing new is called; calls in flight end on the open upstream.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import field
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.abc

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.registry.registry import SourceHandle, ToolRegistry
from mcp_toolset.concurrency.workers import in_worker_if_large
from mcp_toolset.errors import CallError, StateError, sole
from mcp_toolset.tools.binding.binding import Executor
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.toolsets.toolset import Toolset
from mcp_toolset.tools.view.view import Each

DRAIN: Final = 30.0
"""Seconds that calls in flight may take when their toolset leaves, unless told otherwise."""

_T = TypeVar("_T")


@dataclass(eq=False)
class Attachment:
    """One toolset that has joined, and its calls in flight."""

    toolset: Toolset
    leaving: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)
    calls: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope])
    idle: anyio.Event = field(default_factory=anyio.Event)

    def counted(self) -> Toolset:
        """The toolset, with its calls known here."""
        return self.toolset.through(
            Each(lambda binding: replace(binding, execute=partial(self._execute, binding.execute))),
            defers=self.toolset.defers,
        )

    async def ended(self, drain: float) -> None:
        """Close the toolset after its calls in flight; after `drain` seconds they are cancelled."""
        try:
            with anyio.move_on_after(drain):
                while self.calls:
                    self.idle = anyio.Event()
                    await self.idle.wait()
        finally:
            for scope in self.calls:
                scope.cancel()
            self.leaving.set()
        await self.closed.wait()

    async def _execute(self, execute: Executor, call: ToolCall, context: ToolContext) -> ToolResult:
        with anyio.CancelScope() as scope:
            self.calls.add(scope)
            try:
                return await execute(call, context)
            finally:
                self.calls.discard(scope)
                if not self.calls:
                    self.idle.set()
        raise CallError(f"{call.name} was ended before it was done: it is not offered any more")


class Attachments:
    """Owns the tasks of the toolsets that have joined a server."""

    def __init__(self, registry: ToolRegistry, changed: Callable[[], None]) -> None:
        """`changed` is told whenever the tools or the status of a joined source have changed."""
        self._registry = registry
        self._changed = changed
        self._group: anyio.abc.TaskGroup | None = None
        self._joined: dict[SourceHandle, Attachment] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Toolsets can join while this is open; then all of them are closed and leave."""
        try:
            async with anyio.create_task_group() as self._group:
                yield
                self._group.cancel_scope.cancel()
        finally:
            self._group = None
            for handle in list(self._joined):
                self.leave(handle)

    async def join(self, toolset: Toolset) -> SourceHandle:
        """Open a toolset and register it."""
        await self._beside(partial(self._registry.check, toolset), toolset)
        async with self._opening(toolset) as attachment:
            handle = await self._beside(lambda: self._registry.register(attachment.counted()), toolset)
            self._joined[handle] = attachment
        return handle

    async def change(
        self, handle: SourceHandle, toolset: Toolset, accept: Callable[[], None] | None = None
    ) -> Attachment:
        """Open a toolset and register it in the place of another, which is returned, still open.

        An error that `accept` raises leaves everything as it was, as the errors below do.
        """
        self._require(handle)
        await self._beside(partial(self._registry.check, toolset, instead_of=handle), toolset)
        async with self._opening(toolset) as attachment:
            if accept is not None:
                accept()
            before = self._require(handle)
            await self._beside(lambda: self._registry.replace(handle, attachment.counted()), toolset)
            self._joined[handle] = attachment
        return before

    def leave(self, handle: SourceHandle) -> Attachment:
        """Take a toolset out of the registry and return it, still open."""
        self._require(handle)
        self._registry.remove(handle)
        return self._joined.pop(handle)

    async def _beside(self, work: Callable[[], _T], toolset: Toolset) -> _T:
        joining = sum(source.status.tools for source in toolset.sources())
        return await in_worker_if_large(work, joining + len(self._registry.names))

    def _require(self, handle: SourceHandle) -> Attachment:
        attachment = self._joined.get(handle)
        if attachment is None:
            raise StateError(f"{handle.name!r} was not attached to this server, or has been detached already")
        return attachment

    @asynccontextmanager
    async def _opening(self, toolset: Toolset) -> AsyncGenerator[Attachment]:
        """A toolset opened by a task of its own; it is closed again if the block fails."""
        if self._group is None:
            raise StateError("toolsets are attached while the server is open; enter it first")
        attachment = Attachment(toolset)
        try:
            await self._group.start(self._own, attachment)
        except BaseExceptionGroup as group:
            raise sole(group) from None
        try:
            yield attachment
        except BaseException:
            attachment.leaving.set()
            raise

    async def _own(self, attachment: Attachment, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        try:
            async with attachment.toolset:
                with ExitStack() as stack:
                    for source in attachment.toolset.sources():
                        stack.callback(source.on_change(self._changed))
                    task_status.started()
                    await attachment.leaving.wait()
        finally:
            attachment.closed.set()
