"""`MessageStreams`: the SDK's dispatcher over message streams, with a fast path for tool calls.

Clients of this process and the SDK's transports hand over messages in memory. Whatever such a client
sends is dispatched by the SDK, but for `tools/call`: for that a task of the loop is enough (asyncio).
Requests that belong to an HTTP exchange stay with the SDK, which knows what stream their answers go to.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, cast

import anyio
import mcp_types as types

from mcp_toolset import sdk
from mcp_toolset.concurrency.tasks import CancelledError, TaskSet, from_outside
from mcp_toolset.context.connection import Answers
from mcp_toolset.protocol import dispatch, json_rpc
from mcp_toolset.transports.line_dispatcher import lean
from mcp_toolset.transports.requests import ById, Incoming, OneWayContext, cancel_in
from mcp_toolset.transports.serve_connection import INLINE, serve_connection


class SdkWay(OneWayContext):
    """A request that the SDK has taken, and the way back to its client through the SDK."""

    __slots__ = ("_inner", "can_send_request", "http", "request_id")

    transport = dispatch.TransportContext(kind="sdk", can_send_request=True)

    def __init__(
        self, inner: Any, number: json_rpc.RequestId | None, http: Any, *, asks: bool = True
    ) -> None:
        self._inner = inner
        self.can_send_request = asks
        self.request_id = number
        self.http = http

    @classmethod
    def of(cls, inner: Any) -> SdkWay:
        metadata = inner.message_metadata
        http = metadata.request_context if isinstance(metadata, sdk.ServerMessageMetadata) else None
        return cls(inner, inner.request_id, http, asks=inner.can_send_request)

    @property
    def reason(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return getattr(self._inner, "reason", None)

    def refuse_requests(self) -> None:
        self.can_send_request = False

    @property
    def cancel_requested(self) -> anyio.Event:
        return self._inner.cancel_requested

    async def send_raw_request(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> dict[str, Any]:
        if not (self.can_send_request and self._inner.can_send_request):
            raise json_rpc.NoBackChannelError(method)
        return await sdk.from_sdk(self._inner.send_raw_request(method, params, opts))

    async def notify(
        self, method: str, params: dispatch.Params, opts: dispatch.CallOptions | None = None
    ) -> None:
        await self._inner.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._inner.progress(progress, total, message)


def answering(on_request: dispatch.OnRequest) -> dispatch.OnRequest:
    """Answer what the SDK's dispatcher has taken, and tell it of a failure as it knows failures."""

    async def answer(
        context: dispatch.DispatchContext, method: str, params: dispatch.Params
    ) -> dict[str, Any]:
        try:
            return await on_request(cast("Any", SdkWay.of(context)), method, params)
        # A handler may raise anything; the SDK knows its own errors alone.
        except Exception as raised:
            raise sdk.theirs(json_rpc.MCPError.from_error_data(json_rpc.error_for_peer(raised))) from raised

    return answer


def noting(on_notify: dispatch.OnNotify) -> dispatch.OnNotify:

    async def note(context: dispatch.DispatchContext, method: str, params: dispatch.Params) -> None:
        await on_notify(cast("Any", SdkWay.of(context)), method, params)

    return note


_log = logging.getLogger("mcp_toolset.wire")
_METHOD: Final = "tools/call"
_LAST_WORD: Final = 1.0
"""Seconds that a client has to take an answer when serving ends."""


class MessageStreams:
    """A dispatcher over a pair of streams of `SessionMessage`."""

    def __init__(self, read: Any, write: Any, *, inline: frozenset[str]) -> None:
        """Speak over the streams; a request of an `inline` method is finished before the next is taken."""
        self._write = write
        self._calls = _Calls(read, write) if lean() else None
        self._inner = sdk.stream_dispatcher(self._calls or read, write, inline=inline)
        self.send_raw_request, self.notify = self._inner.send_raw_request, self._inner.notify
        if self._calls is not None:
            self._calls.dispatcher = self._inner

    async def run(
        self,
        on_request: dispatch.OnRequest,
        on_notify: dispatch.OnNotify,
        on_notify_intercept: dispatch.OnNotifyIntercept | None = None,
        *,
        task_status: dispatch.Started = dispatch.NOT_AWAITED,
    ) -> None:
        if self._calls is not None:
            self._calls.on_request = on_request
        inner, answer, note = self._inner, answering(on_request), noting(on_notify)
        await inner.run(answer, note, on_notify_intercept, task_status=task_status)


class _Calls:
    """A stream of messages out of which the calls are taken as they pass."""

    def __init__(self, read: Any, write: Any) -> None:
        self.dispatcher: Any = None
        self.on_request: dispatch.OnRequest | None = None
        self._read, self.aclose = read, read.aclose
        self._write = write
        self._handling = TaskSet(self._close)
        self._under_way: ById[Incoming] = ById()

    @property
    def last_context(self) -> Context | None:
        return getattr(self._read, "last_context", None)

    def __aiter__(self) -> _Calls:
        return self

    async def __anext__(self) -> sdk.SessionMessage | Exception:
        item = None
        try:
            while item is None:
                item = self._sifted(await anext(self._read))
            return item
        finally:
            if item is None:
                await self._handling.end()

    async def receive(self) -> sdk.SessionMessage | Exception:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def __aenter__(self) -> _Calls:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _close(self) -> None:
        _log.error("a call's own task failed, which ends its connection", exc_info=self._handling.fault)
        self._read.close()

    def _sifted(self, item: sdk.SessionMessage | Exception) -> sdk.SessionMessage | Exception | None:
        if isinstance(item, Exception) or isinstance(item.metadata, sdk.ServerMessageMetadata):
            return item
        message = item.message
        if type(message) is types.JSONRPCRequest and message.method == _METHOD:
            self._begin(message)
            return None
        if type(message) is types.JSONRPCNotification and message.method == "notifications/cancelled":
            cancel_in(self._under_way, message.params)
        return item

    def _begin(self, request: types.JSONRPCRequest) -> None:
        key = json_rpc.request_key(request.id)
        incoming = self._under_way[key] = Incoming(
            self.dispatcher, request.id, json_rpc.progress_token(request.params)
        )
        self._handling.start(incoming.scope, self._handle(incoming, key, request), self.last_context)

    async def _handle(
        self, incoming: Incoming, key: json_rpc.RequestId, request: types.JSONRPCRequest
    ) -> None:
        assert self.on_request is not None
        answer: types.JSONRPCMessage | None = None
        with incoming.scope.begun():
            try:
                result = await self.on_request(incoming, request.method, request.params)
                answer = types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)
            # A handler may raise anything; the peer gets an answer whatever it is.
            except (Exception, CancelledError) as raised:
                if from_outside(raised):
                    raise
                answer = _error(request, json_rpc.error_for_peer(raised))
        incoming.close()
        if self._under_way.get(key) is incoming:
            del self._under_way[key]
        if incoming.cancelled:
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            if answer is not None:
                return await self._write.send(sdk.SessionMessage(answer))
            with anyio.move_on_after(_LAST_WORD):
                await self._write.send(sdk.SessionMessage(_error(request, json_rpc.CLOSED)))


async def serve_streams(server: Answers, read: Any, write: Any) -> None:
    async with server.opened():
        await serve_connection(server, MessageStreams(read, write, inline=INLINE))


def _error(request: types.JSONRPCRequest, fault: json_rpc.ErrorData) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request.id, error=sdk.sdk_error_data(fault))
