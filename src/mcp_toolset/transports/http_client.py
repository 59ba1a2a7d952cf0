"""The HTTP clients of upstream servers, in which a request that fails on its way fails alone.

The SDK's transports end, and every call under way with them, when one request of theirs raises. Here a
request that got no answer is answered: with an error for that request. `UpstreamHttp` is the client of
streamable HTTP, `UpstreamSse` the one of the older HTTP+SSE transport.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, cast

import anyio
import httpx2
import mcp_types as types

from mcp_toolset.concurrency.backoff import Backoff
from mcp_toolset.errors import UpstreamUnavailableError
from mcp_toolset.protocol.connection_faults import FAILED_ON_ITS_WAY, NOT_SENT
from mcp_toolset.protocol.framing import MAX_MESSAGE
from mcp_toolset.protocol.json_rpc import CONNECTION_CLOSED, PARSE_ERROR, ErrorData, RequestId
from mcp_toolset.sdk.errors import sdk_error_data
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.transports.backpressure import BIG, Caller, calling
from mcp_toolset.transports.http.kept_events import closing
from mcp_toolset.transports.intake import Intake, Metered
from mcp_toolset.transports.repair import RepairedEvents, readable

CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect to, and to write to, an HTTP upstream. Reading has no limit of its own: calls
have their deadlines, and a stream of changes may be silent for days."""

KEPT_OPEN: Final = 4.0
"""Seconds that an idle HTTP connection is kept: servers close theirs after 5 (uvicorn, Node). A request that
meets that moment is lost."""

GOODBYE_TIMEOUT: Final = 1.0
"""Seconds that ending an HTTP session may take."""

_MANY: Final = 4096
"""Requests whose callers are known at once; an older one does not hold its server back."""

_SESSION_ID: Final = "mcp-session-id"
_VERSION: Final = "mcp-protocol-version"
_EVENTS: Final = "text/event-stream"
_WITH_ID: Final = re.compile(rb"^id:", re.MULTILINE)
_log = logging.getLogger("mcp_toolset.upstream")


class _Client(httpx2.AsyncClient):
    """A client whose posted messages never raise for what happens on their way.

    A message that is no request has no answer to fail: it is sent a second time, as a peer takes the same
    answer or notification twice without harm, while without it the peer would wait in vain.
    """

    def __init__(self, **options: Any) -> None:
        # How many calls are under way at once is for the connection to limit.
        limits = httpx2.Limits(max_connections=None, keepalive_expiry=KEPT_OPEN)
        super().__init__(limits=limits, **options)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method != "POST":
            return await super().send(request, **options)
        for last in (False, True):
            try:
                return await self.posted(request, options)
            except httpx2.RequestError as fault:
                number = _number_of(request)
                if number is not None:
                    return await self.failed(request, number, _told(fault))
                if last:
                    _log.warning("a message to %s was lost: %s", request.url.host, in_log(_told(fault)))
        return httpx2.Response(202, request=request)

    async def posted(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Send a message; `httpx2.RequestError` if it fails."""
        return await super().send(request, **options)

    async def failed(self, request: httpx2.Request, number: RequestId, reason: str) -> httpx2.Response:
        """Answer a request that got no answer."""
        raise NotImplementedError


class UpstreamHttp(_Client):
    """The client of one connection over streamable HTTP.

    The stream that a legacy server may send on at any time is opened again whenever it ends: soon, and
    with growing waits if it ends at once.
    """

    def __init__(self, name: str, url: str, **options: Any) -> None:
        """Talk to the server that is mounted as `name`."""
        timeout = httpx2.Timeout(CONNECT_TIMEOUT, read=None)
        super().__init__(timeout=timeout, event_hooks={"response": [self._note]}, **options)
        self._name = name
        self._url = url
        self._session: dict[str, str] = {}
        self._backoff = Backoff()
        self._opened: float | None = None
        self._intake = Intake()

    def is_paced(self) -> bool:
        """Whether answers are not read for now, since clients have no room for those before."""
        return self._intake.waiting > 0

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; only what ends the connection is raised for a posted message."""
        if request.method == "GET" and _posting.get() is not self:
            return await self._listen(request, options)
        response = await super().send(request, **options)
        if request.method == "GET" and (close := closing.get()) is not None:
            response.stream = _EndOfPart(response.stream, close, resumable=True)
        return response

    async def posted(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Send a message and read its answer whole, unless that is a stream of events."""
        _posting.set(self)
        response = await super().posted(request, options)
        if _has_events(response):
            response.stream = Metered(response.stream, self._intake, events=True)
            if (close := closing.get()) is not None:
                response.stream = _EndOfPart(response.stream, close)
            response.stream = RepairedEvents(response.stream)
        else:
            response.stream = _Capped(Metered(response.stream, self._intake))
            try:
                # What is wrong with the body is found here, where it is one request's failure.
                body = await response.aread()
            except _TooLongError as fault:
                return _refusal(request, PARSE_ERROR, str(fault))
            finally:
                await response.aclose()
            if (plain := readable(body)) is not body:
                kind = {"content-type": response.headers.get("content-type", "application/json")}
                return httpx2.Response(response.status_code, headers=kind, content=plain, request=request)
        return response

    async def failed(self, request: httpx2.Request, number: RequestId, reason: str) -> httpx2.Response:
        """Answer with an error."""
        return _refusal(request, CONNECTION_CLOSED, reason)

    async def end(self) -> None:
        """End the session, also when the connection was cancelled."""
        if not self._session:
            return
        with anyio.move_on_after(GOODBYE_TIMEOUT, shield=True), suppress(httpx2.HTTPError):
            await self.delete(self._url, headers=self._session)

    async def _listen(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        if self._opened is not None:
            await anyio.sleep(self._backoff.after(anyio.current_time() - self._opened))
        self._opened = anyio.current_time()
        try:
            response = await super().send(request, **options)
        except httpx2.RequestError:
            return httpx2.Response(200, headers={"content-type": _EVENTS}, content=b"", request=request)
        response.stream = _Ending(response.stream)
        return response

    async def _note(self, response: httpx2.Response) -> None:
        """Learn the session from an answer, and notice when it is gone.

        The answer to a lost session is 404 (basic/transports, "Session Management"), with a body that
        the SDK takes for an ordinary error of the request.

        Raises:
            UpstreamUnavailableError: the session is gone; raised where it ends the connection.
        """
        if response.request.method == "DELETE":
            return
        asked = response.request.headers
        if response.status_code == 404 and _SESSION_ID in asked:
            self._session = {}
            raise UpstreamUnavailableError(self._name, "the server has ended the session")
        if response.headers.get(_SESSION_ID):
            self._session[_SESSION_ID] = response.headers[_SESSION_ID]
        if self._session and _VERSION in asked:
            self._session[_VERSION] = asked[_VERSION]


class UpstreamSse(_Client):
    """The client of one connection over HTTP+SSE, where answers come on a stream of their own.

    Messages are read from that stream here: the SDK's transport takes none of more than 1 MiB. It is left
    with the other events, of which the first one names the address for posts.
    """

    def __init__(self, answer: Callable[[types.JSONRPCMessage], Awaitable[None]], **options: Any) -> None:
        """Hand to `answer` what comes on the stream, and errors of requests that were not delivered."""
        super().__init__(timeout=httpx2.Timeout(CONNECT_TIMEOUT, read=None), **options)
        self._answer = answer
        self._callers: dict[RequestId, Caller] = {}

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; the messages of a stream of events do not come with its answer."""
        caller = calling.get() if request.method == "POST" else None
        if caller is not None:
            self._note_caller(request, caller)
        response = await super().send(request, **options)
        if request.method != "GET" or not response.is_success or not _has_events(response):
            return response
        return httpx2.Response(
            response.status_code,
            headers={"content-type": _EVENTS},
            stream=_WithoutMessages(response, self._handed_on),
            request=request,
        )

    def _note_caller(self, request: httpx2.Request, caller: Caller) -> None:
        number = _number_of(request)
        if number is not None:
            self._callers[number] = caller
            if len(self._callers) > _MANY:
                del self._callers[next(iter(self._callers))]

    async def _handed_on(self, message: types.JSONRPCMessage, size: int) -> None:
        """Hand a message on, and read no further until its client has room for more."""
        await self._answer(message)
        if isinstance(message, types.JSONRPCResponse):
            caller = self._callers.pop(message.id, None)
            if caller is not None and (size >= BIG or not caller.has_room):
                await caller.ready()

    async def posted(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Send a message; a refusal is a failure, as the answer would come on the stream."""
        response = await super().posted(request, options)
        if response.is_error:
            await response.aclose()
            raise httpx2.TransportError(f"HTTP {response.status_code}", request=request)
        return response

    async def failed(self, request: httpx2.Request, number: RequestId, reason: str) -> httpx2.Response:
        """Put an error on the stream of answers."""
        told = ErrorData(code=CONNECTION_CLOSED, message=reason)
        await self._answer(types.JSONRPCError(jsonrpc="2.0", id=number, error=sdk_error_data(told)))
        return httpx2.Response(202, request=request)


_posting: ContextVar[object] = ContextVar("mcp_toolset_posting", default=None)
"""The client over which a message was posted by the task at hand: a stream that it opens then is the rest of
that message's answer, and not the stream that is for everything else."""


class _TooLongError(httpx2.StreamError):
    """An answer is longer than it may be."""


class _Capped(httpx2.AsyncByteStream):
    """A body that fails its own request once it is too long; events have a limit of their own."""

    def __init__(self, body: Any) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > MAX_MESSAGE:
                raise _TooLongError(f"its answer has more than {MAX_MESSAGE} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


class _EndOfPart(httpx2.AsyncByteStream):
    """The events of an answer, whose server may end the stream early, to be asked for the rest of it.

    `close` is called then: what the server frees is freed towards the client too. Nobody reads to the end of
    a stream that has brought the answer.
    """

    def __init__(self, body: Any, close: Callable[[], None], *, resumable: bool = False) -> None:
        self._body = body
        self._close = close
        self._resumable = resumable

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        async for chunk in self._body:
            self._resumable = self._resumable or _WITH_ID.search(chunk) is not None
            yield chunk
        if self._resumable:
            self._close()

    async def aclose(self) -> None:
        await self._body.aclose()


class _WithoutMessages(httpx2.AsyncByteStream):
    """The events of a stream that are no messages; its messages are handed on, in order."""

    def __init__(
        self, response: httpx2.Response, take: Callable[[types.JSONRPCMessage, int], Awaitable[None]]
    ) -> None:
        self._response = response
        self._take = take

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        async for event in httpx2.EventSource(self._response, max_event_size=MAX_MESSAGE):
            if event.event != "message":
                yield f"event: {event.event}\ndata: {event.data}\n\n".encode()
            elif event.data:
                await self._message(event.data.encode())

    async def _message(self, data: bytes) -> None:
        try:
            message = types.jsonrpc_message_adapter.validate_json(readable(data), by_name=False)
        except ValueError as fault:
            _log.warning("%s sent an event that is no message: %s", self._response.url.host, fault)
        else:
            await self._take(message, len(data))

    async def aclose(self) -> None:
        await self._response.aclose()


class _Ending(httpx2.AsyncByteStream):
    """A body that ends where its connection breaks off."""

    def __init__(self, body: Any) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        with suppress(httpx2.TransportError):
            async for chunk in self._body:
                yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


def _has_events(response: httpx2.Response) -> bool:
    return _EVENTS in response.headers.get("content-type", "")


def _number_of(request: httpx2.Request) -> RequestId | None:
    """The id of a posted request; `None` for a notification or an answer."""
    message: object = json.loads(request.content)
    if not isinstance(message, Mapping) or "method" not in message:
        return None
    return cast("Mapping[str, RequestId]", message).get("id")


def _refusal(request: httpx2.Request, code: int, message: str) -> httpx2.Response:
    """An answer that the SDK's transport takes for the error of the request, whatever its id is."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(502, json=error, request=request)


def _told(fault: Exception) -> str:
    """Why a request failed; whether it was sent comes first."""
    sent = not isinstance(fault, httpx2.ConnectError | httpx2.ConnectTimeout)
    told = f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
    return f"{FAILED_ON_ITS_WAY if sent else NOT_SENT}: {told}"
