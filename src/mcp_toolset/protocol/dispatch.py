"""`Dispatcher` and `DispatchContext`: requests sent over a connection, and requests of its peer handed on.

Every transport provides a dispatcher; the server and the upstream sessions stand on it. The protocols have
the shape of the SDK's, so that a dispatcher of the SDK can take the same place.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypedDict

from mcp_toolset._records import dataclass
from mcp_toolset.protocol.json_rpc import RequestId

if TYPE_CHECKING:
    from mcp_toolset.tools.definition import ToolDefinition

_log = logging.getLogger("mcp_toolset.wire")

Params: TypeAlias = Mapping[str, Any] | None
"""The member `params` of a message; `None` where it has none."""


class ProgressFnT(Protocol):
    """Takes the progress of a request that was sent."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class CallOptions(TypedDict, total=False):
    """Options of one request; a dispatcher ignores those that it does not know."""

    request_id: RequestId
    """The id to send it under, in place of the next number."""

    timeout: float
    """Seconds to wait for the answer; then the peer is told to cancel."""

    cancel_on_abandon: bool
    """True if the peer is told when the sender stops waiting, as by default."""

    is_watched: bool
    """True if the request has a span, or its time is taken, already."""

    on_progress: ProgressFnT
    """Takes the progress that is reported on it."""

    seen_by_all: bool
    """True if every replica of the server sends the same by itself."""

    headers: dict[str, str]
    """The HTTP headers to send with it, where the transport has some."""

    tool: ToolDefinition
    """The definition by which it was judged, of a call."""


class Outbound(Protocol):
    """Sends requests and notifications to the peer."""

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its result; `MCPError` if it fails."""
        ...

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportContext:
    """The transport's facts of a message."""

    kind: str
    can_send_request: bool  # whether requests can be sent to the peer while its message is handled
    headers: Mapping[str, str] | None = None


class DispatchContext(Outbound, Protocol):
    """The way back to the peer while one of its messages is handled."""

    @property
    def can_send_request(self) -> bool: ...

    @property
    def reason(self) -> str | None:
        """Why the peer has cancelled its request, if it has said so."""

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None: ...


OnRequest: TypeAlias = Callable[[DispatchContext, str, Params], Awaitable[dict[str, Any]]]
"""Answers a request: its context, method and parameters; an exception becomes an error."""

OnNotify: TypeAlias = Callable[[DispatchContext, str, Params], Awaitable[None]]
"""Takes a notification: its context, method and parameters."""

OnNotifyIntercept: TypeAlias = Callable[[str, Params], bool]
"""Sees a notification first, in the order of arrival; `True` says that it is dealt with."""


class Started(Protocol):
    """Told when a dispatcher has begun to read; a task status of anyio is one."""

    def started(self, value: None = None) -> None: ...


class _Unheard:
    def started(self, value: None = None) -> None:
        return None


NOT_AWAITED: Final[Started] = _Unheard()
"""For a dispatcher whose start nothing waits for."""


class Dispatcher(Outbound, Protocol):
    """A connection on which both sides send requests, and answers find the requests that they belong to."""

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: Started = NOT_AWAITED,
    ) -> None:
        """Hand on what the peer sends, until the connection ends."""


def run_notify_intercept(intercept: OnNotifyIntercept | None, method: str, params: Params) -> bool:
    """Show a notification to an intercept; one that raises has not dealt with it."""
    if intercept is None:
        return False
    try:
        return intercept(method, params)
    # An intercept belongs to a session; one that fails must not end the reading for all.
    except Exception:
        _log.exception("the intercept of a notification raised")
        return False
