"""`QuickAnswers`: a modern `tools/call` or `tools/list` over HTTP, without the SDK's models in between.

It stands before the SDK's endpoint, behind the same checks of Host, Origin and authentication, and takes
only what passes every check that the SDK makes: method and headers, each once and in agreement with the
body, content type, what the client accepts, size, envelope, parameter headers. Whatever does not pass,
and whatever it does not know, goes on to the SDK, body and all, which then says what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio
import mcp_types as types
from pydantic_core import from_json
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_toolset.bridge.answers import answer_line
from mcp_toolset.bridge.eras import Callers, Quick, request_of
from mcp_toolset.bridge.lowlevel import LowlevelServer
from mcp_toolset.bridge.messages import json_of, progress_params, progress_token, strict_object
from mcp_toolset.bridge.sdk import (
    ERROR_CODE_HTTP_STATUS,
    MAX_BODY,
    Connection,
    InboundModernRoute,
    NoBackChannelError,
    ServerMessageMetadata,
    TransportContext,
    call_route,
    fault_for_peer,
    header_map,
)

PING_INTERVAL: Final = 15.0
"""Seconds of silence after which the answer becomes a stream with a comment, so that no proxy drops it."""

_WATCHED_AFTER: Final = 0.02
"""Seconds that a call may take before it is watched whether its client is still there."""

_ONCE: Final = frozenset(
    (b"accept", b"content-length", b"content-type", b"mcp-method", b"mcp-name", b"mcp-protocol-version")
)
_UNKNOWN: Final = (b"transfer-encoding", b"content-encoding", b"expect")
_PARAM: Final = b"mcp-param-"
_STREAM: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


class QuickAnswers:
    """The endpoint of streamable HTTP."""

    def __init__(self, sdk: ASGIApp, server: LowlevelServer, *, streams: bool = True) -> None:
        """Stand before `sdk`.

        Args:
            sdk: Takes everything else.
            server: Whose tools are called.
            streams: Whether reports may turn an answer into an event stream.
        """
        self._sdk = sdk
        self._server = server
        self._streams = streams
        self._callers = Callers()
        self._annotated: dict[str, tuple[object, bool]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        method = _method_of(scope["headers"]) if scope.get("method") == "POST" else None
        quick = self._server.quick(method) if method is not None else None
        if quick is None:
            await self._sdk(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            return
        found = self._read(scope, body, method)
        if found is None:
            await self._sdk(scope, _replayed(body, receive), send)
            return
        request, route = found
        exchange = _Exchange(request, Request(scope, receive), send, streams=self._streams)
        await exchange.run(quick, self._callers.connection(route), receive)

    def _read(
        self, scope: Scope, body: bytes, method: str | None
    ) -> tuple[dict[str, Any], InboundModernRoute] | None:
        """The request in a body, and how it is routed; `None` if anything is unusual about it."""
        try:
            request = strict_object(from_json(body))
        except ValueError:
            return None
        if request is None or request.get("method") != method:
            return None
        if type(request.get("id")) not in (int, str) or type(request.get("params")) is not dict:
            return None
        route = call_route(request, scope["headers"])
        if route is None or (method == "tools/call" and self._has_annotations(request["params"].get("name"))):
            return None
        return request, route

    def _has_annotations(self, name: object) -> bool:
        """Whether arguments of a tool are to agree with headers: the SDK then compares them."""
        lookup = self._server.get_tool_input_schema
        schema = lookup(name) if lookup is not None and isinstance(name, str) else None
        if schema is None:
            return False
        known = self._annotated.get(cast("str", name))
        if known is None or known[0] is not schema:
            known = self._annotated[cast("str", name)] = (schema, bool(header_map(schema)))
        return known[1]


def _method_of(headers: list[tuple[bytes, bytes]]) -> str | None:
    """The method of a request, if all its headers are as they should be."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in found and name in _ONCE:
            return None
        if name in _UNKNOWN or name.startswith(_PARAM):
            return None
        found[name] = value
    accept, size = found.get(b"accept", b""), found.get(b"content-length", b"")
    fits = (
        found.get(b"content-type", b"").lower().startswith(b"application/json")
        and b"application/json" in accept
        and b"text/event-stream" in accept
        and size.isdigit()
        and int(size) <= MAX_BODY
    )
    return found.get(b"mcp-method", b"").decode("latin-1") if fits else None


async def _body(receive: Receive) -> bytes | None:
    """The body, no longer than its header said; `None` when the client has gone."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` as it was before the body was read."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return unread.pop() if unread else await receive()

    return replay


class _Exchange:
    """One call and its answer; the handler's context at the same time (the SDK's `DispatchContext`)."""

    can_send_request = False

    def __init__(
        self,
        request: Mapping[str, Any],
        http: Request,
        send: Send,
        *,
        streams: bool,
    ) -> None:
        self._method: str = request["method"]
        self._params: dict[str, Any] = request["params"]
        self._token = progress_token(self._params)
        self._send = send
        self._streams = streams
        self._streaming = False
        self._sending = anyio.Lock()
        self._finished = False
        self._cancel_requested: anyio.Event | None = None
        self.request_id: types.RequestId = request["id"]
        self.transport = TransportContext(kind="streamable-http", can_send_request=False)
        self.message_metadata = ServerMessageMetadata(request_context=http)

    async def run(self, quick: Quick, connection: Connection, receive: Receive) -> None:
        """Call, and answer; a client that leaves cancels the call (F27)."""
        context = request_of(self, connection, self._method, self._params, {})
        result: dict[str, Any] | None = None
        fault: types.ErrorData | None = None
        async with anyio.create_task_group() as group:

            def watch() -> None:
                group.start_soon(self._watch, receive, group.cancel_scope)

            timer = asyncio.get_running_loop().call_later(_WATCHED_AFTER, watch)
            try:
                result = await quick(context)
            # A handler may raise anything; the client gets an answer whatever it is.
            except Exception as raised:
                fault = fault_for_peer(raised)
            finally:
                timer.cancel()
            group.cancel_scope.cancel()
        if result is not None or fault is not None:
            await self._answer(result, fault)

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        async with anyio.create_task_group() as group:
            if self._streams:
                group.start_soon(self._keep_alive)
            while (await receive())["type"] != "http.disconnect":
                pass
            scope.cancel()

    async def _keep_alive(self) -> None:
        while True:
            await anyio.sleep(PING_INTERVAL)
            await self._event(b": ping\r\n\r\n")

    async def _event(self, event: bytes) -> None:
        async with self._sending:
            if not self._streaming:
                self._streaming = True
                await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM})
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def _answer(self, result: dict[str, Any] | None, fault: types.ErrorData | None) -> None:
        self._finished = True
        body, status = _answer_body(self.request_id, result, fault)
        if self._streaming:
            event = b"event: message\r\ndata: " + body + b"\r\n\r\n"
            await self._send({"type": "http.response.body", "body": event, "more_body": False})
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    @property
    def cancel_requested(self) -> anyio.Event:
        """Set by nobody: a client that leaves cancels the handler itself."""
        if self._cancel_requested is None:
            self._cancel_requested = anyio.Event()
        return self._cancel_requested

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None
    ) -> dict[str, Any]:
        """Refuse: a modern server does not send requests."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        """Send a notification on the stream of the call."""
        if self._streams and not self._finished:
            message = {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}
            await self._event(b"event: message\r\ndata: " + json_of(message) + b"\r\n\r\n")

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the client asked for it."""
        if self._token is None:
            return
        params = progress_params(self._token, progress, total, message)
        await self.notify("notifications/progress", params)


def _answer_body(
    number: types.RequestId, result: dict[str, Any] | None, fault: types.ErrorData | None
) -> tuple[bytes, int]:
    if fault is None:
        try:
            return answer_line(number, result, None), 200
        except ValueError:
            fault = types.ErrorData(code=types.INTERNAL_ERROR, message="the result has no JSON form")
    return answer_line(number, None, fault), ERROR_CODE_HTTP_STATUS.get(fault.code, 200)
