"""How long a request over HTTP may take to arrive: its head, then its body."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import anyio
from starlette.types import Message, Receive, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from mcp_toolset.errors import DefinitionError

_WITH_BODY: Final = ("POST", "PUT", "PATCH")
_LATE: Final = b"The request did not arrive in time"
_STOPPING: Final = b"The server stops"


def checked_timeout(seconds: float) -> float:
    """The seconds, if a request can arrive in them.

    Raises:
        DefinitionError: they are not positive.
    """
    if not seconds > 0:
        raise DefinitionError(f"request_timeout is a positive number of seconds, not {seconds!r}")
    return seconds


class Arrivals:
    """The requests whose bodies have not arrived: one timer watches over all of them."""

    def __init__(self, seconds: float) -> None:
        """Give each `seconds` after its head."""
        self._seconds = seconds
        self._requests: dict[ArrivingRequest, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, request: ArrivingRequest) -> None:
        """Expect a body from now on."""
        self._requests[request] = asyncio.get_running_loop().time() + self._seconds
        if self._timer is None:
            self._arm()

    def end(self, request: ArrivingRequest) -> None:
        """Expect it no more: it is there, or the request is answered without it."""
        self._requests.pop(request, None)

    def _arm(self) -> None:
        # The oldest request is the first.
        until = next(iter(self._requests.values()), None)
        if until is not None:
            self._timer = asyncio.get_running_loop().call_at(until, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for request, until in list(self._requests.items()):
            if until > now:
                break
            del self._requests[request]
            request.scope.cancel()
        self._arm()


class ArrivingRequest:
    """One request and its response, and the scope that it runs in.

    Attributes:
        has_arrived: Whether the body is there, or the request is answered without it.
        scope: Cancelled when the body is late, or when serving ends.
        started: Whether the response has begun.
        unfinished: Whether it has begun and not ended.
    """

    __slots__ = ("_arrivals", "_receive", "_send", "has_arrived", "scope", "started", "unfinished")

    def __init__(self, method: str, receive: Receive, send: Send, arrivals: Arrivals) -> None:
        """Begin with the head; `arrivals` watches over the body, if the method has one."""
        self._receive = receive
        self._send = send
        self._arrivals = arrivals
        self.scope = anyio.CancelScope()
        self.started = False
        self.unfinished = False
        self.has_arrived = method not in _WITH_BODY
        if not self.has_arrived:
            arrivals.begin(self)

    async def receive(self) -> Message:
        """The next part of the request."""
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._arrived()
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response."""
        if not self.started:
            self.started = True
            self._arrived()
        self.unfinished = message["type"] != "http.response.body" or message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        """Complete the response of a request whose scope was cancelled: it is late, or serving ends."""
        if self.unfinished:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not self.started:
            # Who reads 408 may send the request again, which has arrived, and perhaps had its effect.
            status, text = (503, _STOPPING) if self.has_arrived else (408, _LATE)
            headers = [
                (b"content-type", b"text/plain"),
                (b"content-length", b"%d" % len(text)),
                (b"connection", b"close"),
            ]
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": text})

    def forget(self) -> None:
        """Watch over the request no more."""
        if not self.has_arrived:
            self._arrivals.end(self)

    def _arrived(self) -> None:
        if not self.has_arrived:
            self.has_arrived = True
            self._arrivals.end(self)


def watching_heads(seconds: float) -> type[asyncio.Protocol]:
    """The protocol of uvicorn that ends a connection whose next request has no whole head in time.

    uvicorn bounds only the pause between two requests.
    """

    class HeadInTime(AutoHTTPProtocol):
        cycle: Any
        transport: Any
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            cycle = self.cycle
            if cycle is None or cycle.response_complete:
                self._watch()
            else:
                self._unwatch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            super().connection_lost(exc)

        def _watch(self) -> None:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(seconds, self.transport.abort)

        def _unwatch(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return HeadInTime
