"""`StateKeeper`: a server's registry and its state file, kept alike."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio

from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.catalog.registry.state_store import StateStore, StoredState
from mcp_toolset.concurrency.thread_event import ThreadEvent
from mcp_toolset.errors import StaleStateError, StateError

_log = logging.getLogger("mcp_toolset.registry")


class StateKeeper:
    """Restores a registry when a server opens, and saves each change while it is open."""

    def __init__(self, place: str | os.PathLike[str] | StateStore, registry: ToolRegistry) -> None:
        """Name the file; nothing is read yet."""
        self._file = StoredState(place)
        self._registry = registry
        self._flag = ThreadEvent()
        self._is_ours = True

    async def restore(self) -> None:
        """Adopt what is saved, if anything is, and see that it can be saved again.

        Raises:
            InvalidStateError: the file is corrupt or foreign, and left as it is; or its folder is not
                there or cannot be written to.
        """
        self._flag.attach()
        self._is_ours = True
        saved = await self._file.load()
        if saved is not None:
            report = self._registry.restore_state(saved)
            _log.info(
                "generation %d restored; %d tools wait for their source",
                report.generation,
                len(report.orphaned),
            )
        with suppress(StaleStateError):
            await self._file.save(self._registry.snapshot())

    def changed(self) -> None:
        """Note that there is something to save; from any thread."""
        self._flag.set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Save after every change for the length of a block."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def run(self) -> None:
        """Save after every change, until cancelled."""
        while True:
            await self._flag.wait()
            await self.save()

    async def save(self) -> None:
        """Save the state; if that fails, the log has the reason, and the server goes on."""
        if not self._is_ours:
            return
        try:
            await self._file.save(self._registry.snapshot())
        except StaleStateError as fault:
            self._is_ours = False
            _log.warning("%s; what changes here is not saved any more", fault)
        except StateError as fault:
            _log.warning("%s", fault)
