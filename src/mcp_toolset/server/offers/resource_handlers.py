"""`Reading`: the requests for resources, prompts, completions and the log level, as the SDK hands them on."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as types

from mcp_toolset.context.client import client_of
from mcp_toolset.context.offer_kinds import PROMPTS, RESOURCES, TEMPLATES, Ending, Kind, Wire
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.errors import CallError, UpstreamError
from mcp_toolset.protocol.cache_hints import STRICTEST
from mcp_toolset.protocol.eras import is_modern, relayed, round_trip
from mcp_toolset.protocol.errors import INTERNAL, error_of, in_era
from mcp_toolset.protocol.json_rpc import METHOD_NOT_FOUND, MCPError
from mcp_toolset.sdk.models import (
    Connection,
    InMemorySubscriptionBus,
    ListenHandler,
    ResourceUpdated,
    ServerRequestContext,
)
from mcp_toolset.sdk.servers import connection_of
from mcp_toolset.server.offers.complete_results import whole_answer
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.server.offers.round_trips import resumable
from mcp_toolset.tools.core.call import ToolCall
from mcp_toolset.tools.text.hidden_text import in_log

MAX_WATCHED: Final = 1000
"""Resources that one client may subscribe to."""

NOTIFY_DEADLINE: Final = 5.0
"""Seconds that one slow client may hold up the news of a change."""

_WATCHED: Final = "mcp_toolset.watched"
_log = logging.getLogger("mcp_toolset.server")
Request = ServerRequestContext[Any, Any]
Handler = Callable[[Request, Any], Awaitable[dict[str, Any]]]


class Reading:
    """Answers what clients read, for one server."""

    def __init__(
        self, offering: Offering, trips: RoundTrips, bus: InMemorySubscriptionBus, listening: ListenHandler
    ) -> None:
        """Answer out of an offering; changes go to the bus for modern clients."""
        self._offering = offering
        self._trips = trips
        self._bus = bus
        self._listening = listening
        self._updated: dict[tuple[str, int], Connection | None] = {}
        self._news = anyio.Event()
        self._whole = {method: (model, handler) for method, model, handler in self._relaying()}

    def handlers(self) -> list[tuple[str, type[types.RequestParams], Handler]]:
        """What is to be registered: the method, the model of its parameters, the handler."""
        return [
            *self._relaying(),
            ("resources/subscribe", types.SubscribeRequestParams, self._subscribe),
            ("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe),
            ("logging/setLevel", types.SetLevelRequestParams, self._set_level),
            ("subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen),
        ]

    def _relaying(self) -> list[tuple[str, type[types.RequestParams], Handler]]:
        """Of these, what answers with things of mounted servers."""
        return [
            ("resources/list", types.PaginatedRequestParams, partial(self._list, RESOURCES)),
            ("resources/templates/list", types.PaginatedRequestParams, partial(self._list, TEMPLATES)),
            ("resources/read", types.ReadResourceRequestParams, self._read),
            ("prompts/list", types.PaginatedRequestParams, partial(self._list, PROMPTS)),
            ("prompts/get", types.GetPromptRequestParams, self._prompt),
            ("completion/complete", types.CompleteRequestParams, self._complete),
        ]

    def answers(self, method: str) -> bool:
        """Whether what a method answers may hold fields that the SDK does not know."""
        return method in self._whole

    async def answer(self, request: Request, stamp: Wire) -> dict[str, Any]:
        """The answer to such a request, with all that a server has put into it; see `whole_answer`."""
        model, handler = self._whole[request.method]
        params = model.model_validate(request.params or {}, by_name=False)
        answer = await handler(request, params)
        return whole_answer(request.method, request.protocol_version, answer, stamp)

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
            await self._bus.publish(ResourceUpdated(uri=uri))
            return
        with anyio.move_on_after(NOTIFY_DEADLINE):
            await connection.send_resource_updated(uri)

    def _note(self, uri: str, connection: Connection | None) -> None:
        self._updated[uri, id(connection)] = connection
        self._news.set()

    async def _list(
        self, kind: Kind, request: Request, params: types.PaginatedRequestParams
    ) -> dict[str, Any]:
        self._require(request, kind.capability)
        async with _answering(request):
            await self._offering.arrive()
            return _enveloped(request, await self._offering.page(kind, params.cursor, WireContext(request)))

    async def _read(self, request: Request, params: types.ReadResourceRequestParams) -> dict[str, Any]:
        self._require(request, "resources")
        call = ToolCall(f"resources/read {params.uri}", {})
        async with _answering(request, uri=params.uri):
            return await self._answered(request, call, partial(self._offering.read, params.uri))

    async def _prompt(self, request: Request, params: types.GetPromptRequestParams) -> dict[str, Any]:
        self._require(request, "prompts")
        arguments = params.arguments or {}
        call = ToolCall(f"prompts/get {params.name}", dict(arguments))
        async with _answering(request):
            return await self._answered(request, call, partial(self._offering.prompt, params.name, arguments))

    async def _complete(self, request: Request, params: types.CompleteRequestParams) -> dict[str, Any]:
        self._require(request, "completions")
        raw = {key: value for key, value in (request.params or {}).items() if key != "_meta"}
        async with _answering(request):
            await self._offering.arrive()
            return _enveloped(request, await self._offering.complete(raw, WireContext(request)))

    async def _answered(
        self, request: Request, call: ToolCall, ask: Callable[[WireContext], Awaitable[Wire]]
    ) -> dict[str, Any]:
        """Run a request; what it has to ask of a modern client travels in its answer."""
        await self._offering.arrive()
        context = WireContext(request)
        run = partial(ask, context)
        return _enveloped(request, await resumable(self._trips, context, call.name, call.arguments, run))

    async def _set_level(self, request: Request, params: types.SetLevelRequestParams) -> dict[str, Any]:
        self._require(request, "logging", "setLevel")
        client_of(request).log_level = params.level
        return {}

    async def _subscribe(self, request: Request, params: types.SubscribeRequestParams) -> dict[str, Any]:
        self._require(request, "resources", "subscribe")
        connection = connection_of(request.session)
        watched = self._watched_by(connection)
        async with _answering(request, uri=params.uri):
            if params.uri in watched:
                return {}
            if len(watched) >= MAX_WATCHED:
                raise CallError(f"one client may subscribe to {MAX_WATCHED} resources; unsubscribe from some")
            updated = partial(self._note, params.uri, connection)
            watched[params.uri] = await self._offering.watch(params.uri, updated, WireContext(request))
        return {}

    async def _unsubscribe(self, request: Request, params: types.UnsubscribeRequestParams) -> dict[str, Any]:
        self._require(request, "resources", "subscribe")
        end = self._watched_by(connection_of(request.session)).pop(params.uri, None)
        if end is not None:
            await end()
        return {}

    def _watched_by(self, connection: Connection) -> dict[str, Ending]:
        watched: dict[str, Ending] | None = connection.state.get(_WATCHED)
        if watched is None:
            watched = connection.state[_WATCHED] = {}
            connection.exit_stack.push_async_callback(_end_all, watched)
        return watched

    async def _listen(self, request: Request, params: types.SubscriptionsListenRequestParams) -> Any:
        """Serve a stream of changes, of what is offered here and nothing else (2026-07-28)."""
        wanted = params.notifications
        uris = list(wanted.resource_subscriptions or ()) if self._declares("resources", "subscribe") else []
        offered = wanted.model_copy(
            update={
                "prompts_list_changed": wanted.prompts_list_changed if self._declares("prompts") else None,
                "resources_list_changed": wanted.resources_list_changed
                if self._declares("resources")
                else None,
                "resource_subscriptions": uris[:MAX_WATCHED] or None,
            }
        )
        async with self._watching(uris[:MAX_WATCHED], WireContext(request)):
            return await self._listening(request, params.model_copy(update={"notifications": offered}))

    @asynccontextmanager
    async def _watching(self, uris: Sequence[str], context: WireContext) -> AsyncGenerator[None]:
        watched: dict[str, Ending] = {}

        async def watch(uri: str) -> None:
            try:
                watched[uri] = await self._offering.watch(uri, partial(self._note, uri, None), context)
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

    def _declares(self, capability: str, feature: str = "") -> bool:
        return self._offering.declares(capability, feature)

    def _require(self, request: Request, capability: str, feature: str = "") -> None:
        """Refuse what nobody here offers, as a server without a handler does."""
        if not self._declares(capability, feature):
            raise MCPError(METHOD_NOT_FOUND, "Method not found", request.method)


async def _end_all(watched: dict[str, Ending]) -> None:
    while watched:
        _, end = watched.popitem()
        await end()


def _enveloped(request: Request, answer: Wire) -> dict[str, Any]:
    modern = is_modern(request.protocol_version)
    wire = relayed(answer, version=request.protocol_version)
    if not modern or wire.get("resultType") == "input_required":
        return wire
    if request.method == "resources/read":
        return {**STRICTEST.to_wire(), **wire, **(STRICTEST.to_wire() if _resumed(request) else {})}
    return wire


def _resumed(request: Request) -> bool:
    """Whether it is the end of an exchange of several rounds, whose answer nobody keeps."""
    return bool(round_trip(request.params or {}))


@asynccontextmanager
async def _answering(request: Request, *, uri: str | None = None) -> AsyncGenerator[None]:
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
