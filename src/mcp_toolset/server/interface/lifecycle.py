"""`Lifecycle`: how a server is opened, what runs while it is open, and how it is closed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from mcp_toolset.calls.background import BackgroundWork
from mcp_toolset.context.shared import SharedSource
from mcp_toolset.errors import StateError, sole
from mcp_toolset.server.attachments import Attachments
from mcp_toolset.server.interface.parts import ServerParts
from mcp_toolset.server.manual_calls import ManualCalls
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.tools.core.source import fits
from mcp_toolset.tools.toolsets import opening
from mcp_toolset.tools.toolsets.opening import Waiting, unwind
from mcp_toolset.tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from mcp_toolset.context.shared import Shared
    from mcp_toolset.server.state_keeper import StateKeeper


class Lifecycle(ServerParts):
    """Opens the mounted servers and the tasks of a server, and closes them in the opposite order.

    Attributes:
        name: The server's name, as clients see it.
        toolset: What it serves.
        work: The work that tools have begun in the background.
    """

    name: str
    toolset: Toolset
    work: BackgroundWork
    _attachments: Attachments
    _keeper: StateKeeper | None
    _manual: ManualCalls
    _offering: Offering

    async def __aenter__(self) -> Self:
        """Open every upstream concurrently, wait for them, and freeze the first view.

        For programs that use the server from Python: it returns when each upstream is ready or has
        failed, or some seconds after something can be used. Serving waits for no upstream: `run_stdio`,
        `run_http` and `http_app` open a server that is not open yet by `opened()`.

        Raises:
            StateError: it is open already.
            InvalidStateError: the state file is corrupt or foreign.
        """
        if self._stack is not None:
            raise StateError(f"server {self.name!r} is already open")
        try:
            await self._open(Waiting(patience=opening.PATIENCE))
        except BaseExceptionGroup as group:
            raise sole(group) from None
        return self

    async def _open(self, waiting: Waiting) -> None:
        async with AsyncExitStack() as stack:
            await self._open_stores(stack)
            self._news.attach()
            if self._keeper is not None:
                await self._keeper.restore()
                stack.callback(self.registry.on_change(self._keeper.changed))
                stack.push_async_callback(self._save_last)
            for source in self.toolset.sources():
                stack.callback(source.on_change(self._news.watching(source)))
            await self._kept.restore(self.toolset.sources())
            await stack.enter_async_context(self.toolset.opening(waiting))
            await stack.enter_async_context(self._kept.running())
            await stack.enter_async_context(self._indexes.running())
            self._unlisted.begin(self.toolset.sources(), self.toolset.listing_sources())
            await self._rebuild()
            if self._served.defers:
                await self._indexes.fetch()
            stack.callback(self.registry.on_change(self._news.changed.set))
            stack.callback(self.grants.on_revoke(self._news.revoked.set))
            stack.callback(self._offering.local.on_change(self._news.changed.set))
            await stack.enter_async_context(self._news.running(self._rebuild))
            if self._keeper is not None:
                await stack.enter_async_context(self._keeper.running())
            await stack.enter_async_context(self._attachments.running())
            if self.configured is not None:
                reloads = self._reloads = self.configured.reloads(
                    sources=self.registry.sources, changed=self._news.changed.set, rebuild=self._rebuild
                )
                await stack.enter_async_context(reloads.running())
            await stack.enter_async_context(self.work)
            await self.extensions.run(stack)
            self._manual.open()
            stack.callback(self._manual.close)
            self._stack = stack.pop_all()

    async def _open_stores(self, stack: AsyncExitStack) -> None:
        """Open what calls and changes are written to."""
        if self._shared is not None:
            await stack.enter_async_context(self._shared.running())
            self._share(self._shared)
        if self._suspended is not None and self._suspended is not self._shared:
            await stack.enter_async_context(self._suspended.running())
        await self.extensions.open(stack)

    def _share(self, shared: Shared) -> None:
        """Tell the mounts what the replicas share; some of them one replica alone may have."""
        if self.configured is not None:
            self.configured.share(shared)
        for source in self.toolset.sources():
            if fits(source, SharedSource):
                source.share(shared)

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every upstream, children included."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await unwind(stack, kind, fault, trace)

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Open for the length of a block, unless it is open already, and wait for no mounted server.

        This is how a server is opened to be served: what is mounted joins when it is ready. Lists are
        those of the last run until then; see docs/starting.md.
        """
        if self._stack is not None:
            yield
            return
        try:
            await self._open(Waiting(limit=0))
        except BaseExceptionGroup as group:
            raise sole(group) from None
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self.__aexit__)
            yield

    def use_nothing_kept(self) -> None:
        """Serve only what mounted servers list in this run, before the server is opened; it is kept."""
        self._kept.is_used = False

    async def _save_last(self) -> None:
        if self._keeper is not None:
            with anyio.CancelScope(shield=True):
                await self._keeper.save()
