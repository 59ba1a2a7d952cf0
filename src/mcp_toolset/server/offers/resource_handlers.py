"""`Reading`: answers to requests for resources, prompts, completions, the log level and subscriptions."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from functools import partial
from typing import Any, Final, TypeVar, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.context.client import client_of
from mcp_toolset.context.connection import Connection, RequestContext
from mcp_toolset.context.offer_kinds import PROMPTS, RESOURCES, TEMPLATES, Ending, Kind, Wire, result_fault
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.errors import CallError, UpstreamError, UpstreamProtocolError
from mcp_toolset.protocol.cache_hints import STRICTEST
from mcp_toolset.protocol.eras import relayed, round_trip
from mcp_toolset.protocol.errors import INTERNAL, INVALID_RESULT, error_of, in_era
from mcp_toolset.protocol.json_rpc import METHOD_NOT_FOUND, MCPError
from mcp_toolset.protocol.revisions import is_modern
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.server.offers.subscriptions import NOTIFY_DEADLINE, UPDATED, Subscriptions
from mcp_toolset.tools.core.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.core.result import InputRequired, ToolResult, joined
from mcp_toolset.tools.text.hidden_text import in_log

_T = TypeVar("_T")


async def found_by_caller(offering: Offering, context: ToolContext, find: Callable[[], Awaitable[_T]]) -> _T:
    """What `find` finds; else once the caller was listed what there is; else once the caller has logged in.

    A server that lists nothing to a caller without a login gives all such callers the same answer, whatever
    it lists to others.
    """
    try:
        return await find()
    except LookupError as fault:
        missing = fault
    for log_in in (False, True):
        sources = offering.seen(context.identity).values()
        if any([await offers.learned(context, log_in=log_in) for offers in sources]):
            with suppress(LookupError):
                return await find()
    # The words of a server that was asked say more.
    raise missing.__cause__ or missing


async def resumable(
    trips: RoundTrips,
    context: WireContext,
    name: str,
    arguments: Mapping[str, Any],
    run: Callable[[], Awaitable[Mapping[str, Any]]],
) -> Mapping[str, Any]:
    """Run a request, or run it again with what its client answers; or ask the client.

    Args:
        trips: What the server's states are opened and closed with.
        context: Whose request it is.
        name: What tells the request from others, its method included: `prompts/get greeting`.
        arguments: What else the state is bound to.
        run: Sends it on, with `UpstreamConnection.exchange`.

    Returns:
        The answer in wire form; one with the `resultType` `input_required` asks the client.
    """
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
    {
        "annotations",
        "arguments",
        "completion",
        "content",
        "contents",
        "icons",
        "messages",
        "prompts",
        "resource",
        "resources",
        "resourceTemplates",
    }
)
"""Members of which the protocol says what is in them; what it does not know is passed on as it is."""

_log = logging.getLogger("mcp_toolset.server")


def whole_answer(
    method: str, version: str, answer: dict[str, Any], stamp: Mapping[str, Any]
) -> dict[str, Any]:
    """An answer as the revision has it, with what the revision does not know, and a modern server's stamp.

    A server may say more than the protocol knows, and its clients are to see it; a null member is left out.
    """
    modern = is_modern(version)
    fault = result_fault(method, answer, modern=modern)
    if fault is not None:
        _log.error("the answer to %s is invalid: %s", method, fault)
        raise MCPError.from_error_data(INVALID_RESULT)
    whole = without_nulls(answer)
    if modern:
        whole["_meta"] = {**(whole.get("_meta") or {}), **stamp}
    return whole


def without_nulls(given: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without the members that are null, as deep as the protocol knows the members."""
    return {key: _kept(key, value) for key, value in given.items() if value is not None}


def _kept(key: str, value: Any) -> Any:
    if key not in _KNOWN:
        return value
    if isinstance(value, Mapping):
        return without_nulls(cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return [_kept(key, each) for each in cast("list[Any]", value)]
    return value


_OF_MCP: Final = frozenset(
    (
        *("initialize", "ping", "server", "tools", "resources", "prompts", "completion", "logging"),
        *("subscriptions", "tasks", "notifications", "roots", "sampling", "elicitation"),
    )
)
"""What the methods of MCP begin with."""

_ASKED: Final = frozenset({"resources/read", "prompts/get", "completion/complete"})
"""The methods by which clients ask for one thing, which a server may answer without listing it."""

MAX_WATCHED: Final = 1000
"""Resources that one client may subscribe to."""

_WATCHED: Final = "mcp_toolset.watched"
Answer = Callable[[RequestContext], Awaitable[dict[str, Any]]]


@dataclass(eq=False, slots=True)
class _Watch:
    """A resource that one client watches.

    Attributes:
        end: Ends it; `None` while its server is still being told.
        settled: Set once its server was told, or has refused.
    """

    end: Ending | None = None
    settled: anyio.Event = field(default_factory=anyio.Event)

    async def ended(self) -> None:
        """End it, if it has begun."""
        if self.end is not None:
            await self.end()


class Reading:
    """Answers what clients read, for one server."""

    def __init__(
        self, offering: Offering, trips: RoundTrips, subscriptions: Subscriptions, stamp: Wire
    ) -> None:
        """Answer out of an offering; what a server says of itself in modern results is `stamp`."""
        self._offering = offering
        self._trips = trips
        self._subscriptions = subscriptions
        self._stamp = stamp
        self._updated: dict[tuple[str, int], Connection | None] = {}
        self._news = anyio.Event()

    def answers(self) -> dict[str, Answer]:
        """How each method is answered. The door has looked at its parameters."""
        relaying: dict[str, Answer] = {
            "resources/list": partial(self._list, RESOURCES),
            "resources/templates/list": partial(self._list, TEMPLATES),
            "resources/read": self._read,
            "prompts/list": partial(self._list, PROMPTS),
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
        """Pass a request of an extension's method on to the only server, or refuse it.

        The methods of MCP itself are the bridge's: it keeps apart whose tasks and subscriptions they name.
        """
        if request.method.partition("/")[0] in _OF_MCP:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", request.method)
        params = {key: value for key, value in _params(request).items() if key != "_meta"}
        async with _answering(request):
            answer = await self._offering.ask(request.method, params, WireContext(request))
            return relayed(answer, version=request.protocol_version)

    async def _whole(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        """The answer with all that a server has put into it; see `whole_answer`."""
        version = request.protocol_version
        return whole_answer(request.method, version, await answer(request), self._stamp)

    async def announce_updates(self) -> None:
        """Tell clients of changed resources; changes of one that come together are told once."""
        # An earlier opening of the server may have waited on another event loop, for other clients.
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
        with anyio.move_on_after(NOTIFY_DEADLINE):
            await connection.notify(UPDATED, {"uri": uri})

    def _note(self, uri: str, connection: Connection | None) -> None:
        self._updated[uri, id(connection)] = connection
        self._news.set()

    def _note_to(self, identity: Identity | None, uri: str, connection: Connection) -> None:
        """Note a change for a caller for whom the resource still exists."""
        if self._offering.leads(uri, identity):
            self._note(uri, connection)

    async def _list(self, kind: Kind, request: RequestContext) -> dict[str, Any]:
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

    async def _read_of(self, uri: str, context: WireContext) -> Wire:
        """Read a resource; one in no list, which a server refuses, may be on another server after a login."""
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
        self, request: RequestContext, call: ToolCall, ask: Callable[[WireContext], Awaitable[Wire]]
    ) -> dict[str, Any]:
        """Run a request; what it has to ask of a modern client travels in its answer."""
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
            # The same request of the client may be on its way already: it is watched once.
            while (known := watched.get(uri)) is not None:
                if known.end is not None:
                    return {}
                await known.settled.wait()
            if len(watched) >= MAX_WATCHED:
                raise CallError(f"one client may subscribe to {MAX_WATCHED} resources; unsubscribe from some")
            updated = partial(self._note_to, request.identity, uri, request.connection)
            context = WireContext(request)
            watch = partial(self._offering.watch, uri, updated, context)
            own = watched[uri] = _Watch()
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

    def _watched_by(self, connection: Connection) -> dict[str, _Watch]:
        watched: dict[str, _Watch] | None = connection.state.get(_WATCHED)
        if watched is None:
            watched = connection.state[_WATCHED] = {}
            connection.on_close(partial(_end_all, watched))
        return watched

    async def _listen(self, request: RequestContext) -> dict[str, Any]:
        """Serve a stream of changes, of what is offered here and nothing else (2026-07-28)."""
        wanted: Wire = _params(request)["notifications"]
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
        watched: dict[str, _Watch] = {}

        async def watch(uri: str) -> None:
            try:
                end = await self._offering.watch(uri, partial(self._note, uri, None), context)
                watched[uri] = _Watch(end)
            except (LookupError, UpstreamError) as fault:
                _log.debug("nothing tells of changes of %s: %s", in_log(uri), in_log(fault))

        try:
            async with anyio.create_task_group() as group:
                for uri in uris:
                    group.start_soon(watch, uri)
            yield
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(NOTIFY_DEADLINE):
                await _end_all(watched)

    def _declares(self, request: RequestContext, capability: str, feature: str = "") -> bool:
        return self._offering.declares(capability, feature, identity=request.identity)

    def _require(self, request: RequestContext, capability: str, feature: str = "") -> None:
        """Refuse a request that no source offers to answer, as a server without a handler does.

        A server with `unlisted="pass"` refuses it itself.
        """
        passing = request.method in _ASKED and self._offering.passing() is not None
        if not passing and not self._declares(request, capability, feature):
            raise MCPError(METHOD_NOT_FOUND, "Method not found", request.method)


async def _end_all(watched: dict[str, _Watch]) -> None:
    while watched:
        _, watch = watched.popitem()
        await watch.ended()


def _params(request: RequestContext) -> Wire:
    return request.params or {}


def _enveloped(request: RequestContext, answer: Wire) -> dict[str, Any]:
    modern = is_modern(request.protocol_version)
    wire = relayed(answer, version=request.protocol_version)
    if not modern or wire.get("resultType") == "input_required":
        return wire
    if request.method == "resources/read":
        return {**STRICTEST.to_wire(), **wire, **(STRICTEST.to_wire() if _resumed(request) else {})}
    return wire


def _resumed(request: RequestContext) -> bool:
    """Whether it is the end of an exchange of several rounds, whose answer is not cached."""
    return bool(round_trip(request.params or {}))


@asynccontextmanager
async def _answering(request: RequestContext, *, uri: str | None = None) -> AsyncGenerator[None]:
    """Turn what went wrong into the protocol's errors; nothing else may leave a handler."""
    try:
        yield
    except MCPError:
        raise
    # A provider is the application's code and may raise anything; a client is told no more than that.
    except Exception as raised:
        error = error_of(raised, uri=uri)
        if error is None:
            _log.exception("%s failed", in_log(request.method))
            raise MCPError.from_error_data(INTERNAL) from None
        modern = is_modern(request.protocol_version)
        raise in_era(error, modern=modern, about_resource=uri is not None) from None
