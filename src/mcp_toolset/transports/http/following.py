"""`Following`: a response that follows an event log; `StandingStream`: the one that belongs to no call.

A legacy client that lost the stream of a call comes back for the rest of it by a `GET` with `Last-Event-ID`.
By a `GET` without that it opens the standing stream of its session: notifications such as `list_changed` go
on it, and requests to the client that no call has caused. What is said while no such stream is open waits
for the next one, within the bounds of `KeptEvents`.
"""

from __future__ import annotations

from typing import Final

import anyio
from starlette.types import Receive, Send

from mcp_toolset.transports.http.kept_events import EventLog
from mcp_toolset.transports.http.replies import PLAIN, STREAM, Headers, reply

PING: Final = b": ping\r\n\r\n"
_GONE: Final = (
    b"nothing is kept of the call that this event belongs to: too much time has passed, or newer events took "
    b"its place; call again"
)


class Following:
    """What comes after one event of a log: what is kept of it, then what is said from now on.

    Attributes:
        number: The last event that was sent.
    """

    def __init__(self, log: EventLog, number: int) -> None:
        """Go on after the event with this number; one that is still to come may be of another session."""
        self.number = min(number, log.last)
        self._log = log
        self._open = anyio.CancelScope()

    async def send(self, receive: Receive, send: Send, headers: Headers, pause: float) -> None:
        """Answer the request, until the log ends, the client leaves or the stream is closed early.

        Args:
            receive: Says when the client leaves.
            send: Where the response goes.
            headers: What is said in its head besides.
            pause: Seconds of silence after which a comment is sent.
        """
        await send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *headers]})
        # The event that the client has, once more: it may have to come back again before there is a new one.
        if primed := self._log.priming(self.number):
            await _part(send, primed)
        with self._open:
            async with anyio.create_task_group() as group:
                group.start_soon(_left, receive, group.cancel_scope)
                await self._events(send, pause)
                group.cancel_scope.cancel()
        await _part(send, b"", more=False)

    def close(self) -> None:
        self._open.cancel()

    async def _events(self, send: Send, pause: float) -> None:
        while True:
            for number, event in self._log.after(self.number):
                await _part(send, event)
                self.number = number
            if self._log.ended:
                return
            with anyio.move_on_after(pause) as silence:
                await self._log.news()
            if silence.cancelled_caught:
                await _part(send, PING)


class StandingStream:
    """What is said outside of calls, and the one response that it goes to."""

    def __init__(self, log: EventLog) -> None:
        """Say nothing yet; what is said is kept in `log`."""
        self._log = log
        self._open: Following | None = None
        self._sent = 0

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def say(self, message: bytes) -> None:
        """Send a message, now or when the stream is opened."""
        self._log.add(message)

    async def send(
        self, receive: Receive, send: Send, headers: Headers, pause: float, after: int | None = None
    ) -> None:
        """Answer a `GET` with the stream; a client that comes back `after` an event ends its last one."""
        if self._open is not None:
            self._open.close()
        following = self._open = Following(self._log, self._sent if after is None else after)
        try:
            await following.send(receive, send, headers, pause)
        finally:
            self._sent = max(self._sent, following.number)
            if self._open is following:
                self._open = None

    def close(self) -> None:
        """End the response; the client may open another one."""
        if self._open is not None:
            self._open.close()

    def end(self) -> None:
        """End the response, and say nothing more."""
        self._log.give_up()


async def gone(send: Send, headers: Headers) -> None:
    """Answer that nothing is kept any more."""
    await reply(send, 410, _GONE, PLAIN, headers)


async def _part(send: Send, event: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": event, "more_body": more})


async def _left(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
