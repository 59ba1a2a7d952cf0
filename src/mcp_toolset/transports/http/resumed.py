"""`RestOfCall`: a `GET` with `Last-Event-ID`, by which a legacy client comes back for the rest of a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from mcp_toolset.transports.http.headers import Headers
from mcp_toolset.transports.http.kept_events import EventLog

STREAM: Final[Headers] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
"""The head of a stream of events."""

PING: Final = b": ping\r\n\r\n"
_GONE: Final = (
    "nothing is kept of the call that this event belongs to: too much time has passed, or newer events took "
    "its place; call again"
)


class RestOfCall:
    """What comes after one event of a call: what is kept of it, then what is said from now on."""

    def __init__(self, log: EventLog, number: int) -> None:
        """Go on after the event with this number."""
        self._log = log
        self._number = number
        self._open = anyio.CancelScope()

    async def send(
        self,
        receive: Receive,
        send: Send,
        headers: Headers,
        keep_alive: Callable[[], Awaitable[object]],
        pause: float,
    ) -> None:
        """Answer the request, until the call is answered, the client leaves or the stream is closed early.

        Args:
            receive: Says when the client leaves.
            send: Where the response goes.
            headers: What is said in its head besides.
            keep_alive: Called every `pause` seconds of silence.
            pause: Those seconds.
        """
        await send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *headers]})
        part = partial(_part, send)
        # The event that the client has, once more: it may have to come back again before there is a new one.
        await part(self._log.priming(self._number))
        with self._open:
            async with anyio.create_task_group() as group:
                group.start_soon(_left, receive, group.cancel_scope)
                await self._events(part, keep_alive, pause)
                group.cancel_scope.cancel()
        await part(b"", more=False)

    def close(self) -> None:
        """End the response early."""
        self._open.cancel()

    async def _events(
        self,
        part: Callable[[bytes], Awaitable[None]],
        keep_alive: Callable[[], Awaitable[object]],
        pause: float,
    ) -> None:
        while True:
            for number, event in self._log.after(self._number):
                await part(event)
                self._number = number
            if self._log.ended:
                return
            with anyio.move_on_after(pause) as silence:
                await self._log.news()
            if silence.cancelled_caught:
                await part(PING)
                await keep_alive()


async def gone(scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
    """Answer that nothing is kept any more."""
    named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    await PlainTextResponse(_GONE, 410, named)(scope, receive, send)


async def _part(send: Send, event: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": event, "more_body": more})


async def _left(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
