"""`Questions`: open requests to the client of one legacy session, and the tasks that wait for the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio

from mcp_toolset.calls.pipeline.decision import watched
from mcp_toolset.concurrency.task_set import reason_or
from mcp_toolset.context.spans import SentRequest
from mcp_toolset.protocol.codec import notification, request_line, result_of
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.errors import CLOSED
from mcp_toolset.protocol.json_rpc import REQUEST_TIMEOUT, MCPError, RequestId, RequestTimedOut
from mcp_toolset.transports.requests import Sent, Waiting

_LAST_WORD: Final = 1.0
"""Seconds that a client has to be told that a question is taken back."""

Say = Callable[[bytes], Awaitable[None]]
"""Sends a message on the stream that a question belongs to."""


class Questions:
    """The questions of one session; the answer to each comes in a POST of its own."""

    def __init__(self, prefix: str = "") -> None:
        """Ask nothing yet; the id of each question begins with `prefix`."""
        self._prefix = prefix
        self._waiting: Sent[Waiting] = Sent()
        self._ended = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def ask(
        self, say: Say, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request to the client by `say`, and wait for its answer."""
        if not watched():
            return await self._asked(say, method, params, opts or {})
        with SentRequest(method, params) as sent:
            return sent.answered(await self._asked(say, method, sent.params, opts or {}))

    async def _asked(
        self, say: Say, method: str, params: Mapping[str, Any] | None, opts: CallOptions
    ) -> dict[str, Any]:
        if self._ended:
            raise MCPError.from_error_data(CLOSED)
        timeout, timer = opts.get("timeout"), None
        _, number = self._waiting.numbered(None)
        if self._prefix:
            number = f"{self._prefix}{number}"
        line = request_line(number, method, params, with_progress=False)
        waiting = self._waiting[number] = Waiting(None)
        try:
            await say(line)
            if timeout is not None:
                timer = asyncio.get_running_loop().call_later(timeout, waiting.expire)
            return result_of(await waiting.answer)
        except TimeoutError:
            await _take_back(say, number, "timed out")
            raise RequestTimedOut(REQUEST_TIMEOUT, f"Request {method!r} timed out") from None
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_LAST_WORD, shield=True):
                await _take_back(say, number, reason_or("caller cancelled"))
            raise
        finally:
            del self._waiting[number]
            if timer is not None:
                timer.cancel()

    def answered(self, message: dict[str, Any]) -> None:
        """Take an answer of the client; one that no call waits for changes nothing."""
        waiting = self._waiting.of(message.get("id"))
        if waiting is not None:
            waiting.settle(message)

    def end(self) -> None:
        """Tell those who wait that no answer will come."""
        self._ended = True
        for waiting in self._waiting.values():
            waiting.settle(None)


async def _take_back(say: Say, number: RequestId, reason: str) -> None:
    await say(notification("notifications/cancelled", {"requestId": number, "reason": reason}))
