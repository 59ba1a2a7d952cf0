"""`ClientLists`: tools that a server lists only to some clients (docs/sessions.md).

A server may list tools only to clients that can be asked for something, and an older server's list may
follow what a session did. So lists are kept per era and capability set, until a session says that one of
its lists has changed: from then on the clients of that session see its own list. What is not here is
the same as in the session that lists.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from typing import Any, Final, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.context.connection import ServedClient
from mcp_toolset.context.offer_kinds import KINDS, Ending, Kind, ListChange, Offers, Wire
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.task import TASKS
from mcp_toolset.errors import UpstreamError, UpstreamProtocolError
from mcp_toolset.protocol.eras import STRICTEST, CacheHint, drop_own
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.hidden_text import HiddenTextPolicy, cleaned_metadata, hidden_in, visible
from mcp_toolset.upstream import lists as common_lists
from mcp_toolset.upstream.in_flight import carried_to
from mcp_toolset.upstream.lists import ClientWatches, ResourceWatches, UpstreamTools, level_of
from mcp_toolset.upstream.resting import SETTLING, ListingSession
from mcp_toolset.upstream.routing import NOTHING_DECLARED, Routing, SessionKey, Shelf, canonical
from mcp_toolset.upstream.session import OtherEraError, PagedList, PooledSession, SessionPool

LIST_TIMEOUT: Final = 5.0  # seconds that one list of a session may take

TOOLS: Final = "tools/list"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
_KEYS: Final = {TOOLS: "tools", **{kind.method: kind.key for kind in KINDS}}
_IDENTITIES: Final = {TOOLS: "name", **{kind.method: kind.identity for kind in KINDS}}

CAPABILITIES: Final = {TOOLS: "tools", **{kind.method: kind.capability for kind in KINDS}}
"""The capability that a server declares which answers a method that lists."""

METHODS_OF_CHANGE: Final = {
    f"notifications/{capability}/list_changed": tuple(
        method for method, each in CAPABILITIES.items() if each == capability
    )
    for capability in ("tools", "resources", "prompts")
}
"""The methods that list what a notification says to have changed."""

Request = Callable[..., Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class TakenList:
    """One list as it was taken."""

    entries: Sequence[Wire]  # what it holds, in wire form, as untrusted as it comes
    names: frozenset[str]  # the names or addresses of the entries


TIMEOUT: Final = 5.0
"""Seconds that a client's list waits for the first list of its capability set; some clients list once."""

REFRESH_GAP: Final = 0.5  # seconds between one listing and the next, however many changes are announced


@dataclass(frozen=True)
class OfferList:
    """One list as it was taken."""

    entries: Mapping[str, Wire] = field(default_factory=dict[str, Wire])
    set_aside: tuple[tuple[str, str], ...] = ()  # `(name, reason)` of those that are not usable
    hint: CacheHint = STRICTEST  # how long it may be kept, counted from `taken`, a time of the event loop
    taken: float = float("-inf")
    meta: Wire = field(default_factory=dict[str, Any])  # what the list itself has in `_meta`

    @cached_property
    def sequence(self) -> Sequence[Wire]:
        return tuple(self.entries.values())


def checked_list(kind: Kind, listing: PagedList, policy: HiddenTextPolicy) -> OfferList:
    """The entries that the protocol allows; one that is broken goes alone."""
    entries: dict[str, Wire] = {}
    set_aside: list[tuple[str, str]] = []
    for entry in listing.tools:
        fault = (
            kind.shape.fault(entry) if type(cast("object", entry)) is dict else f"{kind.identity} is missing"
        )
        if fault is not None:
            set_aside.append((_shown(kind, entry), f"{kind.key}: {fault}"))
            continue
        name = str(entry[kind.identity])
        if name in entries:
            set_aside.append((name, f"{kind.key}: it is listed twice; the first one is used"))
            continue
        tidy = entry if policy == "flag" else cast("Wire", cleaned_metadata(entry))
        # Cleaning an identity would change which thing it is.
        if tidy[kind.identity] != name or (policy == "refuse" and tidy != entry):
            found = ", ".join(hidden_in(json.dumps(entry, ensure_ascii=False)))
            set_aside.append((visible(name), f"{kind.key}: it has hidden text: {found}"))
            continue
        entries[name] = tidy
    return OfferList(entries, tuple(set_aside), listing.hint, listing.began, listing.meta)


def _shown(kind: Kind, entry: Any) -> str:
    name: Any = cast("Mapping[str, Any]", entry).get(kind.identity) if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) and name else "(no name)"


NOTHING_LISTED: Final = OfferList()


CAPABILITY_CHANGED: Final = {
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}
"""The capability whose lists a notification says to have changed, beside that of tools."""


def _sees(routing: Routing, session: SessionKey, shared: bool, client: ServedClient) -> bool:
    """True if a client sees the lists of a session; if `shared`, all do that declare the same."""
    key = routing.route_of(client)
    return key is not None and (key == session or (shared and key.shelf == session.shelf))


Lists = Mapping[str, TakenList]
_AS_ALL: Final[Lists] = {}


class ClientLists:
    """The lists of one server that are for some of its clients."""

    def __init__(
        self, name: str, pool: SessionPool, tools: UpstreamTools, offers: ClientOffers, *, request: Request
    ) -> None:
        self._name = name
        self._pool = pool
        self._tools = tools
        self._offers = offers
        self._request = request
        self._shelves: dict[Shelf, Lists] = {}
        self._own: dict[SessionKey, dict[str, TakenList]] = {}
        self._asked_for: dict[Shelf, anyio.Event] = {}
        self._late: set[Shelf] = set()
        self._early: dict[str, WireContext] = {}
        self._changed_tools: dict[SessionKey | Shelf, dict[str, Wire]] = {}
        self._stale: dict[int, dict[str, bool]] = {}
        self._looked: dict[tuple[int, str], float] = {}
        self._news: list[ListChange] = []
        self._varies = False
        self.merge: Callable[[], Awaitable[None]] = _nothing  # takes in what only some clients are listed
        self.on_change: Callable[[], None] = lambda: None  # to be called when that has been done
        self.on_heard: Callable[[str], None] = lambda method: None
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

    def seen_by(self, context: ToolContext) -> Lists:
        if not self._varies or not isinstance(context, WireContext):
            return _AS_ALL
        key = self._pool.routing.key(context)
        shelf = self._shelf(key, context)
        shared = _AS_ALL if shelf is None else self._shelves.get(shelf, _AS_ALL)
        own = None if key is None else self._own.get(key)
        return {**shared, **own} if own else shared

    def more(self, method: str) -> list[Wire]:
        lists = [*self._shelves.values(), *self._own.values()]
        return [entry for each in lists if method in each for entry in each[method].entries]

    def changed_tools(self) -> dict[str, Wire]:
        """The tools that sessions of clients have said to be others than before; the last one counts."""
        return {name: tool for tools in self._changed_tools.values() for name, tool in tools.items()}

    def news(self) -> list[ListChange]:
        told, self._news = self._news, []
        return told

    def _shelf(self, key: SessionKey | None, context: WireContext) -> Shelf | None:
        """The key of lists for the capability set of a client; `None` if it sees the list of all clients."""
        routing = self._pool.routing
        if routing.options.shows:
            return None
        declares = canonical(carried_to(routing.link, context)) if key is None else key.declares
        if declares == NOTHING_DECLARED or (key is None and not routing.is_modern):
            return None
        return ("modern", declares, routing.credentials_of(context)) if key is None else key.shelf

    def unknown(self, context: ToolContext) -> bool:
        """True while it is unknown what the server lists to clients like this one."""
        if not isinstance(context, WireContext):
            return False
        if not self._pool.listens:
            if not context.modern:
                self._early[context.client_key or ""] = context
            return False
        key = self._pool.routing.key(context)
        shelf = self._shelf(key, context)
        if shelf is None:
            # A legacy client is known to the pool for as long as it is connected; nothing tells this one.
            self._pool.uses_listing |= context.modern
            return False
        return shelf not in self._shelves and not self._has_own(key)

    def _has_own(self, key: SessionKey | None) -> bool:
        return key is not None and key in self._own

    def begin(self) -> None:
        """The server has listed, so find out what it lists to clients that have asked before."""
        early, self._early = self._early, {}
        for context in early.values():
            shelf = self._shelf(self._pool.routing.key(context), context)
            if shelf is not None and self.unknown(context):
                self._late.add(shelf)
                self._pool.start(self.learned, context)

    async def learned(self, context: ToolContext) -> None:
        if not isinstance(context, WireContext):
            return
        key = self._pool.routing.key(context)
        shelf = self._shelf(key, context)
        if shelf is None or shelf in self._shelves or self._has_own(key):
            return
        known = self._asked_for.get(shelf)
        if known is None:
            known = self._asked_for[shelf] = anyio.Event()
            self._pool.start(self._learn, shelf, key, context, known)
        with anyio.move_on_after(TIMEOUT) as waiting:
            await known.wait()
        if waiting.cancelled_caught:
            self._late.add(shelf)

    async def _learn(
        self, shelf: Shelf, key: SessionKey | None, context: WireContext, known: anyio.Event
    ) -> None:
        lists: Lists | None = _AS_ALL
        found = False
        try:
            lists = await self._first_lists(shelf, key, context)
            found = lists is not None and not self._pool.routing.is_modern
        except (UpstreamError, OtherEraError, TimeoutError) as fault:
            self._log.info("what it lists to clients that declare %s is not known: %s", shelf[1], fault)
        try:
            if lists is not None:
                self._shelves[shelf] = {**lists, **self._shelves.get(shelf, _AS_ALL)}
            if lists:
                # A client that waits for it is answered with it; others are told.
                await self._changed(key if shelf in self._late else None, lists)
        finally:
            self._late.discard(shelf)
            self._asked_for.pop(shelf, None)
            known.set()
        if found:
            await anyio.sleep(SETTLING)
            if self._shelves.get(shelf) == _AS_ALL:
                self._pool.routing.note_same(shelf)

    async def _first_lists(self, shelf: Shelf, key: SessionKey | None, context: WireContext) -> Lists | None:
        """The lists of such clients that differ; `None` if calls have changed those of the session."""
        if self._pool.routing.is_modern:
            # Each request says what its client can do: the session that lists can ask for all of them.
            return await self._differing(partial(self._request, context=context))
        if key is None or self._pool.routing.same(shelf):
            return _AS_ALL
        pooled = await self._pool.take(key, context, within=LIST_TIMEOUT)
        try:
            session = await pooled.opened()
            lists = await self._differing(session.request)
        finally:
            self._pool.give_back(pooled)
        if self._has_own(key) or (pooled.called and pooled.serial in self._stale):
            return None
        # What a call may have changed unannounced is looked at for each client; see `look`.
        return {
            method: each
            for method, each in lists.items()
            if not pooled.called or self._offers.declares(CAPABILITIES[method], "listChanged")
        }

    def heard(self, pooled: PooledSession, method: str, params: Mapping[str, Any] | None) -> bool:
        methods = METHODS_OF_CHANGE.get(method)
        if methods is None:
            return False
        pooled.stays = pooled.called and bool(pooled.key.client)
        self._list_again(pooled, dict.fromkeys(methods, True))
        self.on_heard(method)
        return True

    def _list_again(self, pooled: PooledSession, methods: Mapping[str, bool]) -> None:
        """List again for one session; each method with whether the session has said that it lists others."""
        waiting = self._stale.get(pooled.serial)
        if waiting is not None:
            waiting.update({method: said or waiting.get(method, False) for method, said in methods.items()})
            return
        self._stale[pooled.serial] = dict(methods)
        self._pool.start(self._refresh, pooled)

    async def _refresh(self, pooled: PooledSession) -> None:
        try:
            await pooled.open.wait()
            while stale := self._stale[pooled.serial]:
                self._stale[pooled.serial] = {}
                await self._take_own(pooled, stale)
                await anyio.sleep(REFRESH_GAP)
        except (UpstreamError, TimeoutError) as fault:
            self._log.warning("listing again for a client failed, the last list stays: %s", fault)
        finally:
            del self._stale[pooled.serial]

    async def _take_own(self, pooled: PooledSession, stale: Mapping[str, bool]) -> None:
        taken = {method: await self._taken(pooled.session.request, method) for method in sorted(stale)}
        if pooled.ended.is_set():
            return
        lists = {method: each for method, each in taken.items() if each is not None}
        # Servers add tools after the handshake: what no call has caused is listed to all such clients.
        key, shelf = pooled.key, pooled.key.shelf
        shared = self._shelves.get(shelf, _AS_ALL)
        before = {**shared, **self._own.get(key, _AS_ALL)}
        news = [
            method
            for method, each in taken.items()
            if stale[method] or (each and not self._is_seen(each, method, before.get(method)))
        ]
        if pooled.called:
            self._own.setdefault(key, {}).update(lists)
        else:
            self._shelves[shelf] = {**shared, **lists}
        if TOOLS in lists:
            self._note_changed(key if pooled.called else shelf, before.get(TOOLS), lists[TOOLS])
        if news:
            await self._changed(key, news, shared=not pooled.called)

    def _note_changed(self, whose: SessionKey | Shelf, before: TakenList | None, now: TakenList) -> None:
        """Note the tools that are other ones under the same name; a tool that is new changes none."""
        known = {tool.get("name"): tool for tool in self._seen(TOOLS, before)}
        changed = self._changed_tools.pop(whose, {})
        changed |= {
            str(tool.get("name")): tool
            for tool in now.entries
            if tool.get("name") in known and known[tool.get("name")] != tool
        }
        changed = {name: tool for name, tool in changed.items() if name in now.names}
        if changed:
            self._changed_tools[whose] = changed

    def has_session(self, context: ToolContext) -> bool:
        return self._session_of(context) is not None

    def _session_of(self, context: ToolContext) -> PooledSession | None:
        key = self._pool.routing.key(context) if isinstance(context, WireContext) else None
        pooled = None if key is None else self._pool.standing(key)
        return pooled if pooled is not None and pooled.open.is_set() else None

    async def look(self, context: ToolContext, method: str) -> None:
        """List again on the session of a client, whose server tells of no change of this list."""
        pooled = self._session_of(context)
        if pooled is None:
            return
        looked = (pooled.serial, method)
        last = self._looked.get(looked, float("-inf"))
        if pooled.used_at <= last and anyio.current_time() - last < REFRESH_GAP:
            return
        self._looked[looked] = anyio.current_time()
        try:
            taken = await self._taken(pooled.session.request, method)
        except (UpstreamError, TimeoutError) as fault:
            self._log.info("listing again for a client failed, the last list stays: %s", fault)
            return
        seen = self.seen_by(context).get(method)
        if taken is None or pooled.ended.is_set() or self._is_seen(taken, method, seen):
            return
        self._own.setdefault(pooled.key, {})[method] = taken
        if method == TOOLS:
            self._note_changed(pooled.key, seen, taken)
        await self._changed()

    def ended(self, pooled: PooledSession) -> None:
        self._looked = {place: at for place, at in self._looked.items() if place[0] != pooled.serial}
        self._changed_tools.pop(pooled.key, None)
        own = self._own.pop(pooled.key, None)
        if own and self._pool.listens:
            self._pool.start(self._changed, pooled.key, own)

    async def outdated(self) -> None:
        """The session that lists has another list by now, so others may have."""
        for key, lists in self._own.items():
            pooled = self._pool.standing(key)
            if pooled is not None:
                self._list_again(pooled, dict.fromkeys(lists, False))
        if self._shelves:
            self._shelves = {}
            self._changed_tools = {key: each for key, each in self._changed_tools.items() if key in self._own}
            await self._changed()

    async def _changed(
        self, key: SessionKey | None = None, methods: Iterable[str] = (), *, shared: bool = False
    ) -> None:
        self._varies = any(self._shelves.values()) or bool(self._own)
        await self.merge()
        if key is not None:
            capabilities = sorted({CAPABILITIES[method] for method in methods})
            sees = partial(_sees, self._pool.routing, key, shared)
            self._news += [ListChange(capability, key.client, sees) for capability in capabilities]
        self.on_change()

    def _common(self, method: str) -> Sequence[Wire] | None:
        if method == TOOLS:
            return self._tools.entries
        return self._offers.common(method) if self._offers.declares(CAPABILITIES[method]) else None

    def _usable(self, listing: PagedList) -> Sequence[Wire]:
        if listing.method == TOOLS:
            return [cast("Wire", entry) for entry in listing.tools if isinstance(entry, dict)]
        kind = next(kind for kind in KINDS if kind.method == listing.method)
        return self._offers.checked(kind, listing).sequence

    async def _taken(self, request: Request, method: str) -> TakenList | None:
        listing = PagedList(method, _KEYS[method])
        try:
            await listing.walk(self._name, request, LIST_TIMEOUT)
        except UpstreamError as fault:
            if getattr(fault, "code", None) is None:
                raise
            return None
        entries = self._usable(listing)
        identity = _IDENTITIES[method]
        return TakenList(entries, frozenset(str(entry.get(identity)) for entry in entries))

    async def _differing(self, request: Request) -> dict[str, TakenList]:
        """The lists that are others than everybody is listed; see `taken` for what it raises."""
        found: dict[str, TakenList] = {}
        for method in _KEYS:
            common = self._common(method)
            taken = None if common is None else await self._taken(request, method)
            if taken is not None and common is not None and list(taken.entries) != list(common):
                found[method] = taken
        return found

    def _is_seen(self, taken: TakenList, method: str, seen: TakenList | None) -> bool:
        return list(taken.entries) == list(self._seen(method, seen))

    def _seen(self, method: str, own: TakenList | None) -> Sequence[Wire]:
        return (self._common(method) if own is None else own.entries) or ()


async def _nothing() -> None:
    return None


Exchange = Callable[[str, dict[str, Any], ToolContext], Awaitable[dict[str, Any]]]


class ClientOffers(Offers):
    """The resources, templates and prompts of a mounted server: listed to all, and to some clients."""

    def __init__(
        self,
        name: str,
        pool: SessionPool,
        tools: UpstreamTools,
        listing: ListingSession,
        *,
        changed: Callable[[], None],
        exchange: Exchange,
        said: Callable[[], frozenset[str]],
    ) -> None:
        self._name = name
        self._hidden_text: HiddenTextPolicy = tools.pins.hidden_text
        self._session = listing
        self._changed = changed
        self.resting: Callable[[], bool] = lambda: False  # the session that lists is closed for now
        self.declared: Mapping[str, Any] = {}
        self._modern = self._is_known = False
        self._lists: dict[str, OfferList] = {}
        self._stale: set[str] = set()
        self._telling: set[str] = set()
        self._said: set[str] = set()
        self._news = anyio.Event()
        self._listing = anyio.Lock()
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")
        self.summon: Callable[[], Awaitable[None]] = _nothing  # starts a stopped server
        self.said = said
        self.lists = ClientLists(name, pool, tools, self, request=listing.request)
        self.list_news = self.lists.news
        self.watches = ResourceWatches(name, listing.request, self.declares)
        self.client_watches = ClientWatches(name, pool)
        self._exchange = exchange
        self._pool = pool

    async def look(self, kind: Kind, context: ToolContext) -> None:
        if self.is_asked_for(kind):
            await self.lists.look(context, kind.method)

    def listed_to(self, kind: Kind, context: ToolContext) -> Sequence[Wire] | None:
        taken = self.lists.seen_by(context).get(kind.method)
        return None if taken is None else taken.entries

    def tells_itself(self, client: ServedClient) -> bool:
        key = self._pool.routing.route_of(client)
        return key is not None and bool(key.client) and self._pool.standing(key) is not None

    def listed_to_some(self, kind: Kind) -> Sequence[Wire]:
        return self.lists.more(kind.method)

    async def read(self, uri: str, context: ToolContext) -> Wire:
        return await self.ask("resources/read", {"uri": uri}, context)

    async def prompt(self, name: str, arguments: Mapping[str, str], context: ToolContext) -> Wire:
        params: dict[str, Any] = {"name": name}
        if arguments:
            params["arguments"] = dict(arguments)
        return await self.ask("prompts/get", params, context)

    async def complete(self, params: Mapping[str, Any], context: ToolContext) -> Wire:
        return await self.ask("completion/complete", params, context)

    async def ask(self, method: str, params: Mapping[str, Any], context: ToolContext) -> Wire:
        answer = await self._exchange(method, dict(params), context)
        drop_own(answer)
        return answer

    async def tell(self, method: str, params: Mapping[str, Any], context: ToolContext) -> None:
        await self.summon()
        key = self._pool.routing.key(context) if isinstance(context, WireContext) else None
        if key is None or not isinstance(context, WireContext):
            return await self._session.main.notify(method, params)
        pooled = await self._pool.take(key, context, within=LIST_TIMEOUT)
        try:
            await (await pooled.opened()).notify(method, params)
        except OtherEraError:
            await self._session.main.notify(method, params)
        finally:
            self._pool.give_back(pooled)

    async def watch(self, uri: str, updated: Callable[[], None], context: ToolContext) -> Ending:
        await self.summon()
        key = self._pool.routing.key(context) if isinstance(context, WireContext) else None
        if key is not None and isinstance(context, WireContext):
            try:
                return await self.client_watches.watch(key, context, uri, updated)
            except OtherEraError:
                pass
        self._session.main.calls.outside.meet(context)
        return await self.watches.watch(uri, updated)

    @property
    def known(self) -> bool:
        return self._is_known

    @property
    def set_aside(self) -> tuple[tuple[str, str], ...]:
        return tuple(entry for kind in KINDS for entry in self._list(kind).set_aside)

    def declares(self, capability: str, feature: str = "") -> bool:
        """True if the server declared a capability, and in it a feature; remembered while it is away."""
        # A server of 2026-07-28 is told with each request which log messages are wanted: a client of an older
        # revision can always set its level (`setLevel`), as the bridge keeps it.
        if (capability, feature) == ("logging", "setLevel"):
            return self._modern or self.declares("logging")
        declared: Any = self.declared.get(capability)
        if not isinstance(declared, Mapping) or not feature:
            return isinstance(declared, Mapping)
        found = cast("Mapping[str, Any]", declared).get(feature)
        return found is True or isinstance(found, Mapping)

    async def take(self, declared: Mapping[str, Any], *, modern: bool) -> None:
        self.declared, self._modern = declared, modern
        self._stale.clear()
        # An earlier connection may have waited on another event loop.
        self._news = anyio.Event()
        async with anyio.create_task_group() as group:
            for kind in KINDS:
                group.start_soon(self._take_list, kind)
        if not self._is_known:
            self._is_known = True
            self._changed()

    def extensions(self) -> dict[str, Any]:
        own: dict[str, Any] = dict(self.declared.get("extensions") or {})
        own.pop(TASKS, None)
        found = {"experimental": self.declared.get("experimental"), "extensions": own}
        return {name: declared for name, declared in found.items() if declared}

    def entries(self) -> dict[str, Sequence[Wire]]:
        return {method: held.sequence for method, held in self._lists.items() if held.entries}

    def remember(self, declared: Mapping[str, Any], lists: Mapping[str, Sequence[Wire]]) -> None:
        self.declared, self._is_known = declared, True
        for kind in KINDS:
            listing = PagedList(kind.method, kind.key, tools=list(lists.get(kind.method, ())))
            self._lists[kind.method] = checked_list(kind, listing, self._hidden_text)

    def settle(self, hidden_text: HiddenTextPolicy) -> None:
        """Take another policy about hidden text; what was listed is listed again for it."""
        if hidden_text != self._hidden_text:
            self._hidden_text = hidden_text
            self.outdated()

    def heard(self, method: str) -> bool:
        if method not in CAPABILITY_CHANGED:
            return False
        self._telling.add(CAPABILITY_CHANGED[method])
        self.outdated(CAPABILITY_CHANGED[method])
        return True

    def told(self) -> set[str]:
        said, self._said = self._said, set()
        return said

    def outdated(self, *capabilities: str) -> None:
        """List again what belongs to these capabilities; all of it if none is named."""
        self._stale.update(capabilities or ("resources", "prompts"))
        self._news.set()

    async def keep_fresh(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            stale, self._stale = self._stale, set()
            telling, self._telling = self._telling, set()
            others = [await self._replaced(kind) for kind in KINDS if kind.capability in stale]
            if telling or any(others):
                # Told together: a change that the server has announced is one change.
                self._said |= telling
                self._changed()
            await anyio.sleep(REFRESH_GAP)

    async def listed(self, kind: Kind) -> Sequence[Wire]:
        if not self.resting() and self.is_asked_for(kind):
            await self._relist(kind)
        return self._list(kind).sequence

    def is_asked_for(self, kind: Kind) -> bool:
        return self.declares(kind.capability) and not self.declares(kind.capability, "listChanged")

    async def _relist(self, kind: Kind) -> None:
        async with self._listing:
            held = self._list(kind)
            if anyio.current_time() - held.taken > max(common_lists.MIN_TTL, held.hint.ttl_ms / 1000):
                await self._take_list(kind)

    def hint(self, kind: Kind) -> CacheHint:
        held = self._list(kind)
        if self.declares(kind.capability, "listChanged"):
            return held.hint
        return held.hint.aged(anyio.current_time() - held.taken)

    def meta(self, kind: Kind) -> Wire:
        return self._list(kind).meta

    def _list(self, kind: Kind) -> OfferList:
        return self._lists.get(kind.method, NOTHING_LISTED)

    async def _take_list(self, kind: Kind) -> None:
        if await self._replaced(kind):
            self._changed()

    async def _replaced(self, kind: Kind) -> bool:
        taken = await self._walked(kind) if self.declares(kind.capability) else OfferList()
        if taken is None:
            return False
        before, self._lists[kind.method] = self._list(kind), taken
        return before.entries != taken.entries

    async def _walked(self, kind: Kind) -> OfferList | None:
        listing = PagedList(kind.method, kind.key)
        try:
            await listing.walk(self._name, self._session.request, LIST_TIMEOUT)
        except UpstreamProtocolError as fault:
            # Templates have no capability of their own, so a server may know no such method.
            self._log.log(
                logging.DEBUG if fault.code == -32601 else logging.WARNING, "%s: %s", kind.method, fault
            )
            return OfferList(taken=anyio.current_time()) if fault.code == -32601 else None
        except (UpstreamError, TimeoutError) as fault:
            reason = str(fault) or "no answer in time"
            self._log.log(level_of(fault), "%s failed, the last list stays: %s", kind.method, reason)
            return None
        return self.checked(kind, listing)

    def checked(self, kind: Kind, listing: PagedList) -> OfferList:
        return checked_list(kind, listing, self._hidden_text)

    def common(self, method: str) -> Sequence[Wire] | None:
        held = self._lists.get(method) if self.known else None
        return None if held is None else held.sequence
