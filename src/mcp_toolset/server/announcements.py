"""`Announcements`: clients of both eras are told that lists have changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

import anyio

from mcp_toolset.context.client import CLIENT_KEY, ServedClient
from mcp_toolset.context.offer_kinds import ListChange
from mcp_toolset.sdk.models import (
    Connection,
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.server.offers.resource_handlers import NOTIFY_DEADLINE


class Announcements:
    """The legacy sessions of a server, its subscriptions, and what is announced to them."""

    def __init__(self, bus: InMemorySubscriptionBus, offering: Offering) -> None:
        """Know of no session yet.

        Args:
            bus: Where modern clients subscribe.
            offering: Knows which clients are told by sessions of their own.
        """
        self._bus = bus
        self._offering = offering
        self._sessions: dict[int, Connection] = {}

    def add(self, connection: Connection) -> None:
        """Tell a legacy client from now on, until its connection ends."""
        if id(connection) not in self._sessions:
            self._sessions[id(connection)] = connection
            connection.exit_stack.callback(self._sessions.pop, id(connection), None)

    async def tools(self, sources: Collection[str] = ()) -> None:
        """Tell clients, of both eras, that the list of tools has changed: that of some sources alone."""
        await self._announce(ToolsListChanged(), Connection.send_tool_list_changed, sources)

    async def grants(self) -> None:
        """Tell every legacy client that its own list may have changed: what it was granted is in it."""
        async with anyio.create_task_group() as group:
            for connection in list(self._sessions.values()):
                group.start_soon(_bounded, connection.send_tool_list_changed)

    async def offers(self, news: Mapping[str, Collection[str]]) -> None:
        """Tell clients that lists have changed, of `resources`, of `prompts`: those of some sources."""
        if (sources := news.get("resources")) is not None:
            await self._announce(ResourcesListChanged(), Connection.send_resource_list_changed, sources)
        if (sources := news.get("prompts")) is not None:
            await self._announce(PromptsListChanged(), Connection.send_prompt_list_changed, sources)

    async def _announce(
        self,
        event: ServerEvent,
        send: Callable[[Connection], Awaitable[None]],
        sources: Collection[str] = (),
    ) -> None:
        await self._bus.publish(event)
        async with anyio.create_task_group() as group:
            for connection in list(self._sessions.values()):
                if not self._hears_by_itself(connection, sources):
                    group.start_soon(_bounded, partial(send, connection))

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
                    await _bounded(partial(_SENDS[each.capability], connection))
            if not each.of_one_client:
                await self._bus.publish(_EVENTS[each.capability]())

    async def to(self, connection: Connection) -> None:
        """Tell one legacy client that its own list has changed, as by a grant."""
        await _bounded(connection.send_tool_list_changed)


_SENDS: Final[Mapping[str, Callable[[Connection], Awaitable[None]]]] = {
    "tools": Connection.send_tool_list_changed,
    "resources": Connection.send_resource_list_changed,
    "prompts": Connection.send_prompt_list_changed,
}
_EVENTS: Final[Mapping[str, Callable[[], ServerEvent]]] = {
    "tools": ToolsListChanged,
    "resources": ResourcesListChanged,
    "prompts": PromptsListChanged,
}


async def _bounded(send: Any) -> None:
    with anyio.move_on_after(NOTIFY_DEADLINE):
        await send()
