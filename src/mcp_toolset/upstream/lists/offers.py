"""`UpstreamOffers`: what a mounted server offers beside its tools, as it last listed it.

A list is taken when the connection is made and again when the server says that it has changed. A
server that declares no such news is asked once more when a client lists, after its own hint.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, cast

import anyio

from mcp_toolset.context.offer_kinds import KINDS, Ending, Kind, Wire
from mcp_toolset.errors import UpstreamError, UpstreamProtocolError, UpstreamUnavailableError
from mcp_toolset.protocol.cache_hints import CacheHint
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.eras import meta_of
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.text.hidden_text import HiddenTextPolicy, in_log
from mcp_toolset.upstream.lists.offer_list import NOTHING_LISTED, OfferList, checked_list
from mcp_toolset.upstream.pagination import Listing, NotAListError

LIST_DEADLINE: Final = 5.0
"""Seconds that one list may take beside the tools; a server that does not answer keeps its last one."""

LEAST_AGE: Final = 1.0
"""Seconds for which a list without news of changes is not asked for again."""

REFRESH_GAP: Final = 0.5
"""Seconds between one listing and the next, however many changes are announced."""

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
UPDATED: Final = "notifications/resources/updated"
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_CHANGED: Final = {
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}

Request = Callable[..., Awaitable[dict[str, Any]]]
Exchange = Callable[[str, dict[str, Any], ToolContext], Awaitable[dict[str, Any]]]


@dataclass(eq=False)
class _Stream:
    """A stream on which a modern server tells of changed resources.

    Attributes:
        holds: Set when the server has acknowledged it, or it has ended.
    """

    uris: list[str]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    holds: anyio.Event = field(default_factory=anyio.Event)


class UpstreamOffers:
    """The resources, prompts and completions of one mounted server.

    Attributes:
        known: Whether it is known what the server offers, from this run or the last.
        resting: Whether the session that lists is closed for now, so that what it listed stays.
    """

    def __init__(
        self,
        name: str,
        *,
        request: Request,
        exchange: Exchange,
        changed: Callable[[], None],
        hidden_text: HiddenTextPolicy = "strip",
    ) -> None:
        """Nothing is offered before `take`.

        Args:
            name: The name of the mount.
            request: Sends a request of our own.
            exchange: Sends one on behalf of a caller.
            changed: To be called when a list is another one.
            hidden_text: What to do about invisible and control characters in what it lists.
        """
        self._name = name
        self._hidden_text: HiddenTextPolicy = hidden_text
        self._request = request
        self._exchange = exchange
        self._changed = changed
        self.known = False
        self.resting: Callable[[], bool] = lambda: False
        self._declared: Mapping[str, Any] = {}
        self._modern = False
        self._lists: dict[str, OfferList] = {}
        self._stale: set[str] = set()
        self._telling: set[str] = set()
        self._said: set[str] = set()
        self._news = anyio.Event()
        self._listing = anyio.Lock()
        self._watchers: dict[str, dict[object, Callable[[], None]]] = {}
        self._rewatch = anyio.Event()
        self._streams: dict[str, _Stream] = {}
        self._numbers = count(1)
        self._told_of: frozenset[str] | None = None
        self._retold = anyio.Event()
        self._followed_by: UpstreamOffers | None = None
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

    @property
    def set_aside(self) -> tuple[tuple[str, str], ...]:
        """What could not be used of the lists, with the reason for each."""
        return tuple(entry for kind in KINDS for entry in self._list(kind).set_aside)

    def declares(self, capability: str, feature: str = "") -> bool:
        """Whether the server declared a capability, and in it a feature; remembered while it is away.

        A server of 2026-07-28 is told with each request which log messages are wanted: a client of an older
        revision can always set its level (`setLevel`), as the bridge keeps it.
        """
        if (capability, feature) == ("logging", "setLevel"):
            return self._modern or self.declares("logging")
        declared: Any = self._declared.get(capability)
        if not isinstance(declared, Mapping) or not feature:
            return isinstance(declared, Mapping)
        return cast("Mapping[str, Any]", declared).get(feature) is True

    async def take(self, declared: Mapping[str, Any], *, modern: bool) -> None:
        """Take the lists of a new connection, and resume what is watched.

        Raises:
            UpstreamUnavailableError: the connection was lost.
        """
        self._declared, self._modern = declared, modern
        self._stale.clear()
        # An earlier connection may have waited on another event loop.
        self._news = anyio.Event()
        async with anyio.create_task_group() as group:
            for kind in KINDS:
                group.start_soon(self._take_list, kind)
        if not self.known:
            self.known = True
            self._changed()
        if not modern and self.declares("resources", "subscribe"):
            for uri in list(self._watchers):
                await self._tried("resources/subscribe", {"uri": uri})

    @property
    def declared(self) -> Mapping[str, Any]:
        """What the server declared last."""
        return self._declared

    def entries(self) -> dict[str, Sequence[Wire]]:
        """The usable entries of each list, by the method that lists them."""
        return {method: held.sequence for method, held in self._lists.items() if held.entries}

    def remember(self, declared: Mapping[str, Any], lists: Mapping[str, Sequence[Wire]]) -> None:
        """Offer what the last run knew, until the server has listed."""
        self._declared, self.known = declared, True
        for kind in KINDS:
            listing = Listing(kind.method, kind.key, tools=list(lists.get(kind.method, ())))
            self._lists[kind.method] = checked_list(kind, listing, self._hidden_text)

    def settle(self, hidden_text: HiddenTextPolicy) -> None:
        """Take another policy about hidden text; what was listed is listed again for it."""
        if hidden_text != self._hidden_text:
            self._hidden_text = hidden_text
            self.outdated()

    async def follow(self, before: UpstreamOffers) -> None:
        """Watch from now on what is watched over another connection of the same mount, which ends.

        Whoever watches is told once: what the server says now may be something else.
        """
        before._followed_by = self
        watched, before._watchers = before._watchers, {}
        for uri, watchers in watched.items():
            known = uri in self._watchers
            self._watchers.setdefault(uri, {}).update(watchers)
            if not known and self.declares("resources", "subscribe"):
                await self._resumed(uri)
            for updated in list(watchers.values()):
                updated()

    async def _resumed(self, uri: str) -> None:
        try:
            await self._subscribe("resources/subscribe", uri)
        except UpstreamError as fault:
            self._log.warning("%s is not watched any more: %s", in_log(uri), in_log(fault))

    def heard(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take in a notification; `False` if it is none of resources or prompts."""
        if method == ACKNOWLEDGED:
            stream = self._streams.get(subscription_in(params))
            if stream is not None:
                stream.holds.set()
            return stream is not None
        if method == UPDATED:
            for updated in list(self._watchers.get(str((params or {}).get("uri")), {}).values()):
                updated()
            return True
        if method not in _CHANGED:
            return False
        self._telling.add(_CHANGED[method])
        self.outdated(_CHANGED[method])
        return True

    def said(self) -> set[str]:
        """Of `resources` and `prompts`: what the server has said to have changed, once listed again."""
        said, self._said = self._said, set()
        return said

    def outdated(self, *capabilities: str) -> None:
        """List again what belongs to these capabilities; all of it if none is named."""
        self._stale.update(capabilities or ("resources", "prompts"))
        self._news.set()

    async def keep_fresh(self) -> None:
        """List again after changes; any number of them during one listing cause one more."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            stale, self._stale = self._stale, set()
            telling, self._telling = self._telling, set()
            for kind in KINDS:
                if kind.capability in stale:
                    await self._take_list(kind)
            if telling:
                self._said |= telling
                self._changed()
            await anyio.sleep(REFRESH_GAP)

    async def keep_watching(self) -> None:
        """Hold a stream for the watched resources of a modern server, another one whenever they change.

        The one before ends when the server has acknowledged the next one, so that no update is lost.
        """
        before: _Stream | None = None
        try:
            async with anyio.create_task_group() as group:
                while True:
                    self._rewatch = anyio.Event()
                    stream = _Stream(list(self._watchers))
                    if stream.uris and self.declares("resources", "subscribe"):
                        group.start_soon(self._listen, stream)
                        with anyio.move_on_after(LIST_DEADLINE):
                            await stream.holds.wait()
                    if before is not None:
                        before.scope.cancel()
                    before = stream
                    self._tell_watched(frozenset(stream.uris))
                    await self._rewatch.wait()
        finally:
            self._tell_watched(None)

    def _tell_watched(self, uris: frozenset[str] | None) -> None:
        """Note what the server tells the changes of; `None` while it is not asked to."""
        self._told_of = uris
        self._retold.set()
        self._retold = anyio.Event()

    async def _until_told(self, uri: str) -> None:
        """Wait, for a little while at most, until a modern server tells the changes of a resource."""
        with anyio.move_on_after(LIST_DEADLINE):
            while self._told_of is not None and uri not in self._told_of:
                await self._retold.wait()

    async def _listen(self, stream: _Stream) -> None:
        wanted = {"notifications": {"resourceSubscriptions": stream.uris}}
        with stream.scope:
            while True:
                number = f"watch-{next(self._numbers)}"
                self._streams[number] = stream
                try:
                    if not await self._tried("subscriptions/listen", wanted, {"request_id": number}):
                        return
                finally:
                    del self._streams[number]
                    stream.holds.set()
                await anyio.sleep(REFRESH_GAP)

    async def _tried(self, method: str, params: dict[str, Any], opts: CallOptions | None = None) -> bool:
        try:
            # Each time another one: what is sent is stamped.
            await self._request(method, dict(params), opts=opts)
        except UpstreamError as fault:
            self._log.log(_level_of(fault), "%s failed: %s", method, fault)
            return False
        return True

    async def listed(self, kind: Kind) -> Sequence[Wire]:
        """The entries of a kind; asked for again only where nothing would tell of a change."""
        if not self.resting() and self.is_asked_for(kind):
            await self._relist(kind)
        return self._list(kind).sequence

    def is_asked_for(self, kind: Kind) -> bool:
        """Whether a list is asked for whenever it is looked at, as the server tells of no change."""
        return self.declares(kind.capability) and not self.declares(kind.capability, "listChanged")

    @property
    def watched(self) -> bool:
        """Whether anybody watches a resource here."""
        return any(self._watchers.values())

    async def _relist(self, kind: Kind) -> None:
        async with self._listing:
            held = self._list(kind)
            if anyio.current_time() - held.taken > max(LEAST_AGE, held.hint.ttl_ms / 1000):
                await self._take_list(kind)

    def hint(self, kind: Kind) -> CacheHint:
        """How long the list may be kept from now on; see `UpstreamConnection.list_hint`."""
        held = self._list(kind)
        if self.declares(kind.capability, "listChanged"):
            return held.hint
        return held.hint.aged(anyio.current_time() - held.taken)

    def meta(self, kind: Kind) -> Wire:
        """What the list has in `_meta`."""
        return self._list(kind).meta

    async def read(self, uri: str, context: ToolContext) -> Wire:
        """Read a resource for a caller; see `exchange` for what it raises."""
        return await self._exchange("resources/read", {"uri": uri}, context)

    async def prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> Wire:
        """Get a prompt for a caller; see `exchange` for what it raises."""
        params: dict[str, Any] = {"name": name}
        if arguments:
            params["arguments"] = dict(arguments)
        return await self._exchange("prompts/get", params, context)

    async def complete(self, params: Mapping[str, Any], context: ToolContext) -> Wire:
        """Complete an argument for a caller; see `exchange` for what it raises."""
        return await self._exchange("completion/complete", dict(params), context)

    async def watch(self, uri: str, updated: Callable[[], None]) -> Ending:
        """Call `updated` whenever the server says that a resource has changed; returns what ends that.

        Raises:
            UpstreamError: the server refused, or cannot be asked.
        """
        key = object()
        watchers = self._watchers.setdefault(uri, {})
        watchers[key] = updated
        try:
            if len(watchers) == 1:
                await self._subscribe("resources/subscribe", uri)
            if self._modern:
                await self._until_told(uri)
        except (UpstreamError, anyio.get_cancelled_exc_class()):
            await self._unwatch(uri, key, quietly=True)
            raise

        async def end() -> None:
            await self._unwatch(uri, key)

        return end

    async def _unwatch(self, uri: str, key: object, *, quietly: bool = False) -> None:
        if self._followed_by is not None:
            return await self._followed_by._unwatch(uri, key, quietly=quietly)
        watchers = self._watchers.get(uri, {})
        if watchers.pop(key, None) is None or watchers:
            return
        del self._watchers[uri]
        try:
            if not quietly:
                await self._subscribe("resources/unsubscribe", uri)
        except UpstreamError as fault:
            self._log.debug("unsubscribing failed: %s", in_log(fault))

    async def _subscribe(self, method: str, uri: str) -> None:
        if self._modern:
            self._rewatch.set()
            return
        with anyio.move_on_after(LIST_DEADLINE):
            await self._request(method, {"uri": uri})

    def _list(self, kind: Kind) -> OfferList:
        return self._lists.get(kind.method, NOTHING_LISTED)

    async def _take_list(self, kind: Kind) -> None:
        if not self.declares(kind.capability):
            taken = OfferList()
        else:
            found = await self._walked(kind)
            if found is None:
                return
            taken = found
        before, self._lists[kind.method] = self._list(kind), taken
        if before.entries != taken.entries:
            self._changed()

    async def _walked(self, kind: Kind) -> OfferList | None:
        listing = Listing(kind.method, kind.key)
        try:
            await listing.walk(self._request, LIST_DEADLINE)
        except UpstreamProtocolError as fault:
            # Templates have no capability of their own, so a server may know no such method.
            self._log.log(
                logging.DEBUG if fault.code == -32601 else logging.WARNING, "%s: %s", kind.method, fault
            )
            return OfferList(taken=anyio.current_time()) if fault.code == -32601 else None
        except (UpstreamError, TimeoutError, NotAListError) as fault:
            reason = str(fault) or "no answer in time"
            self._log.log(_level_of(fault), "%s failed, the last list stays: %s", kind.method, reason)
            return None
        return self.checked(kind, listing)

    def checked(self, kind: Kind, listing: Listing) -> OfferList:
        """The usable entries of a list."""
        return checked_list(kind, listing, self._hidden_text)

    def common(self, method: str) -> Sequence[Wire] | None:
        """What was listed last by a method; `None` if nothing was."""
        held = self._lists.get(method) if self.known else None
        return None if held is None else held.sequence


def _level_of(fault: Exception) -> int:
    """How loud a failure is: the status of the mount tells of a lost or closed connection already."""
    return logging.DEBUG if isinstance(fault, UpstreamUnavailableError) else logging.WARNING


def subscription_in(params: Mapping[str, Any] | None) -> str:
    """The id of the request whose stream a notification is of (2026-07-28)."""
    return str(meta_of(params or {}).get(_SUBSCRIPTION))
