"""`News`: compile the tools again after changes, and send `list_changed` to clients."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from mcp_toolset.concurrency.tasks import ThreadEvent, beside
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.errors import NameConflictError, UnknownNameError
from mcp_toolset.server.mounts import Sight
from mcp_toolset.server.offering import Offering
from mcp_toolset.server.tool_table import ListVariants, ServedTools
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.source import ToolSource

if TYPE_CHECKING:
    from mcp_toolset.server.mcp_server import MCPServer

_log: Final = logging.getLogger("mcp_toolset.server")


class News:
    """Compiles the tools after changes, and announces the changes to clients."""

    def __init__(self, served: ServedTools, offering: Offering, answers: MCPServer) -> None:
        self.changed = ThreadEvent()  # set when tools or members have changed
        self.status = ThreadEvent()  # set when only the status or the offers of a source have changed
        self.revoked = ThreadEvent()  # set when grants were revoked
        self._served = served
        self._offering = offering
        self._answers = answers

    def attach(self) -> None:
        self.changed.attach()
        self.status.attach()
        self.revoked.attach()

    @asynccontextmanager
    async def running(self, compiled: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
        await self._offering.news()
        async with beside(
            partial(self._follow, compiled),
            self._follow_status,
            partial(self._announce, self._served.lists, self._served.visibility.sight),
            self._announce_grants,
            self._answers.reading.announce_updates,
        ):
            yield

    async def _follow(self, compiled: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self.changed.wait()
            try:
                await compiled()
            # A toolset of the application now has two tools of one name, or a strict rule has no tool.
            except (NameConflictError, UnknownNameError) as fault:
                _log.warning("the tools stay as they were: %s", fault)

    def watching(self, source: ToolSource) -> Callable[[], None]:
        """The callback for changes of a source: it sets `status` for unchanged tools, otherwise `changed`."""
        if not isinstance(source, MountedSource):
            return self.changed.set
        snapshot = source.snapshot

        def notify() -> None:
            nonlocal snapshot
            before, snapshot = snapshot, source.snapshot
            (self.status if snapshot is before else self.changed).set()

        return notify

    async def _follow_status(self) -> None:
        """Apply changed statuses; compile only if a server that has started settles names."""
        while True:
            await self.status.wait()
            if not await self._served.take_statuses():
                self.changed.set()
            self._answers.told_of(self._served.registry.sources())

    async def _announce(self, lists: ListVariants, sight: Sight) -> None:
        """Announce changed lists; several changes until then are announced once."""
        # A server may report a change of a list that is the same again: clients are told of it.
        self._served.moved.attach()
        self._served.moved.clear()
        deferred = self._served.deferred_digests()
        while True:
            before, deferred = deferred, self._served.deferred_digests()
            reported = self._offering.said()
            servers = [name for name in _servers_of("tools", reported) if self._served.lists_some(name)]
            old_lists, lists = lists, self._served.lists
            old_sight, sight = sight, self._served.visibility.sight
            if self._served.varies_by_client and deferred != before:
                await self._answers.announcements.tools()
            elif (may_differ := lists.may_differ(old_lists)) or servers:
                await self._answers.announcements.tools(
                    # The host may have changed the list, which no server reports to its sessions.
                    () if may_differ else servers,
                    to=partial(self._sees_change, lists, old_lists, servers),
                )
            elif deferred != before:
                await self._answers.announcements.grants()
            news = await self._offering.news()
            for capability in ("resources", "prompts"):
                if sources := _servers_of(capability, reported):
                    news[capability] = news.get(capability, frozenset()).union(sources)
            names = self._served.registry.sources()
            has_policy = old_sight.policy is not None or sight.policy is not None
            flipped = partial(sight.differs, old_sight, names) if has_policy else None
            await self._answers.announcements.offers(news, flipped)
            await self._answers.announcements.lists(self._offering.list_news())
            await self._served.moved.wait()

    def _sees_change(
        self, now: ListVariants, before: ListVariants, servers: Sequence[str], identity: Identity | None
    ) -> bool:
        """True if a caller's list differs, if it may have lost a grant, or if it sees one of `servers`."""
        if now.differs(before, identity) or (self._served.defers and now.policy is not before.policy):
            return True
        return bool(servers) and self._offering.sees_some(servers, identity)

    async def _announce_grants(self) -> None:
        while True:
            await self.revoked.wait()
            await self._answers.announcements.grants()


def _servers_of(capability: str, reported: Mapping[str, frozenset[str]]) -> list[str]:
    """The servers that have reported a change of a capability's list."""
    return [name for name, capabilities in reported.items() if capability in capabilities]
