"""`StateKeeper`: a server's registry and its saved state, kept alike; replicas follow each other.

If two replicas change something at the same time, the names are those of the replica that saved first. The
other one takes these in, and saves again which tools it has switched on and off.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

from mcp_toolset._records import replace
from mcp_toolset.catalog.registry.registry import ToolRegistry
from mcp_toolset.catalog.registry.state import RegistryState
from mcp_toolset.catalog.registry.state_store import StoredState
from mcp_toolset.concurrency.tasks import ThreadEvent, beside
from mcp_toolset.errors import StaleStateError, StateError

TRIES: Final = 8  # times that a save is tried again because another replica has saved meanwhile

_log = logging.getLogger("mcp_toolset.registry")


class StateKeeper:
    """Restores a registry when a server opens, and saves each change while it is open."""

    def __init__(self, state: StoredState, registry: ToolRegistry) -> None:
        self.state = state  # open while it is used
        self._registry = registry
        self.changed = ThreadEvent()
        self._is_ours = True
        self._heard = False

    async def restore(self) -> None:
        self.changed.attach()
        self._is_ours = True
        saved = await self.state.load()
        if saved is not None:
            report = self._registry.restore_state(saved)
            _log.info(
                "generation %d restored; %d tools wait for their source",
                report.generation,
                len(report.orphaned),
            )
        with suppress(StaleStateError):
            await self.state.save(self._registry.snapshot())

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        follow = self.state.follow
        stop = None if follow is None else follow(self._hear)
        try:
            async with beside(self.run):
                yield
        finally:
            if stop is not None:
                stop()

    async def run(self) -> None:
        while True:
            await self.changed.wait()
            if self._heard:
                self._heard = False
                await self._follow()
            await self.save()

    async def save(self) -> None:
        if not self._is_ours:
            return
        for _ in range(TRIES):
            try:
                await self.state.save(self._registry.snapshot())
            except StaleStateError as fault:
                if self.state.follow is not None:
                    await self._follow()
                    continue
                self._is_ours = False
                _log.warning("%s; what changes here is not saved any more", fault)
            except StateError as fault:
                _log.warning("%s", fault)
            return

    def _hear(self) -> None:
        self._heard = True
        self.changed.set()

    async def _follow(self) -> None:
        """Take in what another replica has saved, with what was switched on or off here since."""
        try:
            news = await self.state.news()
        except StateError as fault:
            _log.warning("%s", fault)
            return
        if news is None:
            return
        before, saved = news
        known = {} if before is None else {entry.key: entry.member for entry in before.tools}
        here = {entry.key: entry.member for entry in self._registry.snapshot().tools}
        chosen = {key: member for key, member in here.items() if key in known and member != known[key]}
        tools = (replace(each, member=chosen.get(each.key, each.member)) for each in saved.tools)
        self._registry.restore_state(RegistryState(saved.generation, tuple(tools)))
