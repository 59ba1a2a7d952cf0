"""`WireContext`: the caller of a served call, so that reports and questions reach that very client (P5)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from pydantic import ConfigDict, TypeAdapter, ValidationError

from mcp_toolset.bridge.sdk import MCPError, connection_of
from mcp_toolset.bridge.wire import is_modern
from mcp_toolset.errors import CallError
from mcp_toolset.tools.call import ToolContext

_SESSION_KEY: Final = "mcp_toolset.session"
_NOTIFICATION: Final[TypeAdapter[types.ServerNotification]] = TypeAdapter(types.ServerNotification)


class _RawResult(types.Result):
    model_config = ConfigDict(extra="allow")


class WireContext(ToolContext):
    """One request of one client, as a tool and an upstream see it."""

    __slots__ = ("_meta", "_request", "_wants_progress", "principal", "protocol_version", "session")

    def __init__(self, request: ServerRequestContext[Any, Any]) -> None:
        """Read the caller off a request."""
        self._request = request
        self.protocol_version = request.protocol_version
        self.session = session_key(request)
        self.principal = _principal(request)
        raw = request.params.get("_meta") if request.params else None
        self._meta: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
        in_process = is_modern(request.protocol_version) and request.request is None
        self._wants_progress = "progressToken" in self._meta or in_process

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        return self._meta

    @property
    def params(self) -> Mapping[str, Any]:
        """The request's parameters."""
        return self._request.params or {}

    @property
    def wants_progress(self) -> bool:
        """Whether the client sent a progress token (in process, modern, it needs none)."""
        return self._wants_progress

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress on the stream of this request."""
        await self._request.session.report_progress(progress, total, message)

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log message on the stream of this request."""
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self.notify("notifications/message", params)

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass a notification on; a modern client gets log messages only at the level it asked for."""
        if method == "notifications/message" and not self._wants_log((params or {}).get("level")):
            return
        try:
            note = _NOTIFICATION.validate_python({"method": method, "params": params}, by_name=False)
        except ValidationError:
            return
        await self._request.session.send_notification(note, related_request_id=self._request.request_id)

    async def request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Ask this client and wait; legacy only, as the modern protocol has no such requests."""
        asked = types.Request[dict[str, Any], str](method=method, params=dict(params or {}))
        metadata = ServerMessageMetadata(related_request_id=self._request.request_id)
        try:
            answer = await self._request.session.send_request(asked, _RawResult, metadata=metadata)  # pyright: ignore[reportArgumentType]
        except MCPError as fault:
            raise CallError(f"the client cannot be asked for {method}: {fault.message}") from None
        return answer.model_dump(by_alias=True, exclude_none=True)

    def _wants_log(self, level: object) -> bool:
        if not is_modern(self.protocol_version):
            return True
        wanted = self._meta.get(types.LOG_LEVEL_META_KEY)
        return (
            wanted in _SEVERITY and level in _SEVERITY and _SEVERITY.index(level) >= _SEVERITY.index(wanted)
        )


_SEVERITY: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def session_key(request: ServerRequestContext[Any, Any]) -> str | None:
    """A name for the client's session, stable for its life; `None` in the modern era, which has none."""
    if is_modern(request.protocol_version):
        return None
    state = connection_of(request.session).state
    return state.setdefault(_SESSION_KEY, uuid.uuid4().hex)


def _principal(request: ServerRequestContext[Any, Any]) -> str | None:
    scope: Any = getattr(request.request, "scope", None)
    user: Any = cast("dict[str, Any]", scope).get("user") if isinstance(scope, dict) else None
    if user is None or not getattr(user, "is_authenticated", False):
        return None
    return str(user.display_name)
