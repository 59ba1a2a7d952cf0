"""`ObservedDispatcher`: a dispatcher whose raw messages are seen; and the SDK's own over a stream pair.

The dispatcher protocol is marked provisional by the SDK; its table of requests in flight is private.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import MessageMetadata
from mcp.shared.transport_context import TransportContext

from mcp_toolset.concurrency.cancel_reason import given_up, reason_in, reason_or
from mcp_toolset.protocol.dispatch import (
    NOT_AWAITED,
    CallOptions,
    DispatchContext,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    Started,
    run_notify_intercept,
)
from mcp_toolset.protocol.json_rpc import RequestId
from mcp_toolset.sdk.errors import from_sdk, to_sdk
from mcp_toolset.tools.core.asking import ELICITATION, ROOTS, SAMPLING

__all__ = [
    "ObservedDispatcher",
    "stream_dispatcher",
]


NotificationSink = Callable[[str, Mapping[str, Any] | None], Awaitable[bool]]
"""Sees a raw notification first; `True` says that it is dealt with."""

RequestAnswerer = Callable[[str, Mapping[str, Any] | None], Awaitable[dict[str, Any]]]
"""Answers a raw request of the server."""

_ANSWERED_HERE: Final = frozenset({ELICITATION, ROOTS, SAMPLING})


class ObservedDispatcher:
    """A dispatcher around another: shows raw messages of the server and the end of the connection.

    What the client declares in the handshake is given here, because the SDK's session derives it from
    the callbacks it has, all or nothing.
    """

    def __init__(
        self,
        inner: Dispatcher,
        take: OnNotifyIntercept | None,
        on_notification: NotificationSink,
        on_request: RequestAnswerer,
        declares: Mapping[str, Any],
    ) -> None:
        """Wrap `inner`; `take` sees notifications first, in order, and in the context of their sender."""
        self._inner = inner
        self._take = take
        self._on_notification = on_notification
        self._on_request = on_request
        self._declares = dict(declares)
        self.keeps_time: bool = getattr(inner, "keeps_time", False)
        self.closed = anyio.Event()

    @property
    def reads(self) -> bool:
        """Whether messages are read at the moment; not while a client has no room for an answer."""
        return not getattr(self._inner, "paced", False)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its raw result; `MCPError` if it fails."""
        if method == "initialize" and params is not None:
            params = {**params, "capabilities": self._declares}
        return await self._inner.send_raw_request(method, params, opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification."""
        await self._inner.notify(method, params, opts)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: Started = NOT_AWAITED,
    ) -> None:
        """Run the inner dispatcher to its end, then say that it has ended."""

        async def note(context: DispatchContext, method: str, params: Mapping[str, Any] | None) -> None:
            if not await self._on_notification(method, params):
                await on_notify(context, method, params)

        async def answer(
            context: DispatchContext, method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            if method in _ANSWERED_HERE:
                given_up.set(lambda: getattr(context, "reason", None))
                return await self._on_request(method, params)
            return await on_request(context, method, params)

        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            if run_notify_intercept(on_notify_intercept, method, params):
                return True
            return self._take is not None and self._take(method, params)

        try:
            await self._inner.run(answer, note, intercept, task_status=task_status)
        finally:
            self.closed.set()


def stream_dispatcher(read: Any, write: Any, *, inline: frozenset[str] = frozenset()) -> Dispatcher:
    """The SDK's dispatcher over a transport's stream pair.

    Args:
        read: Where messages come from.
        write: Where they go.
        inline: Methods of which a request is finished before the next message is taken.
    """
    return cast("Any", _ContextualDispatcher(read, write, inline_methods=inline))


class _ContextualDispatcher(JSONRPCDispatcher[TransportContext]):
    """Shows notifications, in the order in which they come, in the context of their sender.

    A request that is given up is cancelled for the reason that its own client has given; why a peer gives one
    up is `reason` of its context.
    """

    def __init__(self, read: Any, write: Any, *, inline_methods: frozenset[str]) -> None:
        super().__init__(read, write, inline_methods=inline_methods)
        self._read = read

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: Any = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        sent = super().send_raw_request(method, params, opts, _related_request_id=_related_request_id)
        # A request within another one is sent by the code of the SDK, which knows its own errors.
        return await (sent if _related_request_id is not None else from_sdk(sent))

    async def _cancel_outbound(
        self, request_id: types.RequestId, reason: str, related_request_id: types.RequestId | None
    ) -> None:
        await super()._cancel_outbound(request_id, reason_or(reason), related_request_id)

    def _dispatch_notification(
        self,
        msg: types.JSONRPCNotification,
        metadata: MessageMetadata,
        on_notify: Any,
        sender_ctx: Context | None,
    ) -> None:
        """Note on the request that a peer gives up why it does."""
        if msg.method == "notifications/cancelled":
            number: object = (msg.params or {}).get("requestId")
            known = self._in_flight.get(coerce_request_id(number)) if isinstance(number, int | str) else None
            if known is not None:
                known.dctx.reason = reason_in(msg.params)  # pyright: ignore[reportAttributeAccessIssue]
        super()._dispatch_notification(msg, metadata, on_notify, sender_ctx)

    async def run(
        self,
        on_request: Any,
        on_notify: Any,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: Any = NOT_AWAITED,
    ) -> None:
        def intercept(method: str, params: Mapping[str, Any] | None) -> bool:
            sender: Context | None = getattr(self._read, "last_context", None)
            if sender is None:
                return run_notify_intercept(on_notify_intercept, method, params)
            return sender.run(run_notify_intercept, on_notify_intercept, method, params)

        async def answer(context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
            return await to_sdk(on_request(context, method, params))

        await super().run(answer, on_notify, intercept, task_status=task_status)
