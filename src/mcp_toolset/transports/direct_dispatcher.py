"""`DirectCalls`: requests to a server of this process, made as plain calls (modern era, no framing).

The SDK has such a dispatcher for its own tests; it enters a deadline and gives up its turn for each
request, though the caller here already has a deadline of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import anyio

from mcp_toolset.protocol.dispatch import (
    NOT_AWAITED,
    CallOptions,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    Started,
    TransportContext,
    run_notify_intercept,
)
from mcp_toolset.protocol.errors import CLOSED, error_for_peer
from mcp_toolset.protocol.json_rpc import (
    REQUEST_TIMEOUT,
    MCPError,
    NoBackChannelError,
    RequestId,
    RequestTimedOut,
)
from mcp_toolset.sdk.errors import theirs
from mcp_toolset.sdk.models import Server
from mcp_toolset.transports.requests import OneWayContext
from mcp_toolset.transports.serving import modern_answers

_TRANSPORT: Final = TransportContext(kind="direct", can_send_request=False)


@asynccontextmanager
async def in_process_dispatcher(server: Server[Any]) -> AsyncGenerator[DirectCalls]:
    """A dispatcher that calls a server of this process directly, without framing (modern era)."""
    async with server.lifespan(server) as state:
        calls = DirectCalls(server, state)
        try:
            yield calls
        finally:
            calls.close()


class DirectCalls:
    """A dispatcher whose peer is a server of this process.

    Attributes:
        keeps_time: A deadline given with a request is kept here.
    """

    keeps_time: Final = True

    def __init__(self, server: Server[Any], state: Any) -> None:
        """Call `server`, whose lifespan gave `state`."""
        self._serve: OnRequest = modern_answers(server, state)
        self._ids = count(1)
        self._closed = anyio.Event()
        self._on_notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Run a request in the caller's own task.

        Raises:
            MCPError: the server answered with an error or not in time, or the dispatcher is closed.
        """
        if self._closed.is_set():
            raise MCPError.from_error_data(CLOSED)
        opts = opts or {}
        seconds = opts.get("timeout")
        call = _DirectCall(self, opts, next(self._ids))
        if seconds is None:
            return await self._answered(call, method, params)
        with anyio.CancelScope(deadline=anyio.current_time() + seconds):
            return await self._answered(call, method, params)
        raise RequestTimedOut(REQUEST_TIMEOUT, f"Request {method!r} timed out")

    async def _answered(
        self, call: _DirectCall, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        try:
            return await self._serve(call, method, params)
        except MCPError:
            raise
        # What a handler raises must not reach its caller as it is, in process as little as on a wire.
        except Exception as raised:
            raise MCPError.from_error_data(error_for_peer(raised)) from None

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Drop a notification: the modern protocol has none from client to server."""

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: Started = NOT_AWAITED,
    ) -> None:
        """Take notifications until closed."""
        self._on_notify, self._intercept = on_notify, on_notify_intercept
        task_status.started()
        try:
            await self._closed.wait()
        finally:
            self._closed.set()

    def close(self) -> None:
        """Refuse requests from now on."""
        self._closed.set()

    async def deliver(self, call: _DirectCall, method: str, params: Mapping[str, Any] | None) -> None:
        """Hand a notification of the server to the client."""
        if self._on_notify is None or self._closed.is_set():
            return
        if not run_notify_intercept(self._intercept, method, params):
            await self._on_notify(call, method, params)


class _DirectCall(OneWayContext):
    """One request, as the server sees it."""

    __slots__ = ("_calls", "_opts", "request_id")

    transport = _TRANSPORT

    def __init__(self, calls: DirectCalls, opts: CallOptions, number: int) -> None:
        self._calls = calls
        self._opts = opts
        self._cancel_requested = None
        self.request_id: RequestId = opts.get("request_id", number)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Refuse, with the exception that a server of the SDK knows."""
        raise theirs(NoBackChannelError(method))

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Pass a notification to the client."""
        await self._calls.deliver(self, method, params)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to whoever asked for it with the request."""
        report = self._opts.get("on_progress")
        if report is not None:
            await report(progress, total, message)
