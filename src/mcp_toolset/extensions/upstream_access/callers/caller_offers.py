"""`CallerOffers`: resources, prompts and completions of a server, over the connection of each caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import anyio

from mcp_toolset.context.offer_kinds import KINDS, Ending, Kind, ListChange, Offers, Wire
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import ToolsetError
from mcp_toolset.extensions.upstream_access.callers.caller_calls import CallerCalls
from mcp_toolset.protocol.eras import STRICTEST, CacheHint
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.upstream import client_lists
from mcp_toolset.upstream.client_lists import ClientOffers
from mcp_toolset.upstream.connection import UpstreamConnection


class Connections(Protocol):
    """The connections of one mount, as `CallerConnections` has them."""

    timeout: float
    client_offers: ClientOffers

    def of(self, context: ToolContext) -> UpstreamConnection: ...

    async def arrived(self, context: ToolContext, within: float) -> UpstreamConnection:
        """The connection of a caller, once it has been tried."""
        ...

    def every(self) -> Sequence[UpstreamConnection]: ...

    def said_by_callers(self) -> frozenset[str]:
        """`tools`, if the list of a caller is another one by now; told once."""
        ...

    def held(self, context: ToolContext) -> Callable[[], None]:
        """Keep the connection of a caller open; returns what ends that."""
        ...


class CallerOffers(Offers):
    """What the mount itself is listed is listed to requests without a caller alone."""

    def __init__(self, connections: Connections, calls: CallerCalls) -> None:
        """Ask the connection of each caller; `calls` has callers log in first."""
        self._connections = connections
        self._calls = calls
        self._was_open = False

    @property
    def _own(self) -> ClientOffers:
        return self._connections.client_offers

    @property
    def known(self) -> bool:
        """Whether it is known what the mount itself is offered."""
        return self._own.known

    def declares(self, capability: str, feature: str = "") -> bool:
        every = (self._own, *(one.client_offers for one in self._connections.every()))
        return any(offers.declares(capability, feature) for offers in every)

    def may_declare(self) -> bool:
        """Whether callers are to be told that it may have resources and prompts: none has reached it so far.

        What a client has been told once stays so.
        """
        every = (self._own, *(one.client_offers for one in self._connections.every()))
        self._was_open = self._was_open or not any(offers.known for offers in every)
        return self._was_open

    async def learned(self, context: ToolContext, *, log_in: bool) -> bool:
        """Have the lists of a caller be known, who is asked to log in if `log_in` says so.

        See `CallerLogins.log_in` for what it raises.
        """
        if log_in and not await self._calls.log_in(context):
            return False
        for kind in KINDS:
            await self.look(kind, context)
        return True

    async def listed(self, kind: Kind) -> Sequence[Wire]:
        """The entries that requests without a caller see."""
        return await self._own.listed(kind) if self._own.declares(kind.capability) else ()

    async def look(self, kind: Kind, context: ToolContext) -> None:
        """Have the list of a caller be what it is now."""
        try:
            connection = await self._connections.arrived(context, client_lists.PATIENCE)
            await _offered(connection)
            if connection.offers.declares(kind.capability):
                await connection.offers.listed(kind)
            await connection.client_offers.look(kind, context)
        # The list of this caller stays as it was; the lists of other servers are not to fail with it.
        except ToolsetError:
            return

    def listed_to(self, kind: Kind, context: ToolContext) -> Sequence[Wire] | None:
        """The entries that a caller sees; none while its connection has listed nothing."""
        try:
            connection = self._connections.of(context)
        # The reason is told to calls.
        except ToolsetError:
            return ()
        entries = connection.client_offers.listed_to(kind, context)
        if entries is not None or connection.client_offers is self._own:
            return entries
        return connection.offers.common(kind.method) if connection.offers.declares(kind.capability) else ()

    def listed_to_some(self, kind: Kind) -> Sequence[Wire]:
        """The entries that any caller sees."""
        found = list(self._own.listed_to_some(kind))
        for one in self._connections.every():
            if one.offers.declares(kind.capability):
                found += one.offers.common(kind.method) or ()
            found += one.client_offers.listed_to_some(kind)
        return found

    def hint(self, kind: Kind) -> CacheHint:
        return STRICTEST

    def meta(self, kind: Kind) -> Wire:
        """What is one caller's is not told to others."""
        return {}

    async def read(self, uri: str, context: ToolContext) -> Wire:
        """Read a resource for a caller; see `Exchange.perform` for what it raises."""
        return await self._calls.sent(context, lambda one: one.client_offers.read(uri, context))

    async def prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> Wire:
        """Get a prompt for a caller; see `Exchange.perform` for what it raises."""
        return await self._calls.sent(context, lambda one: one.client_offers.prompt(name, arguments, context))

    async def complete(self, params: Mapping[str, Any], context: ToolContext) -> Wire:
        """Complete an argument for a caller; see `Exchange.perform` for what it raises."""
        return await self._calls.sent(context, lambda one: one.client_offers.complete(params, context))

    async def watch(self, uri: str, updated: Callable[[], None], context: ToolContext) -> Ending:
        """Call `updated` when a resource has changed for a caller; its connection stays open meanwhile."""
        if isinstance(context, WireContext) and context.modern:
            # A stream of changes begins at once: it waits for no login.
            connection = await self._connections.arrived(context, self._connections.timeout)
            end = await connection.client_offers.watch(uri, updated, context)
        else:
            end = await self._calls.sent(context, lambda one: one.client_offers.watch(uri, updated, context))
        release = self._connections.held(context)

        async def ended() -> None:
            release()
            await end()

        return ended

    def said(self) -> frozenset[str]:
        """The lists that have changed, of any caller; who listens is told to list again, not what."""
        said = self._own.said() | self._connections.said_by_callers()
        return said.union(*(one.client_offers.said() for one in self._connections.every()))

    def list_news(self) -> Sequence[ListChange]:
        """The lists of single clients that have changed since this was asked last."""
        every = (self._own, *(one.client_offers for one in self._connections.every()))
        return [news for offers in every for news in offers.list_news()]


async def _offered(connection: UpstreamConnection) -> None:
    """Wait, for a little while at most, until it is known what a server offers that has just been reached."""
    known = anyio.Event()

    def look() -> None:
        if connection.offers.known or connection.status.state != "ready":
            known.set()

    stop = connection.on_change(look)
    look()
    try:
        with anyio.move_on_after(client_lists.PATIENCE):
            await known.wait()
    finally:
        stop()
