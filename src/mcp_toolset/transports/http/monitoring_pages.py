"""`MonitoringPages`: `GET /health`, `/ready` and those of extensions, for what watches a server from outside.

A probe has no token, and names the server as it likes. It gets the bare status. A caller who may call, under
a name that the server knows, gets the details.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from pydantic_core import to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_toolset.context.connection import identity_of
from mcp_toolset.extending.extension import HttpPage
from mcp_toolset.tools.core.call import Identity
from mcp_toolset.transports.http.headers import Head
from mcp_toolset.transports.http.replies import JSON, reply

HEALTH_PATH: Final = "/health"
READY_PATH: Final = "/ready"

_FRESH: Final = [(b"cache-control", b"no-store")]
_READ: Final = [(b"allow", b"GET, HEAD")]


class Monitored(Protocol):
    """A server that says how it is doing."""

    def health(self, identity: Identity | None) -> dict[str, Any]:
        """The state of what it uses, as far as a caller may know of it."""
        ...

    def is_ready(self) -> bool:
        """Whether requests should be sent to it."""
        ...

    def readiness(self, identity: Identity | None) -> dict[str, Any]:
        """Whether requests should be sent to it, and why not, as far as a caller may know."""
        ...


class MonitoringPages:
    """An ASGI application for the pages; what is at other paths is asked of another one.

    Attributes:
        paths: The paths of the pages.
    """

    def __init__(self, monitor: Monitored, pages: Mapping[str, HttpPage], other: ASGIApp) -> None:
        """Tell what `monitor` says, and what extensions have by path."""
        self._monitor = monitor
        self._pages = {path: page for path, page in pages.items() if path not in (HEALTH_PATH, READY_PATH)}
        self.paths = frozenset((HEALTH_PATH, READY_PATH, *self._pages))
        self._open = self.paths - {path for path, page in self._pages.items() if not page.public}
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_in(scope)
        if scope["type"] != "http" or path not in self.paths:
            return await self._other(scope, receive, send)
        if (page := self._pages.get(path)) is not None:
            return await _show(page, scope, send)
        caller = identity_of(scope)
        told = self._monitor.health(caller) if path == HEALTH_PATH else self._monitor.readiness(caller)
        await _tell(scope, send, told)

    async def tell_anyone(self, scope: Scope, send: Send) -> None:
        """Answer with the status alone, or with a page that is public."""
        path = path_in(scope)
        if (page := self._pages.get(path)) is not None:
            return await _show(page, scope, send)
        ready = path == HEALTH_PATH or self._monitor.is_ready()
        well = "ok" if path == HEALTH_PATH else "ready"
        await _tell(scope, send, {"status": well if ready else "unready"})

    def is_probe(self, path: str, head: Head) -> bool:
        """Whether a request gets what everyone may know: it has no token, and no web page has sent it."""
        return path in self._open and b"authorization" not in head.fields and b"origin" not in head.fields


def path_in(scope: Scope) -> str:
    """The path of a request within the application, wherever that is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def _tell(scope: Scope, send: Send, told: dict[str, Any]) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        return await reply(send, 405, headers=_READ)
    await reply(send, 503 if told["status"] == "unready" else 200, to_json(told), JSON, _FRESH)


async def _show(page: HttpPage, scope: Scope, send: Send) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        return await reply(send, 405, headers=_READ)
    accepted = Head(scope["headers"]).fields.get(b"accept", b"").decode("latin-1")
    body, kind = page.answer(identity_of(scope), accepted)
    await reply(send, 200, body, kind.encode(), _FRESH)
