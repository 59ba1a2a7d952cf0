"""The SDK server that clients talk to: lists and calls as raw dictionaries, everything else typed.

`tools/call` and `tools/list` are answered in the SDK's middleware, before any model is built
(decision 8); all other methods take the SDK's own way.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ToolsListChanged,
)

from mcp_toolset.bridge.ask import RoundTrips
from mcp_toolset.bridge.eras import INLINE, serve_connection
from mcp_toolset.bridge.forward import WireContext
from mcp_toolset.bridge.messages import Encoded, json_of
from mcp_toolset.bridge.outcome import halted
from mcp_toolset.bridge.sdk import MCPError, connection_of, stream_dispatcher, tracing, when_traced
from mcp_toolset.bridge.wire import is_modern, list_for, result_for
from mcp_toolset.errors import CallError, UnknownToolError, UpstreamProtocolError
from mcp_toolset.tools.asking import InputRequired, joined
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.resources import ResourceProvider
from mcp_toolset.tools.result import ToolResult

NOTIFY_DEADLINE = 5.0
"""Seconds that one slow client may hold up the news of a change."""

Request = ServerRequestContext[Any, Any]


class Surface(Protocol):
    """What the wire needs of a toolset server."""

    async def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run one call through the dispatch table."""
        ...

    def listed(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that this caller sees, in wire form."""
        ...

    def grants_held(self, context: ToolContext) -> int:
        """How many deferred tools this caller's session may call by name."""
        ...

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool that can be called."""
        ...

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Keep the upstreams open for as long as the block runs."""
        ...


class LowlevelServer(Server[Any]):
    """An SDK `Server` whose tools are a surface's."""

    def __init__(
        self,
        surface: Surface,
        *,
        name: str,
        version: str,
        instructions: str | None,
        resources: ResourceProvider | None,
    ) -> None:
        """Register the handlers that make up the declared capabilities."""
        self._surface = surface
        self._resources = resources
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._lists: dict[bool, tuple[list[dict[str, Any]], Encoded]] = {}
        self._sessions: dict[int, Connection] = {}
        self._trips = RoundTrips()
        super().__init__(
            name,
            version=version,
            instructions=instructions,
            lifespan=self._lifespan,
            get_tool_input_schema=surface.input_schema,
            on_list_tools=self._typed_list,
            on_call_tool=self._typed_call,
            on_list_resources=self._list_resources if resources else None,
            on_list_resource_templates=self._list_templates if resources else None,
            on_read_resource=self._read_resource if resources else None,
            on_subscriptions_listen=self._listening,
        )
        self.middleware[:] = [*map(when_traced, self.middleware), self._fast]
        self._own_middleware = tuple(self.middleware)
        self._answerers = {"tools/call": self._call, "tools/list": self._quick_list}
        stamp = self.server_info.model_dump(by_alias=True, mode="json", exclude_none=True)
        self._stamp = {types.SERVER_INFO_META_KEY: stamp}

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Declare that lists change: the SDK's applications pass no options of their own."""
        options = notification_options or NotificationOptions(
            tools_changed=True, resources_changed=self._resources is not None
        )
        return super().create_initialization_options(options, experimental_capabilities, extensions)

    def end_streams(self) -> None:
        """End every `subscriptions/listen` stream gracefully."""
        self._listening.close()

    async def announce_tools(self) -> None:
        """Tell every client, of both eras, that the list of tools has changed (P6)."""
        await self._bus.publish(ToolsListChanged())
        async with anyio.create_task_group() as group:
            for connection in list(self._sessions.values()):
                group.start_soon(_bounded, connection.send_tool_list_changed)

    async def announce_resources(self) -> None:
        """Tell every client that the list of resources has changed."""
        await self._bus.publish(ResourcesListChanged())
        async with anyio.create_task_group() as group:
            for connection in list(self._sessions.values()):
                group.start_soon(_bounded, connection.send_resource_list_changed)

    async def announce_to(self, request: Request) -> None:
        """Tell one legacy client that its own list has changed, as by a grant (X2)."""
        await _bounded(connection_of(request.session).send_tool_list_changed)

    @asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> AsyncGenerator[dict[str, Any]]:
        async with self._surface.opened():
            yield {}

    def quick(self, method: str) -> Callable[[Request], Awaitable[dict[str, Any]]] | None:
        """How a method is answered past the SDK (`QuickServer`), while nothing else wants to see requests.

        A request that comes this way leaves nothing on its connection.
        """
        if tracing() or tuple(self.middleware) != self._own_middleware:
            return None
        return self._answerers.get(method)

    async def run(
        self,
        read_stream: Any,
        write_stream: Any,
        initialization_options: InitializationOptions,
        raise_exceptions: bool = False,
    ) -> None:
        """Serve one client over message streams until it leaves; errors always become answers."""
        dispatcher = stream_dispatcher(read_stream, write_stream, inline=INLINE)
        async with self.lifespan(self) as state:
            await serve_connection(self, dispatcher, state, initialization_options)

    async def _fast(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        match ctx.method:
            case "tools/call":
                _require_session(ctx)
                return await self._call(ctx)
            case "tools/list":
                _require_session(ctx)
                return self._list(ctx)
            case "notifications/initialized":
                self._remember(ctx)
            case _:
                pass
        return await call_next(ctx)

    def _list(self, request: Request) -> dict[str, Any]:
        if (request.params or {}).get("cursor") is not None:
            raise MCPError(
                types.INVALID_PARAMS, "Unknown cursor: this server lists all its tools on one page"
            )
        tools, modern = self._surface.listed(WireContext(request)), is_modern(request.protocol_version)
        known = self._lists.get(modern)
        # A view's list is one object for as long as the view lasts, so it is brought into JSON once.
        if known is None or known[0] is not tools:
            result = list_for(tools, modern=modern, stamp=self._stamp)
            known = self._lists[modern] = (tools, Encoded(result, json_of(result)))
        return known[1]

    async def _quick_list(self, request: Request) -> dict[str, Any]:
        return self._list(request)

    async def _call(self, request: Request) -> dict[str, Any]:
        name, arguments = _call_params(request.params or {})
        context = WireContext(request)
        held = self._surface.grants_held(context)
        try:
            result = await self._answered(ToolCall(name, arguments), context)
        except UnknownToolError as fault:
            raise MCPError(types.INVALID_PARAMS, str(fault)) from None
        except UpstreamProtocolError as fault:
            raise MCPError(fault.code, str(fault), fault.data) from None
        if self._surface.grants_held(context) != held:
            await self.announce_to(request)
        return result_for(halted(result).wire, modern=is_modern(request.protocol_version), stamp=self._stamp)

    async def _answered(self, call: ToolCall, context: WireContext) -> ToolResult:
        """Run a call, or run it again with what the client answers; or ask the client (A14)."""
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
        except CallError as fault:
            return ToolResult.of_error(str(fault))

    def _remember(self, request: Request) -> None:
        if is_modern(request.protocol_version):
            return
        connection = connection_of(request.session)
        if id(connection) not in self._sessions:
            self._sessions[id(connection)] = connection
            connection.exit_stack.callback(self._sessions.pop, id(connection), None)

    async def _typed_list(
        self, request: Request, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate(self._list(request), by_name=False)

    async def _typed_call(
        self, request: Request, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return types.CallToolResult.model_validate(await self._call(request), by_name=False)

    async def _list_resources(self, request: Request, params: Any) -> types.ListResourcesResult:
        assert self._resources is not None
        return types.ListResourcesResult(resources=list(await self._resources.list_resources()))

    async def _list_templates(self, request: Request, params: Any) -> types.ListResourceTemplatesResult:
        assert self._resources is not None
        found = await self._resources.list_resource_templates()
        return types.ListResourceTemplatesResult(resource_templates=list(found))

    async def _read_resource(
        self, request: Request, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        assert self._resources is not None
        try:
            contents = await self._resources.read_resource(str(params.uri))
        except LookupError as fault:
            message = str(fault.args[0]) if fault.args else "Resource not found"
            raise MCPError(types.INVALID_PARAMS, message, {"uri": str(params.uri)}) from None
        return types.ReadResourceResult(contents=list(contents))


def _require_session(request: Request) -> None:
    """Refuse a legacy request before the handshake, as the SDK's own path does."""
    if is_modern(request.protocol_version):
        return
    if not connection_of(request.session).initialize_accepted:
        raise MCPError(types.INVALID_PARAMS, "Invalid request parameters: initialize first", "")


def _call_params(params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        raise MCPError(types.INVALID_PARAMS, "Invalid request parameters: name must be a string")
    if arguments is None:
        return name, {}
    if not isinstance(arguments, dict):
        raise MCPError(types.INVALID_PARAMS, "Invalid request parameters: arguments must be an object")
    return name, arguments  # pyright: ignore[reportUnknownVariableType]


async def _bounded(send: Any) -> None:
    with anyio.move_on_after(NOTIFY_DEADLINE):
        await send()
