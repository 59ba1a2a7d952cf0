"""`Inbox`: what a server sends besides answers, handed to the handlers of a session.

Messages are handed on in the order and in the context in which they are read: on the stream of a call, in the
context of that call. Requests and notifications get tasks; whatever could pile up has a bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

from mcp_toolset.concurrency.cancel_reason import reason_in
from mcp_toolset.concurrency.task_set import Handling, TaskScope
from mcp_toolset.protocol.codec import progress_token, request_key
from mcp_toolset.protocol.dispatch import (
    CallOptions,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    Params,
    run_notify_intercept,
)
from mcp_toolset.protocol.encoded_answers import surely_parts
from mcp_toolset.protocol.errors import error_for_peer
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, ErrorData, RequestId
from mcp_toolset.tools.core.cancelling import CancelledError, from_outside
from mcp_toolset.transports.requests import Incoming, Waiting

MAX_REQUESTS: Final = 4096
"""Requests of the server that may be in flight at once; more are refused."""

MAX_NOTIFICATIONS: Final = 1024
"""Notifications of the server that may be handled at once; the oldest gives way."""

_log = logging.getLogger("mcp_toolset.upstream")


class Inbox:
    """Takes requests and notifications of one server; what sends over the connection derives from it."""

    def __init__(self) -> None:
        """Take nothing before the handlers are known."""
        self._requests: dict[RequestId, Incoming] = {}
        self._notes: dict[TaskScope, None] = {}
        self._ended = asyncio.Event()
        self._handling = Handling(self._ended.set)
        self._opened = self._closed = False
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its result."""
        raise NotImplementedError

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        """Send a notification."""
        raise NotImplementedError

    async def _tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a message that has no answer; what happens to it on its way raises nothing."""
        raise NotImplementedError

    def _waiting_for(self, number: RequestId) -> Waiting | None:
        """The request in flight that has this id."""
        raise NotImplementedError

    def _take(self, message: dict[str, Any]) -> None:
        """Take a request or a notification of the server."""
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        if type(method) is not str or not (params is None or type(params) is dict):
            return
        if "id" not in message:
            self._take_note(method, cast("dict[str, Any] | None", params))
        elif type(number) is int or type(number) is str:
            self._take_request(number, method, cast("dict[str, Any] | None", params))

    def _take_request(self, number: RequestId, method: str, params: dict[str, Any] | None) -> None:
        key = request_key(number)
        if key in self._requests or self._closed:
            return
        if len(self._requests) >= MAX_REQUESTS:
            fault = ErrorData(INTERNAL_ERROR, f"more than {MAX_REQUESTS} requests at once")
            if len(self._notes) < MAX_NOTIFICATIONS:
                self._start_note(None, self._tell, b"".join(surely_parts(number, None, fault)), {})
            return
        incoming = self._requests[key] = Incoming(self, number, progress_token(params))
        self._handling.start(incoming.scope, self._handle(incoming, key, method, params))

    async def _handle(
        self, incoming: Incoming, key: RequestId, method: str, params: dict[str, Any] | None
    ) -> None:
        result, fault = None, None
        assert self._on_request is not None
        try:
            with incoming.scope.begun():
                try:
                    result = await self._on_request(incoming, method, params)
                # A handler may raise anything; the server gets an answer whatever it is.
                except (Exception, CancelledError) as raised:
                    if from_outside(raised):
                        raise
                    fault = error_for_peer(raised)
                if not incoming.cancelled:
                    await self._tell(b"".join(surely_parts(incoming.request_id, result, fault)), {})
        finally:
            incoming.can_send_request = False
            del self._requests[key]

    def _take_note(self, method: str, params: dict[str, Any] | None) -> None:
        if method == "notifications/cancelled":
            number = (params or {}).get("requestId")
            if type(number) is int or type(number) is str:
                incoming = self._requests.get(request_key(number))
                if incoming is not None:
                    incoming.cancel(reason_in(params))
        elif method == "notifications/progress" and self._take_progress(params or {}):
            return
        if not run_notify_intercept(self._intercept, method, params) and self._on_notify is not None:
            self._start_note(None, self._on_notify, Incoming(self), method, params)

    def _take_progress(self, params: dict[str, Any]) -> bool:
        """Hand progress to the request that it is of; `False` if no such request wants it."""
        token, progress = params.get("progressToken"), params.get("progress")
        if type(token) not in (int, str) or type(progress) not in (int, float):
            return False
        waiting = self._waiting_for(cast("RequestId", token))
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
