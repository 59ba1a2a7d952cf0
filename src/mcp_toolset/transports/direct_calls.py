"""`DirectCalls`: the transport to a server of this process; messages are passed as objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from mcp_toolset._index import needed
from mcp_toolset.calls.decision import watched
from mcp_toolset.concurrency.tasks import Deadlines, new_scope
from mcp_toolset.context.connection import Answers, Connection, RequestContext
from mcp_toolset.context.spans import SentRequest
from mcp_toolset.protocol import dispatch, json_rpc
from mcp_toolset.protocol.server_machine import ServerMachine
from mcp_toolset.transports.requests import OneWayContext
from mcp_toolset.transports.serve_connection import modern_connection

if TYPE_CHECKING:
    from mcp_toolset.tools.definition import ToolDefinition

_TRANSPORT: Final = dispatch.TransportContext(kind="direct", can_send_request=False)


def answers_of(target: object) -> Answers | None:
    """The side of a server that answers requests; `None` if a target is no server of this package."""
    found: object = getattr(target, "answers", None)
    return cast("Answers", found) if callable(getattr(found, "answer", None)) else None


@asynccontextmanager
async def in_process_dispatcher(server: Any) -> AsyncGenerator[DirectCalls]:
    """Open a server of this process, and yield a dispatcher to it."""
    answers = answers_of(server)
    if answers is not None:
        async with answers.opened():
            with DirectCalls(own_answers(answers)) as calls:
                yield calls
        return
    of_sdk = needed("sdk", "mounted servers of the SDK are")
    async with server.lifespan(server) as state:
        with DirectCalls(*of_sdk(server, state)) as calls:
            yield calls


def own_answers(server: Answers) -> dispatch.OnRequest:
    """A handler that passes modern requests of this process, whose callers are trusted, to a server."""
    machine = ServerMachine("modern")

    def answer(context: Any, method: str, params: dispatch.Params) -> Awaitable[dict[str, Any]]:
        call: DirectCall = context
        connection = call.connection = modern_connection(machine.receive_request(method, params))
        return server.answer(RequestContext(method, params, call.request_id, connection, call))

    return answer


class DirectCalls:
    """A dispatcher whose peer is a server of this process."""

    keeps_time: Final = True

    def __init__(
        self,
        serve: dispatch.OnRequest,
        refusal: Callable[[str], Exception] = json_rpc.NoBackChannelError,
        passed: tuple[type[Exception], ...] = (),
    ) -> None:
        """Answer requests by `serve`; its errors of the kinds `passed` reach the caller unchanged."""
        self._serve = serve
        self._passed = (json_rpc.MCPError, *passed)
        self.refusal = refusal
        self._ids = count(1)
        self._closed = anyio.Event()
        self.close = self._closed.set
        self._deadlines = Deadlines[anyio.CancelScope](lambda scope: scope.cancel())
        self._on_notify: dispatch.OnNotify | None = None
        self._intercept: dispatch.OnNotifyIntercept | None = None

    async def send_raw_request(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> dict[str, Any]:
        if self._closed.is_set():
            raise json_rpc.MCPError.from_error_data(json_rpc.CLOSED)
        if not watched():
            return await self._answer_in_time(method, params, opts or {})
        with SentRequest(method, params) as sent:
            return sent.answered(await self._answer_in_time(method, sent.params, opts or {}))

    async def _answer_in_time(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions
    ) -> dict[str, Any]:
        """The server's answer, within the timeout of the request."""
        seconds = opts.get("timeout")
        call = DirectCall(self, opts, next(self._ids))
        if seconds is None:
            return await self._answer(call, method, params)
        scope = new_scope()
        self._deadlines.begin(scope, seconds)
        try:
            with scope:
                return await self._answer(call, method, params)
        finally:
            self._deadlines.end(scope)
        raise json_rpc.RequestTimedOut(json_rpc.REQUEST_TIMEOUT, f"Request {method!r} timed out")

    async def _answer(self, call: DirectCall, method: str, params: dispatch.Params) -> dict[str, Any]:
        """The server's answer; any error of the server becomes one of the protocol."""
        try:
            return await self._serve(call, method, params)
        except self._passed:
            raise
        # As over other transports, a caller gets no exception of a handler, which could hold secrets.
        except Exception as raised:
            raise json_rpc.MCPError.from_error_data(json_rpc.error_for_peer(raised)) from None
        finally:
            if call.connection is not None and call.connection.has_callbacks:
                await call.connection.aclose()

    async def notify(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> None: ...

    async def run(
        self,
        on_request: dispatch.OnRequest,
        on_notify: dispatch.OnNotify,
        on_notify_intercept: dispatch.OnNotifyIntercept | None = None,
        *,
        task_status: dispatch.Started = dispatch.NOT_AWAITED,
    ) -> None:
        self._on_notify, self._intercept = on_notify, on_notify_intercept
        task_status.started()
        try:
            await self._closed.wait()
        finally:
            self._closed.set()

    def __enter__(self) -> DirectCalls:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def deliver(self, call: DirectCall, method: str, params: dispatch.Params) -> None:
        """Pass a notification of the server to the client side."""
        if self._on_notify is None or self._closed.is_set():
            return
        if not dispatch.run_notify_intercept(self._intercept, method, params):
            await self._on_notify(call, method, params)


class DirectCall(OneWayContext):
    """The context of one request, as the server gets it; the server cannot send requests by it."""

    __slots__ = ("_calls", "_opts", "connection", "request_id")

    transport = _TRANSPORT

    def __init__(self, calls: DirectCalls, opts: dispatch.CallOptions, number: int) -> None:
        self._calls = calls
        self._opts = opts
        self._cancel_requested = None
        self.connection: Connection | None = None
        self.request_id: json_rpc.RequestId = opts.get("request_id", number)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that the request would have over HTTP, if its link carries headers."""
        return self._opts.get("headers") or {}

    @property
    def tool(self) -> ToolDefinition | None:
        """The definition by which the client has judged the call; `None` for another request."""
        return self._opts.get("tool")

    async def send_raw_request(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> dict[str, Any]:
        raise self._calls.refusal(method)

    async def notify(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> None:
        await self._calls.deliver(self, method, params)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        report = self._opts.get("on_progress")
        if report is not None:
            await report(progress, total, message)
