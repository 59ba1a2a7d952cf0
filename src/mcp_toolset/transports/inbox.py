"""`Inbox`: notifications of a peer, in order, and its requests in flight.

Dispatchers derive from it. Notifications are shown to an intercept in the order and in the context in which
they are read; what it leaves gets a task. Whatever could pile up has a bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from mcp_toolset.concurrency.task_set import TaskScope, TaskSet
from mcp_toolset.errors import ToolsetError
from mcp_toolset.protocol.dispatch import OnNotify, OnNotifyIntercept, OnRequest, run_notify_intercept
from mcp_toolset.transports.requests import Incoming, InFlight, Sent, Waiting

MAX_REQUESTS: Final = 4096
"""Requests of the peer that may be in flight at once; more are refused."""

MAX_NOTIFICATIONS: Final = 1024
"""Notifications of the peer that may be handled at once; the oldest gives way."""

MAX_GARBAGE: Final = 1000
"""Lines in a row that may be no messages, or answer nothing, before a connection is given up."""

_log = logging.getLogger("mcp_toolset.wire")


class Inbox:
    """The requests and notifications of one peer; `Sender` has the requests that the peer was sent."""

    _waiting: Sent[Any]

    def __init__(self, too_much: Callable[[str], ToolsetError] | None = None) -> None:
        """Take nothing before the handlers are known; `too_much` makes the error for a peer that floods."""
        self._requests: InFlight[Incoming] = InFlight()
        self._notes: dict[TaskScope, None] = {}
        self._ended = asyncio.Event()
        self._fault: Exception | None = None
        self._too_much = too_much
        self._in_a_row = 0
        self.skipped = 0
        """Lines that were no messages."""
        self.strays = 0
        """Answers to no request in flight, and requests whose id is in use."""
        self._handling = TaskSet(self._ended.set)
        self._make: Callable[..., Incoming] = Incoming
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None

    def _skip(self) -> None:
        self.skipped += 1
        self._count()

    def _stray(self) -> None:
        self.strays += 1
        self._count()

    def _count(self) -> None:
        self._in_a_row += 1
        if self._too_much is not None and self._in_a_row > MAX_GARBAGE and self._fault is None:
            why = f"more than {MAX_GARBAGE} lines in a row on its stdout were no messages"
            self._fault = self._too_much(why)
            self._ended.set()

    def _take_note(self, method: str, params: dict[str, Any] | None) -> None:
        if method == "notifications/cancelled":
            self._requests.cancel(params)
        elif method == "notifications/progress" and self._take_progress(params or {}):
            return
        if run_notify_intercept(self._intercept, method, params):
            return
        assert self._on_notify is not None
        self._start_note(None, self._on_notify, self._make(self), method, params)

    def _take_progress(self, params: dict[str, Any]) -> bool:
        """Hand progress to the request that it is of; `False` if no such request wants it."""
        waiting, progress = self._waiting.of(params.get("progressToken")), params.get("progress")
        if type(progress) not in (int, float):
            return False
        if waiting is None or waiting.on_progress is None:
            return False
        total, message = params.get("total"), params.get("message")
        self._start_note(
            waiting,
            waiting.on_progress,
            float(cast("float", progress)),
            float(cast("float", total)) if type(total) in (int, float) else None,
            message if isinstance(message, str) else None,
        )
        return True

    def _start_note(self, about: Waiting | None, handler: Callable[..., Awaitable[None]], *what: Any) -> None:
        if about is not None:
            about.begin_report()
        scope = TaskScope()
        self._notes[scope] = None
        if len(self._notes) > MAX_NOTIFICATIONS:
            oldest = next(iter(self._notes))
            del self._notes[oldest]
            oldest.cancel()
        self._handling.start(scope, self._noted(scope, about, handler, what))

    async def _noted(
        self,
        scope: TaskScope,
        about: Waiting | None,
        handler: Callable[..., Awaitable[None]],
        what: tuple[Any, ...],
    ) -> None:
        with scope.begun():
            try:
                await handler(*what)
            # Handlers are whatever the session and its user registered; one that fails must not end
            # the connection for all.
            except Exception:
                _log.exception("a notification handler raised")
            finally:
                self._notes.pop(scope, None)
                if about is not None:
                    about.end_report()
