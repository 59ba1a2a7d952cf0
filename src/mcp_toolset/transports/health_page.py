"""`HealthPage`: `GET /health` says how each mounted server is doing, for monitoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic_core import to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_toolset.context.principal import identity_of
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.core.source import SourceStatus

HEALTH_PATH: Final = "/health"

_WELL: Final = ("ready", "stopped", "starting")
_HEAD: Final = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]

Statuses = Callable[[Identity | None], Mapping[str, SourceStatus]]
"""How the mounted servers are doing that exist for a caller."""


class HealthPage:
    """An ASGI application for `/health`; what is at other paths is asked of another one."""

    def __init__(self, statuses: Statuses, other: ASGIApp) -> None:
        """Tell `statuses`."""
        self._statuses = statuses
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path: str = scope["path"]
        if scope["type"] != "http" or path.removeprefix(scope.get("root_path", "")) != HEALTH_PATH:
            return await self._other(scope, receive, send)
        if scope["method"] not in ("GET", "HEAD"):
            return await _reply(send, 405, b"", [(b"allow", b"GET, HEAD")])
        found = self._statuses(identity_of(scope))
        well = all(one.state in _WELL for one in found.values())
        told = {
            "status": "ok" if well else "degraded",
            "servers": {name: _told(one) for name, one in found.items()},
        }
        await _reply(send, 200, to_json(told), _HEAD)


async def _reply(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    head = [(b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _told(status: SourceStatus) -> dict[str, Any]:
    told: dict[str, Any] = {"state": status.state, "tools": status.tools}
    if status.reason:
        told["reason"] = status.reason
    if status.retry_in is not None:
        told["retry_in"] = status.retry_in
    return told
