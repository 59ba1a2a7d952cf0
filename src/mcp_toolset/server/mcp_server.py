"""The SDK server that clients talk to: tools as raw dictionaries, everything else by the SDK's own way.

`tools/call` and `tools/list` are answered in the SDK's middleware, before any model is built; what is read
besides is answered by `Reading`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import mcp_types as types
from mcp_types.methods import serialize_server_result

from mcp_toolset.context.client import client_of
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import RoundTrips
from mcp_toolset.errors import (
    CallError,
    ClientCapabilityError,
    RequestStateError,
    UnknownToolError,
    UpstreamProtocolError,
)
from mcp_toolset.protocol.cache_hints import STRICTEST, CacheHint
from mcp_toolset.protocol.codec import json_of
from mcp_toolset.protocol.encoded_answers import Encoded, with_tools
from mcp_toolset.protocol.eras import MetaCheck, is_modern, list_for, lowered_tool, result_for
from mcp_toolset.protocol.errors import refusal
from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, MCPError
from mcp_toolset.protocol.revisions import SERVER_INFO_META_KEY
from mcp_toolset.sdk.dispatch import stream_dispatcher
from mcp_toolset.sdk.errors import to_sdk
from mcp_toolset.sdk.models import (
    CallNext,
    Connection,
    HandlerResult,
    InitializationOptions,
    InMemorySubscriptionBus,
    ListenHandler,
    NotificationOptions,
    Server,
    ServerRequestContext,
)
from mcp_toolset.sdk.servers import connection_of
from mcp_toolset.sdk.tracing import in_server_span, when_traced
from mcp_toolset.server.announcements import Announcements
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.server.offers.resource_handlers import Reading
from mcp_toolset.server.results import halted
from mcp_toolset.server.surface import Surface
from mcp_toolset.tools.core.asking import InputRequired, joined
from mcp_toolset.tools.core.call import ToolCall
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.transports.message_dispatcher import MessageStreams
from mcp_toolset.transports.pipes import lean
from mcp_toolset.transports.serving import INLINE, serve_connection

Request = ServerRequestContext[Any, Any]

_KeptList = tuple[list[dict[str, Any]], tuple[CacheHint, Mapping[str, Any]], Encoded]

MAX_VARIANTS: Final = 16
"""Lists of tools that are kept in JSON, for clients that do not see the same."""


class LowlevelServer(Server[Any]):
    """An SDK `Server` whose tools are a surface's."""

    def __init__(
        self,
        surface: Surface,
        *,
        name: str,
        version: str,
        instructions: str | None,
        offering: Offering,
    ) -> None:
        """Register the handlers; what is declared of them depends on what there is to offer."""
        self._surface = surface
        self._offering = offering
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._lists: dict[tuple[bool, int], _KeptList] = {}
        self.announcements = Announcements(self._bus, offering)
        self._over_http: dict[str, Connection] = {}
        self._trips = RoundTrips()
        super().__init__(
            name,
            version=version,
            instructions=instructions,
            lifespan=self._lifespan,
            get_tool_input_schema=surface.input_schema,
            on_list_tools=self._typed_list,
            on_call_tool=self._typed_call,
        )
        self.reading = Reading(offering, self._trips, self._bus, self._listening)
        for method, model, handler in self.reading.handlers():
            self.add_request_handler(method, model, handler)
        self.middleware[:] = [*map(when_traced, self.middleware), self._fast]
        self._own_middleware = tuple(self.middleware)
        self._answerers = {"tools/call": self._call, "tools/list": self._quick_list}
        stamp = self.server_info.model_dump(by_alias=True, mode="json", exclude_none=True)
        self._stamp = {SERVER_INFO_META_KEY: stamp}
        self._meta = MetaCheck()

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """Declare what there is to offer now, and no more; the SDK would declare every handler."""
        declares = self._offering.declares
        capabilities = super().get_capabilities(
            NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True),
            experimental_capabilities,
            extensions,
            protocol_version=protocol_version,
        )
        if not declares("resources"):
            capabilities.resources = None
        elif capabilities.resources is not None:
            capabilities.resources.subscribe = declares("resources", "subscribe")
        if not declares("prompts"):
            capabilities.prompts = None
        if not declares("completions"):
            capabilities.completions = None
        if not declares("logging", "" if is_modern(protocol_version) else "setLevel"):
            capabilities.logging = None
        return capabilities

    def end_streams(self) -> None:
        """End every `subscriptions/listen` stream gracefully."""
        self._listening.close()

    @asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> AsyncGenerator[dict[str, Any]]:
        async with self._surface.opened():
            yield {}

    def quick(self, method: str) -> Callable[[Request], Awaitable[dict[str, Any]]] | None:
        """How a method is answered past the SDK (`QuickServer`), while no other middleware wants to see it.

        A request that comes this way leaves nothing on its connection. It has its span all the same.
        """
        answer = self._answerers.get(method)
        if answer is None or tuple(self.middleware) != self._own_middleware:
            return None
        return in_server_span(answer)

    def over_http(self, session_id: str) -> Connection | None:
        """The connection of a legacy session over HTTP, unless everything is to go the SDK's way."""
        return self._over_http.get(session_id)

    async def run(
        self,
        read_stream: Any,
        write_stream: Any,
        initialization_options: InitializationOptions,
        raise_exceptions: bool = False,
    ) -> None:
        """Serve one client over message streams until it leaves; errors always become answers."""
        over = MessageStreams if lean() else stream_dispatcher
        dispatcher = over(read_stream, write_stream, inline=INLINE)
        async with self.lifespan(self) as state:
            await serve_connection(self, dispatcher, state, initialization_options)

    async def _fast(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        return await to_sdk(self._answer(ctx, call_next))

    async def _answer(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        match ctx.method:
            case "tools/call":
                _require_session(ctx)
                return await self._call(ctx)
            case "tools/list":
                _require_session(ctx)
                return await self._quick_list(ctx)
            case "initialize":
                answer = self._declared(await call_next(ctx))
                self._note_session(ctx)
                return answer
            case "server/discover":
                return self._introducing(await call_next(ctx))
            case "notifications/initialized":
                self._remember(ctx)
            case "notifications/roots/list_changed":
                client_of(ctx).roots_changed()
            case method if self.reading.answers(method):
                _require_session(ctx)
                self._meta.check(ctx.params, ctx.protocol_version)
                return await self.reading.answer(ctx, self._stamp)
            case _:
                pass
        return await call_next(ctx)

    def _declared(self, answer: HandlerResult) -> HandlerResult:
        """The answer to a handshake, with what there is to offer by now: upstreams may have joined since."""
        if not isinstance(answer, dict):
            return answer
        capabilities = self.get_capabilities().model_dump(by_alias=True, mode="json", exclude_none=True)
        current = {**answer, "capabilities": capabilities}
        if self.instructions is not None:
            current["instructions"] = self.instructions
        return self._introducing(serialize_server_result("initialize", answer["protocolVersion"], current))

    def _introducing(self, answer: HandlerResult) -> HandlerResult:
        """The answer to a handshake, with the servers behind this one in `_meta`."""
        meta = self._surface.handshake_meta()
        if not meta or not isinstance(answer, dict):
            return answer
        return {**answer, "_meta": {**(answer.get("_meta") or {}), **meta}}

    def _list(self, request: Request) -> dict[str, Any]:
        if (request.params or {}).get("cursor") is not None:
            raise MCPError(INVALID_PARAMS, "Unknown cursor: this server lists all its tools on one page")
        context = WireContext(request)
        encoded, granted = self._encoded(context), self._surface.granted(context)
        return with_tools(encoded, [lowered_tool(tool) for tool in granted]) if granted else encoded

    def _encoded(self, context: WireContext) -> Encoded:
        """What clients of an era that see the same are told; brought into JSON once for as long as it is."""
        modern, tools = context.modern, self._surface.listed_to(context)
        hint = self._surface.list_hint() if modern else STRICTEST
        meta = self._surface.list_meta()
        known = self._lists.get((modern, id(tools)))
        if known is not None and known[0] is tools and known[1] == (hint, meta):
            return known[2]
        stamp = {**meta, **self._stamp} if modern else meta
        result = list_for(tools, modern=modern, stamp=stamp, hint=hint.to_wire())
        if len(self._lists) >= MAX_VARIANTS:
            self._lists.clear()
        self._lists[modern, id(tools)] = (tools, (hint, meta), encoded := Encoded(result, json_of(result)))
        return encoded

    async def _quick_list(self, request: Request) -> dict[str, Any]:
        self._meta.check(request.params, request.protocol_version)
        if self._surface.is_arriving():
            await self._surface.arrive()
        if self._surface.unknown_to(context := WireContext(request)):
            await self._surface.known_to(context)
        return self._list(request)

    async def _call(self, request: Request) -> dict[str, Any]:
        self._meta.check(request.params, request.protocol_version)
        name, arguments = _call_params(request.params or {})
        context = WireContext(request)
        issued = self._surface.grants_issued(context)
        try:
            result = await self._answered(ToolCall(name, arguments), context)
        except (UnknownToolError, UpstreamProtocolError) as fault:
            raise refusal(fault) from None
        if self._surface.grants_issued(context) != issued:
            await self.announcements.to(connection_of(request.session))
        return result_for(halted(result).wire, version=request.protocol_version, stamp=self._stamp)

    async def _answered(self, call: ToolCall, context: WireContext) -> ToolResult:
        """Run a call, or run it again with what the client answers; or ask the client."""
        bound = (call.name, call.arguments, context.principal)
        try:
            context.resume(self._trips, call)
            try:
                result = await self._surface.call(call, context)
            except (InputRequired, BaseExceptionGroup) as fault:
                asking = joined(fault)
                if not isinstance(asking, InputRequired):
                    raise asking from None
                return self._trips.suspend(context.replay, asking.requests, *bound)
            if result.is_complete:
                return result
            return self._trips.relayed(result, context.replay, *bound)
        except UnknownToolError:
            raise
        except RequestStateError as fault:
            raise refusal(fault) from None
        except ClientCapabilityError as fault:
            if context.modern:
                raise refusal(fault) from None
            return ToolResult.of_error(str(fault))
        except CallError as fault:
            return ToolResult.of_error(str(fault))

    def _remember(self, request: Request) -> None:
        if is_modern(request.protocol_version):
            return
        connection = connection_of(request.session)
        self.announcements.add(connection)

    def _note_session(self, request: Request) -> None:
        connection = connection_of(request.session)
        name = connection.session_id
        # A client may repeat its handshake; its session ends once.
        if name is not None and name not in self._over_http and lean():
            self._over_http[name] = connection
            connection.exit_stack.callback(self._over_http.pop, name, None)

    async def _typed_list(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate(await self._quick_list(request), by_name=False)

    async def _typed_call(
        self, request: Request, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return types.CallToolResult.model_validate(await self._call(request), by_name=False)


def _require_session(request: Request) -> None:
    """Refuse a legacy request before the handshake, as the SDK's own path does."""
    if is_modern(request.protocol_version):
        return
    if not connection_of(request.session).initialize_accepted:
        raise MCPError(INVALID_PARAMS, "Invalid request parameters: initialize first", "")


def _call_params(params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        raise MCPError(INVALID_PARAMS, "Invalid request parameters: name must be a string")
    if arguments is None:
        return name, {}
    if not isinstance(arguments, dict):
        raise MCPError(INVALID_PARAMS, "Invalid request parameters: arguments must be an object")
    return name, arguments  # pyright: ignore[reportUnknownVariableType]
