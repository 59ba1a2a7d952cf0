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


class ArrivingRequest:
    """One request and its response, and the scope that it runs in.

    Attributes:
        scope: Its deadline is that of the body, until the body is there or an answer is under way.
        started: Whether the response has begun.
        unfinished: Whether it has begun and not ended.
    """

    __slots__ = ("_receive", "_send", "_until", "scope", "started", "unfinished")

    def __init__(self, method: str, receive: Receive, send: Send, seconds: float) -> None:
        """Begin with the head; the body is given `seconds` from now."""
        self._receive = receive
        self._send = send
        self._until = anyio.current_time() + seconds if method in _WITH_BODY else float("inf")
        self.scope = anyio.CancelScope(deadline=self._until)
        self.started = False
        self.unfinished = False

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
            late = self.scope.deadline == self._until
            status, text = (408, _LATE) if late else (503, _STOPPING)
            headers = [
                (b"content-type", b"text/plain"),
                (b"content-length", b"%d" % len(text)),
                (b"connection", b"close"),
            ]
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": text})

    def _arrived(self) -> None:
        # A server that stops gives each request a deadline of its own, which stays.
        if self.scope.deadline == self._until:
            self.scope.deadline = float("inf")


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
