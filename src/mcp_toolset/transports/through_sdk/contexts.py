"""`SdkWay`: a request that the SDK's dispatcher has taken; `answering` and `noting` hand such requests on."""

from __future__ import annotations

from typing import Any, cast

import anyio

from mcp_toolset.protocol.dispatch import (
    CallOptions,
    DispatchContext,
    OnNotify,
    OnRequest,
    Params,
    TransportContext,
)
from mcp_toolset.protocol.errors import error_for_peer
from mcp_toolset.protocol.json_rpc import MCPError, NoBackChannelError, RequestId
from mcp_toolset.sdk.errors import from_sdk, theirs
from mcp_toolset.sdk.servers import ServerMessageMetadata
from mcp_toolset.transports.requests import OneWayContext


class SdkWay(OneWayContext):
    """A request that the SDK has taken, and the way back to its client through the SDK."""

    __slots__ = ("_inner", "can_send_request", "http", "request_id")

    transport = TransportContext(kind="sdk", can_send_request=True)

    def __init__(
        self, inner: DispatchContext, number: RequestId | None, http: Any, *, asks: bool = True
    ) -> None:
        """Wrap the SDK's context of a request; `asks` says whether the client may be sent requests."""
        self._inner = inner
        self.can_send_request = asks
        self.request_id = number
        self.http = http

    @classmethod
    def of(cls, inner: DispatchContext) -> SdkWay:
        metadata = inner.message_metadata
        http = metadata.request_context if isinstance(metadata, ServerMessageMetadata) else None
        return cls(inner, inner.request_id, http, asks=inner.can_send_request)

    @property
    def reason(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Why the client has cancelled the request, if it has said so."""
        return getattr(self._inner, "reason", None)

    def refuse_requests(self) -> None:
        """Send the client no requests, as it speaks a revision that has none."""
        self.can_send_request = False

    @property
    def cancel_requested(self) -> anyio.Event:
        """Set when the client has cancelled the request by a message."""
        return cast("anyio.Event", self._inner.cancel_requested)

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the client, while its own request is being handled."""
        if not (self.can_send_request and self._inner.can_send_request):
            raise NoBackChannelError(method)
        return await from_sdk(self._inner.send_raw_request(method, params, opts))

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        """Send a notification that belongs to the request."""
        await self._inner.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._inner.progress(progress, total, message)


def answering(on_request: OnRequest) -> OnRequest:
    """Answer what the SDK's dispatcher has taken, and tell it of a failure as it knows failures."""

    async def answer(context: DispatchContext, method: str, params: Params) -> dict[str, Any]:
        try:
            return await on_request(cast("Any", SdkWay.of(context)), method, params)
        # A handler may raise anything; the SDK knows its own errors alone.
        except Exception as raised:
            raise theirs(MCPError.from_error_data(error_for_peer(raised))) from raised

    return answer


def noting(on_notify: OnNotify) -> OnNotify:
    """Take a notification that the SDK's dispatcher has taken."""

    async def note(context: DispatchContext, method: str, params: Params) -> None:
        await on_notify(cast("Any", SdkWay.of(context)), method, params)

    return note
