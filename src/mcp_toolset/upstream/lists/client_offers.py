"""`ClientOffers`: resources, prompts and completions of a mounted server, as each client sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcp_toolset.context.offer_kinds import Ending, Kind, Offers, Wire
from mcp_toolset.context.request import WireContext
from mcp_toolset.protocol.cache_hints import CacheHint
from mcp_toolset.protocol.eras import drop_own
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.upstream.lists.client_lists import ClientLists
from mcp_toolset.upstream.lists.client_watches import ClientWatches
from mcp_toolset.upstream.lists.offers import UpstreamOffers
from mcp_toolset.upstream.lists.resource_watches import ResourceWatches
from mcp_toolset.upstream.sessions.pool import SessionPool
from mcp_toolset.upstream.sessions.pooled_session import OtherEraError

if TYPE_CHECKING:
    from mcp_toolset.context.client import ServedClient
    from mcp_toolset.upstream.lists.client_lists import ListNews


Exchange = Callable[[str, dict[str, Any], ToolContext], Awaitable[dict[str, Any]]]


class ClientOffers(Offers):
    """What all see, and beside it what the sessions of some clients list and tell.

    Attributes:
        summon: Has the server started if it is stopped, and waits for that.
    """

    def __init__(
        self,
        common: UpstreamOffers,
        lists: ClientLists,
        watches: ClientWatches,
        resource_watches: ResourceWatches,
        pool: SessionPool,
        *,
        exchange: Exchange,
        said: Callable[[], frozenset[str]],
        met: Callable[[ToolContext], None],
    ) -> None:
        """Join the parts of one server.

        Args:
            common: What it offers to all.
            lists: What it lists to some.
            watches: What clients watch on sessions of their own.
            resource_watches: What is watched on the session that lists.
            pool: The sessions of clients.
            exchange: Sends a request on behalf of a caller.
            said: Tells once which lists it has said to have changed.
            met: Takes note of who uses the session that lists, beside calls.
        """
        self.summon: Callable[[], Awaitable[None]] = _nothing
        self._said = said
        self._met = met
        self._common = common
        self._lists = lists
        self._watches = watches
        self._resource_watches = resource_watches
        self._exchange = exchange
        self._pool = pool

    @property
    def known(self) -> bool:
        """Whether it is known what the server offers beside its tools."""
        return self._common.known

    def declares(self, capability: str, feature: str = "") -> bool:
        """Whether the server declared a capability, and in it a feature."""
        return self._common.declares(capability, feature)

    async def listed(self, kind: Kind) -> Sequence[Wire]:
        """The entries of a kind that everybody sees."""
        return await self._common.listed(kind)

    async def look(self, kind: Kind, context: ToolContext) -> None:
        """List again what a client sees, where its session tells of no change."""
        if self._common.is_asked_for(kind):
            await self._lists.look(context, kind.method)

    def listed_to(self, kind: Kind, context: ToolContext) -> Sequence[Wire] | None:
        """The entries that a client sees in their place; `None` if it sees the same."""
        taken = self._lists.seen_by(context).get(kind.method)
        return None if taken is None else taken.entries

    def tells_itself(self, client: ServedClient) -> bool:
        """Whether a client has an open session of its own, which tells it of changes."""
        key = self._pool.routing.route_of(client)
        return key is not None and bool(key.client) and self._pool.standing(key) is not None

    def listed_to_some(self, kind: Kind) -> Sequence[Wire]:
        return self._lists.more(kind.method)

    def hint(self, kind: Kind) -> CacheHint:
        """How long the list of all may be kept."""
        return self._common.hint(kind)

    def meta(self, kind: Kind) -> Wire:
        """What the list of all has in `_meta`."""
        return self._common.meta(kind)

    async def read(self, uri: str, context: ToolContext) -> Wire:
        """Read a resource for a caller; see `Exchange.perform` for what it raises."""
        return await self.ask("resources/read", {"uri": uri}, context)

    async def prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> Wire:
        """Get a prompt for a caller; see `Exchange.perform` for what it raises."""
        params: dict[str, Any] = {"name": name}
        if arguments:
            params["arguments"] = dict(arguments)
        return await self.ask("prompts/get", params, context)

    async def complete(self, params: Mapping[str, Any], context: ToolContext) -> Wire:
        """Complete an argument for a caller; see `Exchange.perform` for what it raises."""
        return await self.ask("completion/complete", params, context)

    async def ask(self, method: str, params: Mapping[str, Any], context: ToolContext) -> Wire:
        """Send a request of an extension on for a caller; see `Exchange.perform` for what it raises."""
        answer = await self._exchange(method, dict(params), context)
        drop_own(answer)
        return answer

    def extensions(self) -> dict[str, Any]:
        """The capabilities that the server declares for extensions which the bridge takes no part in."""
        return self._common.extensions()

    async def watch(self, uri: str, updated: Callable[[], None], context: ToolContext) -> Ending:
        """Call `updated` whenever the session of a client says that a resource has changed."""
        await self.summon()
        key = self._pool.routing.key(context) if isinstance(context, WireContext) else None
        if key is not None and isinstance(context, WireContext):
            try:
                return await self._watches.watch(key, context, uri, updated)
            except OtherEraError:
                pass
        self._met(context)
        return await self._resource_watches.watch(uri, updated)

    def said(self) -> frozenset[str]:
        """The lists that the server has said to have changed since this was asked last."""
        return self._said()

    def list_news(self) -> list[ListNews]:
        """The lists of single clients that have changed since this was asked last."""
        return self._lists.news()


async def _nothing() -> None:
    return None
