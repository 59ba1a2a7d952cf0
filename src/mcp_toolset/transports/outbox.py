"""`Outbox`: the sending half of our dispatcher: requests, and the tasks that wait for their answers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import anyio

from mcp_toolset.calls.pipeline.decision import watched
from mcp_toolset.concurrency.cancel_reason import reason_or
from mcp_toolset.context.spans import SentRequest
from mcp_toolset.protocol.codec import notification, request_line, result_of
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.errors import CLOSED
from mcp_toolset.protocol.json_rpc import REQUEST_TIMEOUT, MCPError, RequestId, RequestTimedOut
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.transports.backpressure import Channel, calling
from mcp_toolset.transports.requests import Sender, Waiting

FEW: Final = 1
"""Exchanges in flight up to which each message is sent by itself, and not with others."""

_log = logging.getLogger("mcp_toolset.wire")


class Outbox(Sender):
    """Sends requests and notifications over a `PipePair`, as long as it is open."""

    def __init__(self, pipes: Channel) -> None:
        """Send over `pipes`, once the other half is running."""
        super().__init__()
        self._pipes = pipes

    def _close(self) -> None:
        """Send nothing more; no request will be answered."""
        self._closed = True
        self._deadlines.stop()
        for waiting in self._waiting.values():
            waiting.settle(None)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._closed:
            raise MCPError.from_error_data(CLOSED)
        if not self._opened:
            raise RuntimeError("send_raw_request was called before run()")
        opts = opts or {}
        if watched() and not opts.get("is_watched"):
            with SentRequest(method, params) as sent:
                known: CallOptions = {**opts, "is_watched": True}
                return sent.answered(await self.send_raw_request(method, sent.params, known))
        on_progress, timeout = opts.get("on_progress"), opts.get("timeout")
        if not self._pipes.has_room:
            timeout = await self._room_within(timeout, method)
        key, number = self._waiting.numbered(opts.get("request_id"))
        line = request_line(number, method, params, with_progress=on_progress is not None)
        # The peer works while what waits for it is made: no answer is taken before this task waits.
        self._pipes.write_line(line, more=len(self._waiting) >= FEW)
        waiting = self._waiting[key] = Waiting(on_progress, calling.get())
        if timeout is not None:
            self._deadlines.begin(waiting, timeout)
        try:
            answer = await waiting.answer
            if waiting.reports:
                await waiting.reported()
            return result_of(answer)
        except TimeoutError:
            self._abandon(number, f"timed out after {timeout:g} s", opts)
            raise RequestTimedOut(REQUEST_TIMEOUT, f"Request {method!r} timed out") from None
        except anyio.get_cancelled_exc_class():
            # One that was answered has nothing left to cancel.
            if waiting.answer.cancelled():
                self._abandon(number, reason_or("caller cancelled"), opts)
            raise
        finally:
            del self._waiting[key]
            self._deadlines.end(waiting)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        if not self._pipes.has_room:
            await self._pipes.room()
        self._tell(method, params)

    async def _room_within(self, seconds: float | None, method: str) -> float | None:
        """Wait until a request may be sent; returns what is left of its time."""
        began = anyio.current_time()
        with anyio.move_on_after(seconds) as scope:
            await self._pipes.room()
        if scope.cancelled_caught:
            raise RequestTimedOut(REQUEST_TIMEOUT, f"Request {method!r} could not be sent in time")
        if self._closed:
            raise MCPError.from_error_data(CLOSED)
        return None if seconds is None else max(0.0, seconds - (anyio.current_time() - began))

    def _abandon(self, number: RequestId, reason: str, opts: CallOptions) -> None:
        if opts.get("cancel_on_abandon", True):
            self._tell("notifications/cancelled", {"requestId": number, "reason": reason})

    def _tell(self, method: str, params: Mapping[str, Any] | None) -> None:
        if self._closed:
            return
        try:
            self._pipes.write_line(notification(method, params))
        except ValueError as fault:
            _log.warning("%s was not sent, as no JSON can carry it: %s", in_log(method), in_log(fault))
