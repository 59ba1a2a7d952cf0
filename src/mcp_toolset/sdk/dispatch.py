"""`stream_dispatcher`: the SDK's dispatcher over a pair of streams, and its transports over stdio.

The dispatcher protocol is marked provisional by the SDK; its table of requests in flight is private.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from pathlib import Path
from typing import Any, Protocol, TextIO, cast

import mcp_types as types
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.stdio import stdio_server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import MessageMetadata
from mcp.shared.transport_context import TransportContext

from mcp_toolset.concurrency.tasks import reason_in, reason_or
from mcp_toolset.protocol.dispatch import NOT_AWAITED, Dispatcher, OnNotifyIntercept, run_notify_intercept
from mcp_toolset.protocol.json_rpc import RequestId
from mcp_toolset.sdk.errors import from_sdk, to_sdk

__all__ = ["sdk_child_dispatcher", "stdio_server", "stream_dispatcher"]


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


class _Command(Protocol):
    """What is started, as `ProcessTarget` has it."""

    @property
    def command(self) -> str: ...
    @property
    def args(self) -> tuple[str, ...]: ...
    @property
    def env(self) -> Mapping[str, str] | None: ...
    @property
    def cwd(self) -> str | Path | None: ...
    @property
    def encoding(self) -> str: ...
    @property
    def encoding_error_handler(self) -> str: ...


@asynccontextmanager
async def sdk_child_dispatcher(target: _Command, errors: TextIO) -> AsyncGenerator[Dispatcher]:
    """A server as a child process, by the SDK's transport: where pipes cannot be waited for."""
    handler: Any = target.encoding_error_handler
    parameters = StdioServerParameters(
        command=target.command,
        args=list(target.args),
        env=None if target.env is None else dict(target.env),
        cwd=target.cwd,
        encoding=target.encoding,
        encoding_error_handler=handler,
    )
    async with stdio_client(parameters, errlog=errors) as (read, write):
        yield stream_dispatcher(read, write)
