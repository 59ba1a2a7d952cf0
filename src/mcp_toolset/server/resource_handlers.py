"""`ResourceHandlers`: answers requests about resources, prompts, completions, log levels and subscriptions.

`Subscriptions` holds the open streams of modern clients, `Announcements` the sessions of legacy clients.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import field
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.context import offer_kinds
from mcp_toolset.context.connection import Connection, RequestContext, ServedClient, client_of, stream_of
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.errors import CallError, UpstreamError, UpstreamProtocolError
from mcp_toolset.protocol import json_rpc
from mcp_toolset.protocol.eras import STRICTEST, relayed, round_trip
from mcp_toolset.protocol.methods import SUBSCRIPTION_ID_META_KEY, is_modern, is_of_mcp
from mcp_toolset.server.offering import Offering
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import InputRequired, ToolResult, joined

MAX_STREAMS: Final = 1024  # open `subscriptions/listen` requests of one server
OWN_STREAMS: Final = 256  # open `subscriptions/listen` requests of one caller
OVERLAP: Final = 15.0  # seconds for which replicas tell a change to clients that listen only after it

TOOLS_CHANGED: Final = "notifications/tools/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
UPDATED: Final = "notifications/resources/updated"

_LISTS: Final[Mapping[str, str]] = {
    "toolsListChanged": TOOLS_CHANGED,
    "promptsListChanged": PROMPTS_CHANGED,
    "resourcesListChanged": RESOURCES_CHANGED,
}

_NO_WATCH: Final = nullcontext()

Recipients = Callable[[Identity | None], bool]  # true for a caller that is told of a change
Change = tuple[str, str | None]  # the method of a notification, and the resource that it is about


def everybody(identity: Identity | None) -> bool:
    return True


NOTIFY_TIMEOUT: Final = 5.0  # seconds that a notification to one slow client may take


class Subscriptions:
    """The open `subscriptions/listen` requests of one server."""

    def __init__(self, *, overlap: float = 0.0) -> None:
        self._listeners: set[_Listener] = set()
        self._overlap = overlap
        self._latest: dict[str, tuple[float, Recipients]] = {}
        if overlap:
            self._latest.update(dict.fromkeys(_LISTS.values(), (monotonic(), everybody)))

    def publish(
        self, method: str, uri: str | None = None, *, to: Recipients = everybody, client: str = ""
    ) -> None:
        """Tell clients that listen for a change: those `to` holds for; with `client`, this client only."""
        if method in self._latest and not client:
            self._latest[method] = (monotonic(), to)
        for listener in self._listeners:
            if to(listener.identity) and client in ("", listener.client):
                listener.note((method, uri))

    def end_streams(self) -> None:
        """End each stream, after its pending changes, with its result."""
        for listener in self._listeners:
            listener.end()

    async def listen(
        self,
        request: RequestContext,
        granted: Mapping[str, Any],
        watching: AbstractAsyncContextManager[None] = _NO_WATCH,
        *,
        share: str = "",
    ) -> dict[str, Any]:
        """Tell a client of changes until `end_streams`.

        Args:
            request: The request to listen.
            granted: The kinds of changes that the client is told of.
            watching: Entered while the stream is open.
            share: The key of the caller, whose streams are counted; empty for none.
        """
        if request.request_id is None:
            raise json_rpc.MCPError(json_rpc.INVALID_REQUEST, "subscriptions/listen requires a request id")
        if len(self._listeners) >= MAX_STREAMS:
            raise json_rpc.MCPError(json_rpc.INTERNAL_ERROR, "Subscription limit reached")
        if share and sum(each.share == share for each in self._listeners) >= OWN_STREAMS:
            told = f"Subscription limit reached: {OWN_STREAMS} streams of this caller are open; end one"
            raise json_rpc.MCPError(json_rpc.INTERNAL_ERROR, told)
        meta = {SUBSCRIPTION_ID_META_KEY: request.request_id}
        listener = _Listener(granted, request.identity, share)
        # Added before the first message is sent, so that a change meanwhile is sent after it.
        self._listeners.add(listener)
        for method, (at, to) in self._latest.items():
            if monotonic() - at < self._overlap and to(listener.identity):
                listener.note((method, None))
        try:
            async with watching:
                first = {"notifications": dict(granted), "_meta": meta}
                await request.way.notify("notifications/subscriptions/acknowledged", first)
                while (change := await listener.next()) is not None:
                    method, uri = change
                    about = {} if uri is None else {"uri": uri}
                    await request.way.notify(method, {**about, "_meta": meta})
        finally:
            self._listeners.discard(listener)
        return {"_meta": meta}


class _Listener:
    """One stream: the changes that its client is granted, and those not sent yet."""

    def __init__(self, granted: Mapping[str, Any], identity: Identity | None, share: str) -> None:
        self.identity = identity
        self.share = share
        self.client = stream_of()
        uris = granted.get("resourceSubscriptions") or ()
        self._wanted: frozenset[Change] = frozenset(
            [(_LISTS[name], None) for name in _LISTS if granted.get(name)] + [(UPDATED, uri) for uri in uris]
        )
        self._pending: dict[Change, None] = {}
        self._ended = False
        self._news = anyio.Event()

    def note(self, change: Change) -> None:
        if change in self._wanted and not self._ended:
            self._pending[change] = None
            self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def next(self) -> Change | None:
        while not self._pending:
            if self._ended:
                return None
            self._news = anyio.Event()
            await self._news.wait()
        change = next(iter(self._pending))
        del self._pending[change]
        return change


@dataclass(eq=False)
class Announcements:
    """Announces changed lists to the legacy sessions and the subscriptions of a server."""

    subscriptions: Subscriptions  # the modern clients that listen
    offering: Offering  # knows which clients a mounted server notifies on a separate session
    _sessions: dict[int, tuple[Connection, Identity | None]] = field(
        default_factory=dict[int, "tuple[Connection, Identity | None]"], init=False
    )

    def add(self, connection: Connection, identity: Identity | None = None) -> None:
        """Announce changes to a legacy session, until it ends."""
        if id(connection) not in self._sessions:
            self._sessions[id(connection)] = (connection, identity)
            connection.on_close(partial(self._sessions.pop, id(connection), None))

    async def tools(self, sources: Collection[str] = (), *, to: Recipients = everybody) -> None:
        """Announce that the list of tools has changed, those of `sources`."""
        await self._announce(TOOLS_CHANGED, sources, to)

    async def grants(self) -> None:
        """Tell all legacy sessions that their lists of tools may have changed, as grants were revoked."""
        async with anyio.create_task_group() as group:
            for connection, _ in list(self._sessions.values()):
                group.start_soon(_notify, connection, TOOLS_CHANGED)

    async def offers(self, news: Mapping[str, Collection[str]], others: Recipients | None = None) -> None:
        """Announce changed lists: in `news` the sources by `resources` and `prompts`.

        Callers for whom `others` holds are told in any case: they see other sources than before.
        """
        for capability in ("resources", "prompts"):
            sources = news.get(capability)
            if sources is not None or (others is not None and self.offering.has(capability)):
                to = partial(self._is_concerned, sources, others)
                await self._announce(_CHANGED_LIST[capability], sources or (), to)

    def _is_concerned(
        self, sources: Collection[str] | None, others: Recipients | None, identity: Identity | None
    ) -> bool:
        sees = sources is not None and self.offering.sees_some(sources, identity)
        return sees or (others is not None and others(identity))

    async def _announce(self, method: str, sources: Collection[str], to: Recipients) -> None:
        self.subscriptions.publish(method, to=to)
        async with anyio.create_task_group() as group:
            for connection, identity in list(self._sessions.values()):
                if to(identity) and not self._is_told_by_sources(connection, sources):
                    group.start_soon(_notify, connection, method)

    def _is_told_by_sources(self, connection: Connection, sources: Collection[str]) -> bool:
        """True if each of these sources notifies this client on a separate session already."""
        client: ServedClient | None = connection.client
        if client is None or not sources:
            return False
        return all(self.offering.tells_itself(source, client) for source in sources)

    async def lists(self, news: Collection[offer_kinds.ListChange]) -> None:
        """Announce changed lists to the clients that they are for."""
        for each in news:
            for connection, _ in list(self._sessions.values()):
                client: ServedClient | None = connection.client
                if client is not None and each.is_for(client):
                    await _notify(connection, _CHANGED_LIST[each.capability])
            self.subscriptions.publish(_CHANGED_LIST[each.capability], client=each.client_key)

    async def to(self, connection: Connection) -> None:
        """Announce to one client that its list of tools has changed."""
        await _notify(connection, TOOLS_CHANGED, seen_by_all=False)


_CHANGED_LIST: Final[Mapping[str, str]] = {
    "tools": TOOLS_CHANGED,
    "resources": RESOURCES_CHANGED,
    "prompts": PROMPTS_CHANGED,
}


async def _notify(connection: Connection, method: str, *, seen_by_all: bool = True) -> None:
    with anyio.move_on_after(NOTIFY_TIMEOUT):
        await connection.notify(method, seen_by_all=seen_by_all)


_T = TypeVar("_T")


async def found_by_caller(offering: Offering, context: ToolContext, find: Callable[[], Awaitable[_T]]) -> _T:
    """The answer of `find`: at once, else after fetching all lists for the caller, else after its login."""
    # A server that wants a login gives every caller without one the same answer, which reveals nothing.
    try:
        return await find()
    except LookupError as fault:
        missing = fault
    for log_in in (False, True):
        sources = offering.seen(context.identity).values()
        if any([await offers.learned(context, log_in=log_in) for offers in sources]):
            with suppress(LookupError):
                return await find()
    # The error of a mounted server says more than ours.
    raise missing.__cause__ or missing


async def resumable(
    trips: RoundTrips,  # opens and seals the server's request states
    context: WireContext,  # the context of the request
    name: str,  # the method of the request and its subject, such as `prompts/get greeting`
    arguments: Mapping[str, Any],  # the arguments; the state is bound to them and to the name
    run: Callable[[], Awaitable[Mapping[str, Any]]],  # runs the request
) -> Mapping[str, Any]:
    """Run a request, with the client's answers of an earlier run; the result may ask (`input_required`)."""
    bound = (name, arguments, context.principal)
    if context.resume(trips, ToolCall(name, dict(arguments))):
        await trips.claim(context.replay)
    try:
        wire = await run()
    except (InputRequired, BaseExceptionGroup) as fault:
        asking = joined(fault)
        if not isinstance(asking, InputRequired):
            raise asking from None
        return trips.suspend(context.replay, asking.requests, *bound).wire
    if wire.get("resultType") != "input_required":
        return wire
    return trips.relayed(ToolResult(wire), context.replay, *bound).wire


_KNOWN: Final = frozenset(
    (
        "annotations arguments completion content contents icons messages prompts resource resources "
        "resourceTemplates"
    ).split()
)
"""Members whose content the protocol defines; other members are passed on unchanged."""

_log = logging.getLogger("mcp_toolset.server")


def whole_answer(
    method: str, version: str, answer: dict[str, Any], stamp: Mapping[str, Any]
) -> dict[str, Any]:
    """An answer, checked against the revision, without null members, and with a modern server's stamp."""
    # A server may send members that the protocol does not know; clients get them too.
    modern = is_modern(version)
    fault = offer_kinds.result_fault(method, answer, modern=modern)
    if fault is not None:
        _log.error("the answer to %s is invalid: %s", method, fault)
        raise json_rpc.MCPError.from_error_data(json_rpc.INVALID_RESULT)
    whole = without_nulls(answer)
    if modern:
        whole["_meta"] = {**(whole.get("_meta") or {}), **stamp}
    return whole


def without_nulls(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _value_without_nulls(value) if key in _KNOWN else value
        for key, value in given.items()
        if value is not None
    }


def _value_without_nulls(value: Any) -> Any:
    """A value without null members; an object that has none is not copied, since there may be many."""
    if type(value) is list:
        return [_value_without_nulls(each) for each in cast("list[Any]", value)]
    if type(value) is not dict:
        return without_nulls(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
    table = cast("dict[str, Any]", value)
    if None in table.values():
        return without_nulls(table)
    for key in _KNOWN.intersection(table):
        clean = _value_without_nulls(member := table[key])
        if clean is not member:
            table = {**table, key: clean}
    return table


_ASKED: Final = frozenset({"resources/read", "prompts/get", "completion/complete"})
"""The methods about one thing, which a server may answer without listing the thing."""

MAX_WATCHED: Final = 1000  # resources that one client may subscribe to

_WATCHED: Final = "mcp_toolset.watched"
Answer = Callable[[RequestContext], Awaitable[dict[str, Any]]]


@dataclass(eq=False, slots=True)
class _ResourceWatch:
    """A subscription of one client to one resource."""

    end: offer_kinds.Ending | None = None  # unsubscribes; `None` until the server of the resource has agreed
    settled: anyio.Event = field(default_factory=anyio.Event)  # set once that server has agreed or refused

    async def ended(self) -> None:
        if self.end is not None:
            await self.end()


class ResourceHandlers:
    """Answers the requests of clients about resources and prompts, for one server."""

    def __init__(
        self, offering: Offering, trips: RoundTrips, subscriptions: Subscriptions, stamp: offer_kinds.Wire
    ) -> None:
        self._offering = offering
        self._trips = trips
        self._subscriptions = subscriptions
        self._stamp = stamp
        self._updated: dict[tuple[str, int], Connection | None] = {}
        self._news = anyio.Event()

    def answers(self) -> dict[str, Answer]:
        """The handlers, by method."""
        relaying: dict[str, Answer] = {
            "resources/list": partial(self._list, offer_kinds.RESOURCES),
            "resources/templates/list": partial(self._list, offer_kinds.TEMPLATES),
            "resources/read": self._read,
            "prompts/list": partial(self._list, offer_kinds.PROMPTS),
            "prompts/get": self._prompt,
            "completion/complete": self._complete,
        }
        return {
            **{method: partial(self._whole, answer) for method, answer in relaying.items()},
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
            "subscriptions/listen": self._listen,
        }

    async def unknown(self, request: RequestContext) -> dict[str, Any]:
        """Pass a request of an extension's method on to the only server, or refuse it."""
        # The bridge answers the methods of MCP itself: it keeps the tasks and subscriptions of clients apart.
        if is_of_mcp(request.method):
            raise json_rpc.MCPError(json_rpc.METHOD_NOT_FOUND, "Method not found", request.method)
        return await self.relayed(request, partial(self._offering.ask, request.method))

    async def relayed(
        self,
        request: RequestContext,
        ask: Callable[[Mapping[str, Any], WireContext], Awaitable[offer_kinds.Wire]],
    ) -> dict[str, Any]:
        """Answer a request of an extension's method by `ask`, which gets the parameters, and may ask."""
        left_out = ("_meta", "inputResponses", "requestState") if request.modern else ("_meta",)
        params = {key: value for key, value in _params(request).items() if key not in left_out}
        async with _answering(request):
            context = WireContext(request)
            run = partial(ask, params, context)
            answer = await resumable(self._trips, context, request.method, params, run)
            return relayed(answer, version=request.protocol_version)

    async def _whole(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        version = request.protocol_version
        return whole_answer(request.method, version, await answer(request), self._stamp)

    async def announce_updates(self) -> None:
        """Tell clients of changed resources; several changes of one resource become one notification."""
        # An event from an earlier opening of the server may belong to another event loop.
        self._news, self._updated = anyio.Event(), {}
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            updated, self._updated = self._updated, {}
            async with anyio.create_task_group() as group:
                for (uri, _), connection in updated.items():
                    group.start_soon(self._tell, uri, connection)

    async def _tell(self, uri: str, connection: Connection | None) -> None:
        if connection is None:
            self._subscriptions.publish(UPDATED, uri, to=partial(self._offering.leads, uri))
            return
        with anyio.move_on_after(NOTIFY_TIMEOUT):
            await connection.notify(UPDATED, {"uri": uri})

    def _note(self, uri: str, connection: Connection | None) -> None:
        self._updated[uri, id(connection)] = connection
        self._news.set()

    def _note_to(self, identity: Identity | None, uri: str, connection: Connection) -> None:
        if self._offering.leads(uri, identity):
            self._note(uri, connection)

    async def _list(self, kind: offer_kinds.Kind, request: RequestContext) -> dict[str, Any]:
        self._require(request, kind.capability)
        cursor = _params(request).get("cursor")
        async with _answering(request):
            await self._offering.arrive()
            return _enveloped(request, await self._offering.page(kind, cursor, WireContext(request)))

    async def _read(self, request: RequestContext) -> dict[str, Any]:
        self._require(request, "resources")
        uri: str = _params(request)["uri"]
        call = ToolCall(f"resources/read {uri}", {})
        async with _answering(request, uri=uri):
            return await self._answered(request, call, partial(self._read_of, uri))

    async def _read_of(self, uri: str, context: WireContext) -> offer_kinds.Wire:
        """Read a resource; `LookupError` if it is in no list and a server refuses it: another may have it."""
        try:
            return await self._offering.read(uri, context)
        except UpstreamProtocolError as refused:
            if self._offering.passing() is not None or not self._offering.addresses.guesses(uri):
                raise
            raise LookupError("Resource not found") from refused

    async def _prompt(self, request: RequestContext) -> dict[str, Any]:
        self._require(request, "prompts")
        name: str = _params(request)["name"]
        arguments: dict[str, str] = _params(request).get("arguments") or {}
        call = ToolCall(f"prompts/get {name}", dict(arguments))
        async with _answering(request):
            return await self._answered(request, call, partial(self._offering.prompt, name, arguments))

    async def _complete(self, request: RequestContext) -> dict[str, Any]:
        self._require(request, "completions")
        raw = {key: value for key, value in _params(request).items() if key != "_meta"}
        async with _answering(request):
            await self._offering.arrive()
            context = WireContext(request)
            complete = partial(self._offering.complete, raw, context)
            return _enveloped(request, await found_by_caller(self._offering, context, complete))

    async def _answered(
        self,
        request: RequestContext,
        call: ToolCall,
        ask: Callable[[WireContext], Awaitable[offer_kinds.Wire]],
    ) -> dict[str, Any]:
        await self._offering.arrive()
        context = WireContext(request)
        run = partial(found_by_caller, self._offering, context, partial(ask, context))
        return _enveloped(request, await resumable(self._trips, context, call.name, call.arguments, run))

    async def _set_level(self, request: RequestContext) -> dict[str, Any]:
        self._require(request, "logging", "setLevel")
        client_of(request).log_level = _params(request)["level"]
        return {}

    async def _subscribe(self, request: RequestContext) -> dict[str, Any]:
        self._require(request, "resources", "subscribe")
        uri: str = _params(request)["uri"]
        watched = self._watched_by(request.connection)
        async with _answering(request, uri=uri):
            # The client may have sent the same request before: a resource is watched once.
            while (known := watched.get(uri)) is not None:
                if known.end is not None:
                    return {}
                await known.settled.wait()
            if len(watched) >= MAX_WATCHED:
                raise CallError(f"one client may subscribe to {MAX_WATCHED} resources; unsubscribe from some")
            updated = partial(self._note_to, request.identity, uri, request.connection)
            context = WireContext(request)
            watch = partial(self._offering.watch, uri, updated, context)
            own = watched[uri] = _ResourceWatch()
            try:
                own.end = await found_by_caller(self._offering, context, watch)
            finally:
                own.settled.set()
                if own.end is None and watched.get(uri) is own:
                    del watched[uri]
            if watched.get(uri) is not own:
                # The connection has ended meanwhile.
                await own.ended()
        return {}

    async def _unsubscribe(self, request: RequestContext) -> dict[str, Any]:
        self._require(request, "resources", "subscribe")
        uri: str = _params(request)["uri"]
        watched = self._watched_by(request.connection)
        known = watched.get(uri)
        if known is not None:
            await known.settled.wait()
            if watched.get(uri) is known:
                await watched.pop(uri).ended()
        return {}

    def _watched_by(self, connection: Connection) -> dict[str, _ResourceWatch]:
        watched: dict[str, _ResourceWatch] | None = connection.state.get(_WATCHED)
        if watched is None:
            watched = connection.state[_WATCHED] = {}
            connection.on_close(partial(_end_all, watched))
        return watched

    async def _listen(self, request: RequestContext) -> dict[str, Any]:
        """Serve a stream of changes of the lists and resources that this server has (2026-07-28)."""
        wanted: offer_kinds.Wire = _params(request)["notifications"]
        granted: dict[str, Any] = {"toolsListChanged": True} if wanted.get("toolsListChanged") else {}
        for capability in ("prompts", "resources"):
            name = f"{capability}ListChanged"
            if wanted.get(name) and self._declares(request, capability):
                granted[name] = True
        uris: list[str] = []
        if self._declares(request, "resources", "subscribe"):
            uris = list(dict.fromkeys(wanted.get("resourceSubscriptions") or uris))[:MAX_WATCHED]
        if uris:
            granted["resourceSubscriptions"] = uris
        context = WireContext(request)
        watching = self._watching(uris, context)
        result = await self._subscriptions.listen(request, granted, watching, share=context.share)
        return {"resultType": "complete", **result, "_meta": {**result["_meta"], **self._stamp}}

    @asynccontextmanager
    async def _watching(self, uris: Sequence[str], context: WireContext) -> AsyncGenerator[None]:
        """Watch resources for the length of a block."""
        watched: dict[str, _ResourceWatch] = {}

        async def watch(uri: str) -> None:
            try:
                end = await self._offering.watch(uri, partial(self._note, uri, None), context)
                watched[uri] = _ResourceWatch(end)
            except (LookupError, UpstreamError) as fault:
                _log.debug("nothing tells of changes of %s: %s", in_log(uri), in_log(fault))

        try:
            async with anyio.create_task_group() as group:
                for uri in uris:
                    group.start_soon(watch, uri)
            yield
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(NOTIFY_TIMEOUT):
                await _end_all(watched)

    def _declares(self, request: RequestContext, capability: str, feature: str = "") -> bool:
        return self._offering.declares(capability, feature, identity=request.identity)

    def _require(self, request: RequestContext, capability: str, feature: str = "") -> None:
        """Refuse a request that no source offers to answer, as a server without a handler does."""
        # With `unlisted="pass"` the mounted server itself refuses the request.
        passing = request.method in _ASKED and self._offering.passing() is not None
        if not passing and not self._declares(request, capability, feature):
            raise json_rpc.MCPError(json_rpc.METHOD_NOT_FOUND, "Method not found", request.method)


async def _end_all(watched: dict[str, _ResourceWatch]) -> None:
    while watched:
        _, watch = watched.popitem()
        await watch.ended()


def _params(request: RequestContext) -> offer_kinds.Wire:
    return request.params or {}


def _enveloped(request: RequestContext, answer: offer_kinds.Wire) -> dict[str, Any]:
    """An answer in the era of the request; one after a round trip must not be cached."""
    modern = is_modern(request.protocol_version)
    wire = relayed(answer, version=request.protocol_version)
    if not modern or wire.get("resultType") == "input_required":
        return wire
    if request.method == "resources/read":
        return {
            **STRICTEST.to_wire(),
            **wire,
            **(STRICTEST.to_wire() if round_trip(request.params or {}) else {}),
        }
    return wire


@asynccontextmanager
async def _answering(request: RequestContext, *, uri: str | None = None) -> AsyncGenerator[None]:
    """Turn any exception into an error of the protocol."""
    try:
        yield
    except json_rpc.MCPError:
        raise
    # A provider is the application's code and may raise anything; a client is not told what.
    except Exception as raised:
        error = json_rpc.error_of(raised, uri=uri)
        if error is None:
            _log.exception("%s failed", in_log(request.method))
            raise json_rpc.MCPError.from_error_data(json_rpc.INTERNAL) from None
        modern = is_modern(request.protocol_version)
        raise json_rpc.in_era(error, modern=modern, about_resource=uri is not None) from None
