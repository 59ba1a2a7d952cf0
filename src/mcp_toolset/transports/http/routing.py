"""`Doors`: the router of the application: the checks that every request passes, and a short way to `/mcp`.

A page of another origin can make a browser send requests to a server on loopback, by a name of its own that
leads there (DNS rebinding). The browser says which name, and which page, it was: so these are checked first.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, Self
from urllib.parse import quote

import anyio
from starlette.routing import BaseRoute, Match, Mount, Route, Router
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.signals import patience
from mcp_toolset.errors import CallerError
from mcp_toolset.extending.extension import HttpPage
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.transports.http.arrival import Arrivals, ArrivingRequest
from mcp_toolset.transports.http.authentication import METADATA_PATH, Guard
from mcp_toolset.transports.http.endpoint import HttpEndpoint
from mcp_toolset.transports.http.headers import Head
from mcp_toolset.transports.http.limits import HttpLimits, peer_of
from mcp_toolset.transports.http.monitoring_pages import Monitored, MonitoringPages, path_in
from mcp_toolset.transports.http.replies import reply
from mcp_toolset.transports.http.send_buffers import BoundedSend, Unsent
from mcp_toolset.transports.http.sse import MESSAGES_PATH, SSE_PATH, EventDoor
from mcp_toolset.transports.login_pages import LoginPages

MCP_PATH: Final = "/mcp"
DRAIN: Final = 2
"""Seconds that open streams are given to end when the server stops."""

_HURRIED: Final = 0.3
"""The same after a Ctrl-C."""

_LOOK: Final = 0.5
"""Seconds between looks at whether the server is to exit, while requests are in flight."""


_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_KNOWN: Final = 16
"""Values of one header whose check is remembered."""

_SHOWN: Final = 100
"""Bytes of a refused header that its refusal repeats."""

_UNKNOWN: Final = b"the server cannot tell who has sent this request; its log says what to mend"

_log = logging.getLogger("mcp_toolset.http")


@dataclass(frozen=True, slots=True)
class AllowedNames:
    """What `Host` and `Origin` may say; a name that ends in `:*` stands for any port.

    Attributes:
        hosts: Values of `Host`.
        origins: Values of `Origin`.
    """

    hosts: tuple[str, ...]
    origins: tuple[str, ...]

    @classmethod
    def with_loopback(cls, hosts: Sequence[str] = (), origins: Sequence[str] = ()) -> Self:
        """The names of loopback, with any port and without, pages from there, and what is given besides."""
        local = [name for host in _LOOPBACK for name in (host, f"{host}:*")]
        return cls((*local, *hosts), (*(f"http://{name}" for name in local), *origins))


class NameCheck:
    """Says whether a request may be taken, by its `Host` and `Origin`."""

    def __init__(self, names: AllowedNames) -> None:
        # Nearly all requests have one and the same host, and origin.
        self._is_host = lru_cache(_KNOWN)(partial(_allowed, re.compile(names_pattern(names.hosts))))
        self._is_origin = lru_cache(_KNOWN)(partial(_allowed, re.compile(names_pattern(names.origins))))

    def refusal(self, fields: Mapping[bytes, bytes]) -> tuple[int, str] | None:
        """The status and the text that a request is refused with; `None` if it is accepted."""
        if not self._is_host(fields.get(b"host", b"")):
            return 421, _refused("Host", fields.get(b"host", b""), "--allow-host", "allowed_hosts")
        origin = fields.get(b"origin")
        if origin and not self._is_origin(origin):
            return 403, _refused("Origin", origin, "--allow-origin", "allowed_origins")
        return None


def _refused(header: str, raw: bytes, option: str, argument: str) -> str:
    shown = raw[:_SHOWN].decode("ascii", "backslashreplace")
    allowing = f'{option} or {argument}=["NAME"]'
    return f"Invalid {header} header: {shown!r} is not allowed; allow it with {allowing}"


def _allowed(pattern: re.Pattern[str], raw: bytes) -> bool:
    return pattern.fullmatch(raw.decode("latin-1")) is not None


def names_pattern(names: Sequence[str]) -> str:
    """A regular expression of values of `Host` or `Origin`; one that ends in `:*` stands for any port."""
    plain = [re.escape(name) for name in names]
    any_port = [re.escape(name[:-1]) + "[0-9]+" for name in names if name.endswith(":*")]
    return "|".join((*plain, *any_port)) or "(?!)"


class Draining:
    """Ends the requests in flight in order when serving ends, instead of having them cut off.

    `run_app` calls `stop`. A uvicorn that a program runs itself would wait for open streams for ever: nothing
    tells an application that its server is to exit before the last response has ended. So that is looked for.

    Attributes:
        drain: Seconds that requests in flight are given.
    """

    def __init__(self, endpoint: HttpEndpoint, events: EventDoor) -> None:
        """End what these two have begun, and what `began` is told of."""
        self._endpoint = endpoint
        self._events = events
        self.drain: float = DRAIN
        self._in_flight: set[anyio.CancelScope] = set()
        self._looks = False

    def began(self, request: anyio.CancelScope) -> None:
        self._in_flight.add(request)
        if not self._looks:
            self._look_later()

    def ended(self, request: anyio.CancelScope) -> None:
        self._in_flight.discard(request)

    def stop(self) -> None:
        """End standing streams now; what else is in flight is given `drain` seconds, less after a Ctrl-C."""
        self._endpoint.end_streams()
        self._events.end_streams()
        # A callback of the loop may call this, where anyio does not know which loop it is on.
        until = asyncio.get_running_loop().time() + patience(self.drain, _HURRIED)
        for request in self._in_flight:
            request.deadline = until

    def _look_later(self) -> None:
        self._looks = True
        asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        self._looks = False
        if not self._in_flight:
            return
        if _is_exiting():
            self.stop()
        else:
            self._look_later()


def _is_exiting() -> bool:
    """Whether the uvicorn that runs this process was told to exit: its method handles the signal."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


class Doors(Router):
    """Streamable HTTP at `/mcp`, HTTP+SSE at `/sse` and `/messages/`, and what a program adds."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        events: EventDoor,
        *,
        names: NameCheck,
        guard: Guard,
        pages: LoginPages,
        monitor: Monitored,
        watching: Mapping[str, HttpPage],
        limits: HttpLimits,
        unsent: Unsent,
        arrivals: Arrivals,
        draining: Draining,
        lifespan: Lifespan[Any],
    ) -> None:
        """Lead to `endpoint` and `events`.

        Args:
            endpoint: Takes what goes to `/mcp`.
            events: Takes what goes to `/sse` and `/messages/`.
            names: The `Host` and `Origin` that requests may have.
            guard: Checks who sends them.
            pages: Takes what browsers ask for that log in.
            monitor: What `/health` and `/ready` tell, unless a program has added such a path.
            watching: The pages of extensions by path, likewise.
            limits: How many headers they may have.
            unsent: Counts what clients have not taken.
            arrivals: Watches over bodies that are still to arrive.
            draining: Watches over the requests in flight.
            lifespan: What is open for as long as the application runs.
        """
        super().__init__(
            [
                Route(MCP_PATH, endpoint=endpoint, name="mcp"),
                Route(SSE_PATH, endpoint=_Opening(events.open), methods=["GET"], name="sse"),
                Mount(MESSAGES_PATH, app=events.post, name="messages"),
            ],
            lifespan=lifespan,
        )
        self._draining = draining
        self._endpoint = endpoint
        self._names = names
        self._guard = guard
        self._pages = pages
        self._own = tuple(self.routes)
        self.default = self._monitoring = MonitoringPages(monitor, watching, self.not_found)
        self._lines = limits.header_lines
        self._unsent = unsent
        self._arrivals = arrivals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, unless it is refused before anything else of it is read."""
        if scope["type"] != "http":
            return await super().__call__(scope, receive, send)
        headers = scope["headers"]
        if len(headers) > self._lines:
            text = b"a request may have %d header lines (header_lines)" % self._lines
            return await reply(send, 431, text)
        head = Head(headers)
        refused = self._names.refusal(head.fields)
        if refused is not None:
            path = path_in(scope)
            if not self._is_monitoring(path, scope) or b"origin" in head.fields:
                return await self._turn_away(scope, send, *refused)
            if self._monitoring.is_probe(path, head):
                return await self._monitoring.tell_anyone(scope, send)
            # A token shows that no web page has sent it by a name of its own.
            if not self._guard.is_on:
                return await self._turn_away(scope, send, *refused)
        await self._drained(scope, head, receive, send)

    async def _turn_away(self, scope: Scope, send: Send, status: int, text: str) -> None:
        self._guard.note(scope, status, "foreign name", text)
        await reply(send, status, text.encode())

    async def _drained(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        """Serve a request where a stop can end it, or its own lateness, and complete a response."""
        path = path_in(scope)
        # What goes on the stream of HTTP+SSE is counted there.
        bounded = BoundedSend(self._unsent, peer_of(scope.get("client")), send, counts=path != SSE_PATH)
        request = ArrivingRequest(
            has_body=head.has_body, receive=receive, send=bounded, arrivals=self._arrivals
        )
        with request.scope:
            self._draining.began(request.scope)
            try:
                if path == MCP_PATH and self._guard.admits(scope, head):
                    await self._endpoint.take(scope, head, request.receive, request.send)
                elif self._pages.takes(path):
                    await self._pages.answer(path, scope, request.send)
                elif self._guard.is_on:
                    await self._guarded(path, scope, head, request)
                elif path == f"{MCP_PATH}/":
                    await reply(request.send, 307, headers=[(b"location", _without_slash(scope))])
                else:
                    await super().__call__(scope, request.receive, request.send)
            except CallerError as fault:
                # Raised before any response has begun. What is to be mended is for the log alone.
                _log.error("refused a request: %s", in_log(fault))
                await reply(request.send, 500, _UNKNOWN)
            finally:
                request.forget()
                self._draining.ended(request.scope)
        if request.scope.cancelled_caught:
            await request.end()

    async def _guarded(self, path: str, scope: Scope, head: Head, request: ArrivingRequest) -> None:
        """Serve a request where callers are to be known: at the doors of MCP, not at what a program adds."""
        receive, send = request.receive, request.send
        if path == f"{MCP_PATH}/":
            return await reply(send, 307, headers=[(b"location", _without_slash(scope))])
        if path == MCP_PATH:
            take = partial(self._endpoint.take, scope, head, receive, send)
            return await self._guard.take(request, scope, head, take)
        if path.startswith(METADATA_PATH) and await self._guard.tell(path, scope, head, send):
            return
        take = partial(super().__call__, scope, receive, send)
        if not self._is_own(path, scope):
            await take()
        elif self._monitoring.is_probe(path, head):
            await self._monitoring.tell_anyone(scope, send)
        else:
            await self._guard.take(request, scope, head, take)

    def _is_own(self, path: str, scope: Scope) -> bool:
        """Whether a path is one of this package's, not one of what a program adds."""
        return self._is_monitoring(path, scope) or _matches(self._own, scope)

    def _is_monitoring(self, path: str, scope: Scope) -> bool:
        """Whether a path is that of a page for monitoring, and the program has none there."""
        return path in self._monitoring.paths and not _matches(self.routes, scope)


def _matches(routes: Iterable[BaseRoute], scope: Scope) -> bool:
    return any(route.matches(scope)[0] is not Match.NONE for route in routes)


def _without_slash(scope: Scope) -> bytes:
    """Where a request is sent on to: a path alone, as a proxy may have another scheme and name for it."""
    query: bytes = scope.get("query_string", b"")
    return quote(scope["path"].rstrip("/")).encode() + (b"?" + query if query else b"")


class _Opening:
    """The endpoint of a route that is an ASGI application, and not a function of a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
