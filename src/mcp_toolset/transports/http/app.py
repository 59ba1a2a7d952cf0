"""`http_app`: streamable HTTP at `/mcp`, HTTP+SSE at `/sse`, in one application; `run_app` runs it.

`Doors`, its router, checks `Host` and `Origin` first: a page of another origin can make a browser send
requests to a server on loopback, by a name of its own that leads there (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import html
import logging
import math
import re
import secrets
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import lru_cache, partial
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from urllib.parse import parse_qs, quote

import anyio
import uvicorn
from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Match, Mount, Route, Router
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from mcp_toolset.concurrency.signals import before_unwinding, time_to_close
from mcp_toolset.concurrency.tasks import REQUEST_TIMEOUT
from mcp_toolset.context import connection
from mcp_toolset.errors import CallerError, DefinitionError, ToolsetError
from mcp_toolset.extending.extension import HttpPage
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.http import arrival, budgets, messages
from mcp_toolset.transports.http.endpoint import HttpEndpoint
from mcp_toolset.transports.http.monitor import Monitor
from mcp_toolset.transports.http.sse import MESSAGES_PATH, SSE_PATH, EventDoor

if TYPE_CHECKING:
    from mcp_toolset.extending.host import FindView
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.transports.http.views import ViewDoors

HEALTH_PATH: Final = "/health"
READY_PATH: Final = "/ready"

_FRESH: Final = [(b"cache-control", b"no-store")]
_READ: Final = [(b"allow", b"GET, HEAD")]
_ANY_ORIGIN: Final = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"Content-Type, If-None-Match"),
    (b"access-control-expose-headers", b"ETag"),
]
_HOST: Final = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class MonitoringPages:
    """An ASGI application for the pages; what is at other paths is asked of another one."""

    def __init__(self, monitor: Monitor, pages: Mapping[str, HttpPage], other: ASGIApp) -> None:
        self._monitor = monitor
        self._pages = {path: page for path, page in pages.items() if path not in (HEALTH_PATH, READY_PATH)}
        self.paths = frozenset((HEALTH_PATH, READY_PATH, *self._pages))
        self.published = {path for path, page in self._pages.items() if page.max_age is not None}
        public = {path for path, page in self._pages.items() if page.public} | self.published
        self._open = self.paths - (self._pages.keys() - public)
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_in(scope)
        if scope["type"] != "http" or path not in self.paths:
            return await self._other(scope, receive, send)
        if (page := self._pages.get(path)) is not None:
            return await _show(page, scope, send)
        caller = connection.identity_of(scope)
        told = self._monitor.health(caller) if path == HEALTH_PATH else self._monitor.readiness(caller)
        await _tell(scope, send, told)

    async def tell_anyone(self, scope: Scope, send: Send) -> None:
        path = path_in(scope)
        if (page := self._pages.get(path)) is not None:
            return await _show(page, scope, send)
        ready = path == HEALTH_PATH or self._monitor.is_ready()
        well = "ok" if path == HEALTH_PATH else "ready"
        await _tell(scope, send, {"status": well if ready else "unready"})

    def is_probe(self, path: str, head: messages.Head) -> bool:
        """True if a request gets what everyone may know: it has no token, and no web page has sent it.

        What is published is for every request.
        """
        if path in self.published:
            return True
        return path in self._open and b"authorization" not in head.fields and b"origin" not in head.fields


def path_in(scope: Scope) -> str:
    """The path of a request within the application, wherever that is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


async def _tell(scope: Scope, send: Send, told: dict[str, Any]) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        return await messages.reply(send, 405, headers=_READ)
    await messages.reply(
        send, 503 if told["status"] == "unready" else 200, to_json(told), messages.JSON, _FRESH
    )


async def _publish(page: HttpPage, max_age: int, scope: Scope, send: Send) -> None:
    method = scope["method"]
    if method == "OPTIONS":
        return await messages.reply(send, 204, headers=[*_ANY_ORIGIN, *_READ])
    if method not in ("GET", "HEAD"):
        return await messages.reply(send, 405, headers=_READ)
    fields = messages.Head(scope["headers"]).fields
    host = fields.get(b"host", b"").decode("latin-1")
    body, kind = page.answer(None, f"{scope['scheme']}://{host}" if _HOST.fullmatch(host) else "")
    tag = b'"%s"' % sha256(body).hexdigest()[:32].encode()
    kept = [(b"cache-control", b"public, max-age=%d" % max_age), (b"etag", tag), (b"vary", b"Host")]
    known = {one.strip().removeprefix(b"W/") for one in fields.get(b"if-none-match", b"").split(b",")}
    if known & {tag, b"*"}:
        return await messages.reply(send, 304, headers=[*_ANY_ORIGIN, *kept])
    await messages.reply(send, 200, body, kind.encode(), [*_ANY_ORIGIN, *kept])


async def _show(page: HttpPage, scope: Scope, send: Send) -> None:
    if page.max_age is not None:
        return await _publish(page, page.max_age, scope, send)
    if scope["method"] not in ("GET", "HEAD"):
        return await messages.reply(send, 405, headers=_READ)
    accepted = messages.Head(scope["headers"]).fields.get(b"accept", b"").decode("latin-1")
    body, kind = page.answer(connection.identity_of(scope), accepted)
    await messages.reply(send, 200, body, kind.encode(), _FRESH)


Find = Callable[[str], connection.PendingLogin | None]

_COOKIE: Final = "mcp_toolset_login"
_PAGE: Final = (
    """<!doctype html><html lang="en"><meta charset="utf-8"><title>Log in</title><body>{}</body></html>"""
)
_ASK: Final = (
    "<h1>Log in to {server}?</h1><p>The account that you log in with will be used by <b>{caller}</b> on this "
    "server.</p><p>If you are not {caller}, or somebody sent you this address, close this page.</p>"
    '<p><a href="?continue={proof}">I am {caller}: continue</a></p>'
)
_DONE: Final = "<h1>You are logged in to {server}</h1><p>You can close this page.</p>"
_FAILED: Final = "<h1>The login to {server} has failed</h1><p>Ask for it again where you began it.</p>"
_ENDED: Final = "<h1>This login has ended</h1><p>Ask for it again where you began it.</p>"
_OTHER: Final = "<h1>This login was begun by another user, or in another browser</h1>"
_SAFE: Final[messages.Headers] = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]


class LoginPages:
    """An ASGI application for `/oauth/login/…` and `/oauth/callback`."""

    def __init__(self, find: Find) -> None:
        self._find = find

    @staticmethod
    def takes(path: str) -> bool:
        return path == connection.CALLBACK_PATH or path.startswith(connection.LOGIN_PATH)

    async def answer(self, path: str, scope: Scope, send: Send) -> None:
        if scope["method"] != "GET":
            return await messages.reply(send, 405, headers=[(b"allow", b"GET")])
        query = scope.get("query_string", b"").decode("latin-1")
        said = {name: values[0] for name, values in parse_qs(query).items() if len(values) == 1}
        if path == connection.CALLBACK_PATH:
            return await self._came_back(said.get("state", ""), query, scope, send)
        login = self._find(path.removeprefix(connection.LOGIN_PATH))
        if login is None:
            return await _page(send, 404, _ENDED)
        if _is_another(scope, login):
            return await _page(send, 403, _OTHER)
        cookie = _cookie(scope)
        if "continue" not in said or not cookie:
            cookie = cookie or secrets.token_urlsafe(32)
            names = {"server": html.escape(login.server), "caller": html.escape(login.caller)}
            return await _page(send, 200, _ASK.format(**names, proof=_proof(cookie)), cookie)
        is_it = hmac.compare_digest(said["continue"].encode(errors="replace"), _proof(cookie).encode())
        there = login.begin(_proof(cookie)) if is_it else None
        if there is None:
            return await _page(send, 403, _OTHER)
        await messages.reply(send, 303, headers=[(b"location", there.encode("latin-1")), *_SAFE[1:3]])

    async def _came_back(self, state: str, query: str, scope: Scope, send: Send) -> None:
        login = self._find(state) if state else None
        if login is None:
            return await _page(send, 404, _ENDED)
        cookie = _cookie(scope)
        is_same = bool(cookie and login.browser) and hmac.compare_digest(_proof(cookie), login.browser)
        if not is_same or _is_another(scope, login):
            return await _page(send, 403, _OTHER)
        is_done = await login.arrive(f"{connection.CALLBACK_PATH}?{query}")
        told = _DONE if is_done else _FAILED
        await _page(send, 200 if is_done else 502, told.format(server=html.escape(login.server)))


def _is_another(scope: Scope, login: connection.PendingLogin) -> bool:
    known = connection.principal_of(scope)
    return known is not None and known != login.caller_key


def _proof(cookie: str) -> str:
    return sha256(cookie.encode()).hexdigest()


def _cookie(scope: Scope) -> str:
    sent: messages.Headers = [pair for pair in scope["headers"] if pair[0] == b"cookie"]
    try:
        jar = SimpleCookie("; ".join(value.decode("latin-1") for _, value in sent))
    except CookieError:
        return ""
    return jar[_COOKIE].value if _COOKIE in jar else ""


async def _page(send: Send, status: int, text: str, cookie: str = "") -> None:
    said = f"{_COOKIE}={cookie}; Path=/oauth; HttpOnly; SameSite=Lax; Max-Age=900"
    more: messages.Headers = [(b"set-cookie", said.encode())] if cookie else []
    await messages.reply(send, status, _PAGE.format(text).encode(), headers=[*_SAFE, *more])


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


def name_check(
    hosts: Sequence[str] = (), origins: Sequence[str] = ()
) -> Callable[[Mapping[bytes, bytes]], tuple[int, str] | None]:
    """A function that refuses requests by their `Host` and `Origin`: with a status and a text.

    The names of loopback are allowed, with any port and without, and pages from there. A further name that
    ends in `:*` stands for any port.
    """
    local = [name for host in _LOOPBACK for name in (host, f"{host}:*")]
    pages = [f"http://{name}" for name in local]
    # Nearly all requests have one and the same host, and origin.
    is_host = lru_cache(_KNOWN)(partial(_allowed, re.compile(names_pattern((*local, *hosts)))))
    is_origin = lru_cache(_KNOWN)(partial(_allowed, re.compile(names_pattern((*pages, *origins)))))

    def refusal(fields: Mapping[bytes, bytes]) -> tuple[int, str] | None:
        if not is_host(fields.get(b"host", b"")):
            return 421, _refused("Host", fields.get(b"host", b""), "--allow-host", "allowed_hosts")
        origin = fields.get(b"origin")
        if origin and not is_origin(origin):
            return 403, _refused("Origin", origin, "--allow-origin", "allowed_origins")
        return None

    return refusal


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


class StreamDoor(Protocol):
    """A door with streams that stand open."""

    def end_streams(self) -> None: ...


class Draining:
    """Ends the requests in flight in order when serving ends, instead of having them cut off.

    `run_app` calls `stop`. A uvicorn that a program runs itself would wait for open streams for ever: nothing
    tells an application that its server is to exit before the last response has ended. So that is looked for.
    """

    def __init__(self, *doors: StreamDoor) -> None:
        self._doors = doors
        self.drain: float = DRAIN
        self.in_flight: set[anyio.CancelScope] = set()
        self._looks = False

    def began(self, request: anyio.CancelScope) -> None:
        self.in_flight.add(request)
        if not self._looks:
            self._look_later()

    def stop(self) -> None:
        """End standing streams now; what else is in flight is given `drain` seconds, less after a Ctrl-C."""
        for door in self._doors:
            door.end_streams()
        # A callback of the loop may call this, where anyio does not know which loop it is on.
        until = asyncio.get_running_loop().time() + time_to_close(self.drain, _HURRIED)
        for request in self.in_flight:
            request.deadline = until

    def _look_later(self) -> None:
        self._looks = True
        asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        self._looks = False
        if not self.in_flight:
            return
        if _is_exiting():
            self.stop()
        else:
            self._look_later()


def _is_exiting() -> bool:
    """True if the uvicorn that runs this process was told to exit: its method handles the signal."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


class Doors(Router):
    """Streamable HTTP at `/mcp`, HTTP+SSE at `/sse` and `/messages/`, and what a program adds."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        events: EventDoor,
        *,
        refusal: Callable[[Mapping[bytes, bytes]], tuple[int, str] | None],
        guard: arrival.AuthenticationGate,
        pages: LoginPages,
        monitor: Monitor,
        watching: Mapping[str, HttpPage],
        limits: budgets.HttpLimits,
        unsent: budgets.Unsent,
        arrivals: arrival.Arrivals,
        draining: Draining,
        lifespan: Lifespan[Any],
        views: ViewDoors | None,
    ) -> None:
        super().__init__(
            [
                Route(MCP_PATH, endpoint=endpoint, name="mcp"),
                Route(SSE_PATH, endpoint=_AsgiEndpoint(events.open), name="sse"),
                Mount(MESSAGES_PATH, app=events.post, name="messages"),
            ],
            lifespan=lifespan,
        )
        self._beginnings = budgets.Beginnings()
        self._draining = draining
        self._endpoint = endpoint
        self._refusal = refusal
        self._guard = guard
        self._pages = pages
        self._own = tuple(self.routes)
        self.default = self._monitoring = MonitoringPages(monitor, watching, self.not_found)
        self._lines = limits.max_header_lines
        self._unsent = unsent
        self._arrivals = arrivals
        self._views = views

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await super().__call__(scope, receive, send)
        await self._beginnings.turn()
        headers = scope["headers"]
        if len(headers) > self._lines:
            text = b"a request may have %d header lines (max_header_lines)" % self._lines
            return await messages.reply(send, 431, text)
        head = messages.Head(headers)
        refused = self._refusal(head.fields)
        if refused is not None:
            path = path_in(scope)
            if self._is_monitoring(path, scope) and path in self._monitoring.published:
                return await self._monitoring.tell_anyone(scope, send)
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
        await messages.reply(send, status, text.encode())

    async def _drained(self, scope: Scope, head: messages.Head, receive: Receive, send: Send) -> None:
        """Serve a request where a stop can end it, or its own lateness, and complete a response."""
        path = path_in(scope)
        views = None if self._views is None or not self._views.takes(path) else self._views
        # What goes on the stream of HTTP+SSE is counted there.
        counts = path != SSE_PATH and (views is None or not path.endswith(SSE_PATH))
        bounded = budgets.BoundedSend(self._unsent, budgets.peer_of(scope.get("client")), send, counts=counts)
        scope[budgets.WAY] = bounded
        request = arrival.ArrivingRequest(
            has_body=head.has_body, receive=receive, send=bounded, arrivals=self._arrivals
        )
        with request.scope:
            self._draining.began(request.scope)
            try:
                if path == MCP_PATH and self._guard.admits(scope, head):
                    await self._endpoint.take(scope, head, request.receive, request.send)
                elif views is not None:
                    take = partial(views.answer, path, scope, head, request.receive, request.send)
                    is_known = self._guard.admits(scope, head)
                    await (take() if is_known else self._guard.take(request, scope, head, take))
                elif self._pages.takes(path):
                    await self._pages.answer(path, scope, request.send)
                elif self._guard.is_on:
                    await self._guarded(path, scope, head, request)
                elif path == f"{MCP_PATH}/":
                    await messages.reply(request.send, 307, headers=[(b"location", _without_slash(scope))])
                else:
                    await super().__call__(scope, request.receive, request.send)
            except CallerError as fault:
                # Raised before any response has begun. What is to be mended is for the log alone.
                _log.error("refused a request: %s", in_log(fault))
                await messages.reply(request.send, 500, _UNKNOWN)
            finally:
                request.forget()
                self._draining.in_flight.discard(request.scope)
        if request.scope.cancelled_caught:
            await request.end()

    async def _guarded(
        self, path: str, scope: Scope, head: messages.Head, request: arrival.ArrivingRequest
    ) -> None:
        """Serve a request where callers are to be known: at the doors of MCP, not at what a program adds."""
        receive, send = request.receive, request.send
        if path == f"{MCP_PATH}/":
            return await messages.reply(send, 307, headers=[(b"location", _without_slash(scope))])
        if path == MCP_PATH:
            take = partial(self._endpoint.take, scope, head, receive, send)
            return await self._guard.take(request, scope, head, take)
        if path.startswith(arrival.METADATA_PATH) and await self._guard.tell(path, scope, head, send):
            return
        take = partial(super().__call__, scope, receive, send)
        if not (self._is_monitoring(path, scope) or _matches(self._own, scope)):
            await take()
        elif self._monitoring.is_probe(path, head):
            await self._monitoring.tell_anyone(scope, send)
        else:
            await self._guard.take(request, scope, head, take)

    def _is_monitoring(self, path: str, scope: Scope) -> bool:
        """True if a path is that of a page for monitoring, and the program has none there."""
        return path in self._monitoring.paths and not _matches(self.routes, scope)


def _matches(routes: Iterable[BaseRoute], scope: Scope) -> bool:
    return any(route.matches(scope)[0] is not Match.NONE for route in routes)


def _without_slash(scope: Scope) -> bytes:
    """The target of a redirect: a path alone, as a proxy may have another scheme and name for it."""
    query: bytes = scope.get("query_string", b"")
    return quote(scope["path"].rstrip("/")).encode() + (b"?" + query if query else b"")


class _AsgiEndpoint:
    """The endpoint of a route that is an ASGI application, and not a function of a request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def http_app(
    server: connection.Answers,
    monitor: Monitor,
    pages: Mapping[str, HttpPage],
    *,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    json_response: bool = False,
    request_timeout: float = REQUEST_TIMEOUT,
    limits: budgets.HttpLimits | None = None,
    trusted_proxies: Sequence[str] = (),
    auth: arrival.Current = lambda: None,
    logins: Find = lambda ticket: None,
    told: arrival.Told | None = None,
    shared: SharedState | None = None,
    views: Mapping[str, FindView] | None = None,
) -> Starlette:
    """A Starlette application that serves both HTTP transports.

    Requests are accepted for loopback names, any port, and for what is allowed besides; a page of
    another origin cannot reach the server through a browser.
    """
    limits = limits or budgets.HttpLimits()
    allowed_origins, trusted_proxies = tuple(allowed_origins), tuple(trusted_proxies)
    _check_proxies(trusted_proxies)
    unsent = budgets.Unsent(limits)
    guard = arrival.AuthenticationGate(auth, told, tuple(views or ()))
    load = budgets.Load()
    endpoint = HttpEndpoint(
        server,
        limits,
        load,
        streams=not json_response,
        shared=shared,
        note_foreign=guard.note_foreign_session,
    )
    events = EventDoor(server, limits, load, unsent, shared, note_foreign=guard.note_foreign_session)

    named = _view_doors(views, limits, load, unsent, guard, streams=not json_response) if views else None

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with server.opened(), endpoint.sessions.running(), events.sessions.running():
            async with nullcontext() if named is None else named.running():
                yield

    draining = Draining(endpoint, events, *(() if named is None else (named,)))
    doors = Doors(
        endpoint,
        events,
        refusal=name_check(allowed_hosts, allowed_origins),
        pages=LoginPages(logins),
        monitor=monitor,
        watching=pages,
        guard=guard,
        limits=limits,
        unsent=unsent,
        arrivals=arrival.Arrivals(request_timeout),
        draining=draining,
        lifespan=lifespan,
        views=named,
    )
    app = Starlette()
    app.router = doors
    if allowed_origins:
        # A browser reads the answers of another origin, and sends a token to it, only where this allows it.
        app.add_middleware(
            CORSMiddleware,
            allow_origin_regex=names_pattern(allowed_origins),
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("Mcp-Session-Id", "WWW-Authenticate"),
        )
    # The one that is added last sees requests first.
    app.add_middleware(arrival.unambiguous)
    if trusted_proxies:
        app.add_middleware(cast("Any", ProxyHeadersMiddleware), trusted_hosts=list(trusted_proxies))
    app.state.draining, app.state.request_timeout = draining, request_timeout
    return app


def _view_doors(
    views: Mapping[str, FindView],
    limits: budgets.HttpLimits,
    load: budgets.Load,
    unsent: budgets.Unsent,
    guard: arrival.AuthenticationGate,
    *,
    streams: bool,
) -> ViewDoors:
    # Few servers have views.
    from mcp_toolset.transports.http.views import ViewDoors

    def made(answers: connection.Answers) -> tuple[HttpEndpoint, EventDoor]:
        note = guard.note_foreign_session
        endpoint = HttpEndpoint(answers, limits, load, streams=streams, note_foreign=note)
        return endpoint, EventDoor(answers, limits, load, unsent, note_foreign=note)

    return ViewDoors(views, made)


def _check_proxies(proxies: Sequence[str]) -> None:
    for proxy in proxies:
        try:
            ip_network(proxy)
        except ValueError as fault:
            told = f"trusted_proxies: {proxy!r} is no IP address and no network ({fault})"
            raise DefinitionError(f"{told}; write an address, or a network such as 10.0.0.0/8") from None


async def run_app(app: Starlette, listening: socket.socket, *, drain: float | None = None) -> None:
    """Run an application on a socket until cancelled or a SIGTERM arrives; then let requests in flight end.

    `drain` is how many seconds they may take, two unless given. After a SIGTERM mounted servers go on until
    then.

    Raises:
        ToolsetError: the application could not be started.
    """
    draining = app.state.draining
    draining.drain = draining.drain if drain is None else drain
    config = uvicorn.Config(
        app,
        http=arrival.reading(app.state.request_timeout),
        ws="none",
        # An address that a client on this machine makes up (`X-Forwarded-For`) would have limits of its own.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_level="error",
        # So many are accepted at once; file descriptors are left to make room.
        backlog=256,
        timeout_graceful_shutdown=math.ceil(draining.drain) + 1,
        lifespan="on",
    )
    server, ended = _QuietServer(config), anyio.Event()

    async def serve() -> None:
        with anyio.CancelScope(shield=True):
            await server.serve(sockets=[listening])
        ended.set()

    def stop() -> None:
        draining.stop()
        server.should_exit = True

    async def drained() -> None:
        stop()
        await ended.wait()

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        try:
            with before_unwinding(drained):
                await ended.wait()
        finally:
            stop()
    if not server.started:
        raise ToolsetError("the HTTP server did not start; the log on stderr has the reason")


class _QuietServer(uvicorn.Server):
    """uvicorn without its own signal handlers: the caller of `run_app` decides when to stop."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@contextmanager
def bound_socket(host: str, port: int) -> Generator[socket.socket]:
    """A listening socket; port 0 takes any free one.

    Raises:
        ToolsetError: the port is in use or may not be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only for sockets that name their protocol; with it, each
    # answer in two writes waits 40 ms for the client's delayed acknowledgement.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as fault:
            raise ToolsetError(_bind_message(host, port, fault)) from None
        except OverflowError:
            raise ToolsetError(
                f"port {port} does not exist; choose one from 1 to 65535, or 0 for any"
            ) from None
        listening.listen(128)
        yield listening


def _bind_message(host: str, port: int, fault: OSError) -> str:
    if fault.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop what uses it or choose another with --port"
    if fault.errno == errno.EACCES:
        return f"port {port} on {host} needs more rights than this process has; choose one above 1023"
    mend = "give an address of this machine with --host"
    return f"cannot listen on {host}:{port}: {fault.strerror or fault}; {mend}"
