"""`Announcements`: clients of both eras are told that lists have changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

import anyio

from mcp_toolset.context.client import CLIENT_KEY, ServedClient
from mcp_toolset.context.connection import Connection
from mcp_toolset.context.offer_kinds import ListChange
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.server.offers.resource_handlers import NOTIFY_DEADLINE
from mcp_toolset.server.offers.subscriptions import PROMPTS, RESOURCES, TOOLS, Subscriptions


class Announcements:
    """The legacy sessions of a server, its subscriptions, and what is announced to them."""

    def __init__(self, subscriptions: Subscriptions, offering: Offering) -> None:
        """Know of no session yet.

        Args:
            subscriptions: The modern clients that listen.
            offering: Knows which clients are told by sessions of their own.
        """
        self._subscriptions = subscriptions
        self._offering = offering
        self._sessions: dict[int, Connection] = {}

    def add(self, connection: Connection) -> None:
        """Tell a legacy client from now on, until its connection ends."""
        if id(connection) not in self._sessions:
            self._sessions[id(connection)] = connection
            connection.on_close(partial(self._sessions.pop, id(connection), None))

    async def tools(self, sources: Collection[str] = ()) -> None:
        """Tell clients, of both eras, that the list of tools has changed: that of some sources alone."""
        await self._announce(TOOLS, sources)

    async def grants(self) -> None:
        """Tell every legacy client that its own list may have changed: what it was granted is in it."""
        async with anyio.create_task_group() as group:
            for connection in list(self._sessions.values()):
                group.start_soon(_notify, connection, TOOLS)

    async def offers(self, news: Mapping[str, Collection[str]]) -> None:
        """Tell clients that lists have changed, of `resources`, of `prompts`: those of some sources."""
        if (sources := news.get("resources")) is not None:
            await self._announce(RESOURCES, sources)
        if (sources := news.get("prompts")) is not None:
            await self._announce(PROMPTS, sources)

    async def _announce(self, method: str, sources: Collection[str] = ()) -> None:
        self._subscriptions.publish(method)
        async with anyio.create_task_group() as group:
            for connection in list(self._sessions.values()):
                if not self._hears_by_itself(connection, sources):
                    group.start_soon(_notify, connection, method)

    def _hears_by_itself(self, connection: Connection, sources: Collection[str]) -> bool:
        """Whether a client is told of these sources by sessions of its own, so that this would be twice."""
        client: ServedClient | None = connection.state.get(CLIENT_KEY)
        if client is None or not sources:
            return False
        return all(self._offering.tells_itself(source, client) for source in sources)

    async def lists(self, news: Collection[ListChange]) -> None:
        """Tell the clients of single sessions that what they see has changed."""
        for each in news:
            for connection in list(self._sessions.values()):
                client: ServedClient | None = connection.state.get(CLIENT_KEY)
                if client is not None and each.is_for(client):
                    await _notify(connection, _METHODS[each.capability])
            if not each.of_one_client:
                self._subscriptions.publish(_METHODS[each.capability])

    async def to(self, connection: Connection) -> None:
        """Tell one legacy client that its own list has changed, as by a grant."""
        await _notify(connection, TOOLS)


_METHODS: Final[Mapping[str, str]] = {"tools": TOOLS, "resources": RESOURCES, "prompts": PROMPTS}


async def _notify(connection: Connection, method: str) -> None:
    with anyio.move_on_after(NOTIFY_DEADLINE):
        await connection.notify(method)
