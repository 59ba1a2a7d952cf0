"""`LowlevelServer`: the SDK's view of a toolset server; `ToolsetServer.lowlevel` makes it on first use.

`Client(server.lowlevel)` talks to it in process, and a program may run it over streams of its own, put
middleware on it or add handlers. Whatever comes to it is answered by `MCPServer`. Once a program has added
something, what comes to `MCPServer` by any other door passes here first.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import mcp_types as types
from pydantic import BaseModel

from mcp_toolset.context.connection import Connection, RequestContext
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.protocol.methods import MODERN_PROTOCOL_VERSIONS, is_modern
from mcp_toolset.protocol.server_machine import INITIALIZE, ServerMachine
from mcp_toolset.sdk import (
    CallNext,
    HandlerResult,
    InitializationOptions,
    NotificationOptions,
    SdkTransportContext,
    Server,
    ServerMessageMetadata,
    ServerRequestContext,
    ServerRunner,
    aclose_shielded,
    ends_of,
    from_sdk,
    theirs,
    to_sdk,
)
from mcp_toolset.sdk import Connection as SdkConnection
from mcp_toolset.server.mcp_server import MCPServer, SdkHandlers
from mcp_toolset.transports.message_dispatcher import SdkWay, serve_streams

_KEY: Final = "mcp_toolset.connection"
_SDK_KEY: Final = "mcp_toolset.sdk_connection"

Params = Mapping[str, Any] | None


def known_connection(sdk: SdkConnection) -> tuple[ServerMachine, Connection]:
    """A connection that the SDK has taken, as the bridge sees it; it may have had its handshake."""
    known: tuple[ServerMachine, Connection] | None = sdk.state.get(_KEY)
    if known is None:
        accepted = sdk.initialize_accepted
        info, declared = sdk.client_params, sdk.client_capabilities
        machine = ServerMachine("legacy", version=sdk.protocol_version, initialize_accepted=accepted)
        connection = Connection(
            _Bridged(sdk, from_sdk),
            protocol_version=sdk.protocol_version,
            client_info=None if info is None else _wire(info.client_info),
            client_capabilities=None if declared is None else _wire(declared),
            initialize_accepted=accepted,
            session_id=sdk.session_id,
        )
        sdk.exit_stack.push_async_callback(connection.aclose)
        known = sdk.state[_KEY] = machine, connection
    return known


def sdk_connection(connection: Connection) -> SdkConnection:
    """The SDK's form of a connection: one for the life of a legacy client, one for each modern request."""
    known: SdkConnection | None = connection.state.get(_SDK_KEY)
    if known is not None:
        return known
    version, info, declared = (
        connection.protocol_version,
        connection.client_info,
        connection.client_capabilities,
    )
    outbound: Any = _Bridged(connection, to_sdk)
    if is_modern(version) or connection.initialize_accepted:
        made = SdkConnection.from_envelope(version, info, declared, outbound=outbound)
    else:
        made = SdkConnection.for_loop(outbound, protocol_version_hint=version)
    made.session_id = connection.session_id
    connection.state[_SDK_KEY] = made
    connection.on_close(partial(aclose_shielded, made))
    return made


class _Bridged:
    """Sends messages outside of requests over a connection of the other kind, the SDK's or the bridge's."""

    def __init__(self, other: Any, converted: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
        self._other = other
        self._converted = converted

    async def send_raw_request(self, method: str, params: Params, opts: Any = None) -> dict[str, Any]:
        return await self._converted(self._other.send_raw_request(method, params, opts))

    async def notify(self, method: str, params: Params, opts: Any = None) -> None:
        await self._other.notify(method, params)


class PassedRequest:
    """A request that came by another door, as the SDK's runner takes it: its `DispatchContext`."""

    def __init__(self, request: RequestContext) -> None:
        self.passed = request
        self._way: Any = request.way
        self.request_id = request.request_id
        self.transport = SdkTransportContext(kind="bridge", can_send_request=self.can_send_request)
        self.message_metadata = (
            None if request.http is None else ServerMessageMetadata(request_context=request.http)
        )

    @property
    def can_send_request(self) -> bool:
        return self._way.can_send_request

    @property
    def cancel_requested(self) -> Any:
        return self._way.cancel_requested

    @property
    def reason(self) -> str | None:
        return self._way.reason

    async def send_raw_request(self, method: str, params: Params, opts: Any = None) -> dict[str, Any]:
        return await to_sdk(self._way.send_raw_request(method, params, opts))

    async def notify(self, method: str, params: Params, opts: Any = None) -> None:
        await self._way.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._way.progress(progress, total, message)


def _wire(model: types.Implementation | types.ClientCapabilities) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


Request = ServerRequestContext[Any, Any]

_PARAMS: Final[Mapping[str, type[BaseModel]]] = {
    "tools/call": types.CallToolRequestParams,
    "tools/list": types.PaginatedRequestParams,
    "resources/list": types.PaginatedRequestParams,
    "resources/templates/list": types.PaginatedRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "resources/subscribe": types.SubscribeRequestParams,
    "resources/unsubscribe": types.UnsubscribeRequestParams,
    "prompts/list": types.PaginatedRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "completion/complete": types.CompleteRequestParams,
    "logging/setLevel": types.SetLevelRequestParams,
    "subscriptions/listen": types.SubscriptionsListenRequestParams,
}
"""The SDK's types of parameters, where a program calls a handler by itself."""


def _info_in(options: InitializationOptions) -> dict[str, Any]:
    info = types.Implementation(
        name=options.server_name,
        version=options.server_version,
        title=options.title,
        description=options.description,
        website_url=options.website_url,
        icons=options.icons,
    )
    return info.model_dump(by_alias=True, mode="json", exclude_none=True)


def _passed(middleware: Any, call_next: CallNext, ctx: Request) -> Awaitable[HandlerResult]:
    return middleware(ctx, call_next)


class _RenamedServer:
    """An `MCPServer` that is called something else in the handshakes of one connection: `Answers`."""

    def __init__(self, answers: MCPServer, info: Mapping[str, Any]) -> None:
        self._answers, self._info = answers, info
        self.notified, self.opened = answers.notified, answers.opened
        self.input_schema, self.end_streams = answers.input_schema, answers.end_streams

    def answer(self, request: RequestContext) -> Awaitable[dict[str, Any]]:
        if request.method == INITIALIZE:
            return self._introduced(request)
        return self._answers.answer(request)

    async def _introduced(self, request: RequestContext) -> dict[str, Any]:
        result = await self._answers.answer(request)
        # A program's own handler of handshakes has the last word.
        is_ours = result.get("serverInfo") == self._answers.handshake.info
        return {**result, "serverInfo": self._info} if is_ours else result


class LowlevelServer(Server[Any], SdkHandlers):
    """An SDK `Server` in front of an `MCPServer`."""

    def __init__(self, answers: MCPServer) -> None:
        self.answers = answers
        self._added: set[str] = set()
        info = answers.handshake.info
        super().__init__(
            info["name"],
            version=info["version"],
            instructions=answers.handshake.instructions,
            lifespan=self._lifespan,
            get_tool_input_schema=lambda name: answers.input_schema(name, {}),
        )
        for method, model in _PARAMS.items():
            super().add_request_handler(method, model, self._handle)
        super().add_request_handler("server/discover", types.RequestParams, self._handle)
        # Requests have their spans already.
        self.middleware[:] = [self._answer]
        self._own_middleware = tuple(self.middleware)
        self._modern = ServerMachine("modern")
        answers.program = self
        self.extensions.update(answers.handshake.extensions)
        answers.handshake.extensions = self.extensions

    @property
    def instructions(self) -> str | None:
        return self.answers.handshake.instructions

    @instructions.setter
    def instructions(self, text: str | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.answers.handshake.instructions = text

    @property
    def announcements(self) -> Any:
        return self.answers.announcements

    def add_request_handler(self, method: str, params_type: Any, handler: Any) -> None:
        super().add_request_handler(method, params_type, handler)
        self._added.add(method)

    def add_notification_handler(self, method: str, params_type: Any, handler: Any) -> None:
        super().add_notification_handler(method, params_type, handler)
        self._added.add(method)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """Declare what the server offers now, and no more; the SDK would declare every handler."""
        found = self.answers.handshake.capabilities(modern=is_modern(protocol_version))
        declared = types.ServerCapabilities.model_validate(found)
        if experimental_capabilities:
            declared.experimental = experimental_capabilities
        if extensions is not None:
            declared.extensions = extensions
        return declared

    @asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> AsyncGenerator[dict[str, Any]]:
        async with self.answers.opened():
            yield {}

    async def run(
        self,
        read_stream: Any,
        write_stream: Any,
        initialization_options: InitializationOptions,
        raise_exceptions: bool = False,
    ) -> None:
        """Serve one client over message streams until it leaves; errors always become answers.

        Args:
            read_stream: The client's messages.
            write_stream: Takes the messages to the client.
            initialization_options: The name of the server in the handshake. Capabilities and
                instructions are always those of what is served when the client asks.
            raise_exceptions: Ignored.
        """
        info = _info_in(initialization_options)
        known = self.answers.handshake.info
        answers = self.answers if info == known else _RenamedServer(self.answers, info)
        await serve_streams(answers, read_stream, write_stream)

    def takes(self, method: str) -> bool:
        """True if a program wants to see messages of a method: by middleware, or a handler of its own."""
        return method in self._added or tuple(self.middleware) != self._own_middleware

    async def answer(self, request: RequestContext) -> dict[str, Any]:
        """The result of a request that came by another door, by the program's middleware and handlers."""
        runner = ServerRunner(self, sdk_connection(request.connection), {})
        passed: Any = PassedRequest(request)
        return await from_sdk(runner.on_request(passed, request.method, request.params))

    async def notified(self, request: RequestContext) -> None:
        """Hand a notification that came by another door to the program's middleware and handlers."""
        runner = ServerRunner(self, sdk_connection(request.connection), {})
        passed: Any = PassedRequest(request)
        await runner.on_notify(passed, request.method, request.params)

    async def _answer(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        """Answer by `MCPServer`, unless a program has a handler of its own for this."""
        is_note = ctx.request_id is None
        try:
            request = self._request(ctx)
            if is_note and request is not None:
                await self.answers.own_notified(request)
            if is_note or request is None or ctx.method in self._added:
                return await call_next(ctx)
            if self.middleware[-1] == self._answer:
                return await self.answers.own_answer(request)
        except MCPError as fault:
            raise theirs(fault) from None
        return await self._past_the_rest()(ctx)

    def _past_the_rest(self) -> CallNext:
        """The way to `MCPServer` past the middleware that a program has put behind `_answer`."""
        call: CallNext = self._own_answer
        for middleware in reversed(self.middleware[self.middleware.index(self._answer) + 1 :]):
            call = partial(_passed, middleware, call)
        return call

    async def _own_answer(self, ctx: Request) -> HandlerResult:
        try:
            request = self._request(ctx)
            return {} if request is None else await self.answers.own_answer(request)
        except MCPError as fault:
            raise theirs(fault) from None

    async def _handle(self, ctx: Request, params: Any) -> Any:
        """The handler of every method, for a program that looks it up and calls it by itself."""
        request = self._request(ctx)
        return {} if request is None else await to_sdk(self.answers.own_answer(request))

    def _request(self, ctx: Request) -> RequestContext | None:
        """The request in the SDK's context of a message; `None` for a notification that is dropped."""
        outbound, sdk = ends_of(ctx.session)
        if isinstance(outbound, PassedRequest):
            before = outbound.passed
            return RequestContext(
                ctx.method, ctx.params, before.request_id, before.connection, before.way, before.http
            )
        number, http, version = ctx.request_id, ctx.request, sdk.protocol_version
        if version in MODERN_PROTOCOL_VERSIONS:
            machine = self._modern
            said = machine.envelope if number is None else machine.receive_request(ctx.method, ctx.params)
            connection = Connection(
                None,
                protocol_version=version,
                client_info=said.client_info,
                client_capabilities=said.client_capabilities,
                initialize_accepted=True,
            )
            way = SdkWay(outbound, number, http, asks=False)
            return RequestContext(ctx.method, ctx.params, number, connection, way, http)
        machine, connection = known_connection(sdk)
        if number is not None:
            machine.receive_request(ctx.method, ctx.params)
        elif not machine.receive_notification(ctx.method, ctx.params):
            return None
        way = SdkWay(outbound, number, http)
        return RequestContext(ctx.method, ctx.params, number, connection, way, http)


NAME, PART = "lowlevel", LowlevelServer
