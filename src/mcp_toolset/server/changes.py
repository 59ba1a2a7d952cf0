"""`News`: compiles the tools again when a source changes, and sends `list_changed` to clients."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from mcp_toolset.concurrency.beside import beside
from mcp_toolset.concurrency.task_set import ThreadEvent
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.errors import NameConflictError, UnknownNameError
from mcp_toolset.server.mcp_server import MCPServer
from mcp_toolset.server.offering import Offering
from mcp_toolset.server.tool_table import ListVariants, ServedTools
from mcp_toolset.server.visibility import Sight
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.core.source import ToolSource, fits

_log = logging.getLogger("mcp_toolset.server")


class News:
    """Compiles anew after changes, and announces what clients see of them."""

    def __init__(self, served: ServedTools, offering: Offering, answers: MCPServer) -> None:
        self.changed = ThreadEvent()  # to be set when tools or members have changed
        self.status = ThreadEvent()  # set when only the status of a source, or what it offers, has changed
        self.revoked = ThreadEvent()  # to be set when grants were taken back
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
            # A toolset of the application's own came to name two tools alike, or a strict rule has no tool;
            # what was served stays.
            except (NameConflictError, UnknownNameError) as fault:
                _log.warning("the tools stay as they were: %s", fault)

    def watching(self, source: ToolSource) -> Callable[[], None]:
        """What a source is to call after a change of any kind: it finds out whether the tools are others."""
        if not fits(source, MountedSource):
            return self.changed.set
        seen = source.snapshot

        def told() -> None:
            nonlocal seen
            before, seen = seen, source.snapshot
            (self.status if seen is before else self.changed).set()

        return told

    async def _follow_status(self) -> None:
        """Take a status in without compiling; a mount that is no longer starting may settle names."""
        while True:
            await self.status.wait()
            if not await self._served.take_statuses():
                self.changed.set()
            self._answers.compose()

    async def _announce(self, told: ListVariants, seen: Sight) -> None:
        """Tell clients about a changed list, however many steps led to it, once."""
        # A server may say that a list has changed which is the same again by now: its clients are told.
        self._served.moved.attach()
        self._served.moved.clear()
        deferred = self._served.deferred_digests()
        while True:
            before, deferred = deferred, self._served.deferred_digests()
            said = self._offering.said()
            saying = [source for source in _saying("tools", said) if self._served.lists_some(source)]
            lists, told = told, self._served.lists
            sight, seen = seen, self._served.visibility.sight
            if (others := told.may_differ(lists)) or saying:
                await self._answers.announcements.tools(
                    # Another list may be the host's doing, of which no session of a client tells it.
                    () if others else saying,
                    to=partial(self._lists_otherwise, told, lists, saying),
                )
            elif deferred != before:
                await self._answers.announcements.grants()
            news = await self._offering.news()
            for capability in ("resources", "prompts"):
                if sources := _saying(capability, said):
                    news[capability] = news.get(capability, frozenset()).union(sources)
            names = self._served.registry.sources()
            may_see_others = sight.policy is not None or seen.policy is not None
            flipped = partial(seen.differs, sight, names) if may_see_others else None
            await self._answers.announcements.offers(news, flipped)
            await self._answers.announcements.lists(self._offering.list_news())
            await self._served.moved.wait()

    def _lists_otherwise(
        self, now: ListVariants, before: ListVariants, saying: Sequence[str], identity: Identity | None
    ) -> bool:
        """Whether a caller sees another list, or a server that says so, or may have lost a grant."""
        if now.differs(before, identity) or (self._served.defers and now.policy is not before.policy):
            return True
        return bool(saying) and self._offering.sees_some(saying, identity)

    async def _announce_grants(self) -> None:
        while True:
            await self.revoked.wait()
            await self._answers.announcements.grants()


def _saying(capability: str, said: Mapping[str, frozenset[str]]) -> list[str]:
    return [name for name, each in said.items() if capability in each]
