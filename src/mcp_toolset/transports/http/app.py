"""Streamable HTTP at `/mcp` and SSE at `/sse`, with Host and Origin checked on both."""

from __future__ import annotations

import errno
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_toolset.concurrency.deadlines import REQUEST_TIMEOUT
from mcp_toolset.concurrency.signals import patience
from mcp_toolset.errors import ToolsetError
from mcp_toolset.sdk.http_sessions import SseServerTransport, StreamableHTTPASGIApp, TransportSecuritySettings
from mcp_toolset.transports.http.admission import Admission
from mcp_toolset.transports.http.arrival import ArrivingRequest, checked_timeout, watching_heads
from mcp_toolset.transports.http.endpoint import QuickAnswers
from mcp_toolset.transports.http.headers import header
from mcp_toolset.transports.http.legacy_sessions import LegacySessions
from mcp_toolset.transports.http.limits import HttpLimits, peer_of
from mcp_toolset.transports.http.send_buffers import BoundedSend, Unsent
from mcp_toolset.transports.http.server import HttpApplication, HttpServer
from mcp_toolset.transports.http.session_log import shorten_session_ids
from mcp_toolset.transports.http.sse_answers import SseAnswers, SseRequests

MCP_PATH: Final = "/mcp"
SSE_PATH: Final = "/sse"
MESSAGES_PATH: Final = "/messages/"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_KNOWN: Final = 16
"""Values of one header whose check is remembered."""

_DRAIN: Final = 2
"""Seconds that open streams are given to end when the server stops."""

_HURRIED: Final = 0.3
"""The same after a Ctrl-C."""


def http_app(
    server: HttpServer,
    *,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    json_response: bool = False,
    request_timeout: float = REQUEST_TIMEOUT,
    limits: HttpLimits | None = None,
) -> Starlette:
    """A Starlette application that serves both HTTP transports.

    Requests are accepted for loopback names, any port, and for what is allowed besides; a page of
    another origin cannot reach the server through a browser.

    Args:
        server: The low-level server to serve.
        allowed_hosts: Further `Host` values, such as `tools.example.com` or `tools.example.com:*`.
        allowed_origins: Further `Origin` values, such as `https://app.example.com`.
        json_response: Answer with JSON always: nothing is reported, or asked, in the course of a call.
        request_timeout: Seconds in which the body of a request has to arrive (408), and its head where
            `run_app` listens; how long the answer takes is not limited here.
        limits: How much is kept for clients: sessions, and answers that they do not read.

    Raises:
        DefinitionError: the time is not positive.
    """
    shorten_session_ids()
    limits = limits or HttpLimits()
    security = _security(allowed_hosts, allowed_origins)
    draining = Draining(server)
    messages = SseServerTransport(MESSAGES_PATH, security_settings=security)
    unsent = Unsent(limits)
    app = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        json_response=json_response,
        transport_security=security,
        max_sessions=limits.sessions,
        custom_starlette_routes=[
            Route(SSE_PATH, endpoint=_SseEndpoint(server, messages, draining, unsent), methods=["GET"]),
            Mount(MESSAGES_PATH, app=messages.handle_post_message),  # pyright: ignore[reportArgumentType]
        ],
    )
    _quicken(app, server, limits, streams=not json_response)
    app.add_middleware(_OriginGuard, security=security, limits=limits)
    app.add_middleware(_Drained, draining=draining, seconds=checked_timeout(request_timeout), unsent=unsent)
    app.state.draining, app.state.request_timeout = draining, request_timeout
    return app


def _quicken(app: Starlette, server: HttpServer, limits: HttpLimits, *, streams: bool) -> None:
    """Answer what can be answered without the SDK before its endpoint; not past its authentication."""
    for route in app.router.routes:
        if isinstance(route, Route) and isinstance(route.endpoint, StreamableHTTPASGIApp):
            manager = route.endpoint.session_manager
            sessions = LegacySessions(route.app, server, manager, limits)
            quick = QuickAnswers(route.app, server, sessions, streams=streams)
            route.app = Admission(quick, manager, sessions, limits)


class Draining:
    """The requests under way, so that a stop can end them in order instead of having them cut off."""

    def __init__(self, server: HttpServer) -> None:
        """Watch over the requests to `server`."""
        self._server = server
        self.requests: set[anyio.CancelScope] = set()
        self.sessions: set[anyio.CancelScope] = set()

    def stop(self) -> None:
        """End standing streams now; what else is under way is given `_DRAIN` seconds, less after a Ctrl-C."""
        self._server.end_streams()
        for session in self.sessions:
            session.cancel()
        for request in self.requests:
            request.deadline = anyio.current_time() + patience(_DRAIN, _HURRIED)


class _SseEndpoint:
    """The event stream of the SSE transport: one connection, one session."""

    def __init__(
        self, server: HttpServer, messages: SseServerTransport, draining: Draining, unsent: Unsent
    ) -> None:
        self._server = server
        self._messages = messages
        self._draining = draining
        self._unsent = unsent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._messages.connect_sse(scope, receive, send) as (read, write):
            # Ending the session ends its stream, which then completes its response by itself.
            with anyio.CancelScope() as session:
                self._draining.sessions.add(session)
                answers: Any = SseAnswers(write, self._unsent, peer_of(scope.get("client")))
                requests: Any = SseRequests(read, answers)
                try:
                    await self._server.run(requests, answers, self._server.create_initialization_options())
                finally:
                    self._draining.sessions.discard(session)


class _Drained:
    """Runs each request where `Draining` can end it, or its own lateness, and completes a response."""

    def __init__(self, app: ASGIApp, draining: Draining, seconds: float, unsent: Unsent) -> None:
        self._app = app
        self._unsent = unsent
        self._draining = draining
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The stream of the SSE transport has to go on: its answers were counted before.
        drops = scope["path"].removeprefix(scope.get("root_path", "")) != SSE_PATH
        bounded = BoundedSend(self._unsent, peer_of(scope.get("client")), send, drops=drops)
        request = ArrivingRequest(scope["method"], receive, bounded, self._seconds)
        under_way = self._draining.requests
        with request.scope:
            under_way.add(request.scope)
            try:
                await self._app(scope, request.receive, request.send)
            finally:
                under_way.discard(request.scope)
        if request.scope.cancelled_caught:
            await request.end()


class _OriginGuard:
    """Refuses a foreign Host (421) or Origin (403) before anything else of the request is read."""

    def __init__(self, app: ASGIApp, security: TransportSecuritySettings, limits: HttpLimits) -> None:
        self._app = app
        self._lines = limits.header_lines
        # Nearly all requests have one and the same host, and origin.
        self._is_host = lru_cache(_KNOWN)(partial(_allowed, patterns=tuple(security.allowed_hosts)))
        self._is_origin = lru_cache(_KNOWN)(partial(_allowed, patterns=tuple(security.allowed_origins)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if len(scope["headers"]) > self._lines:
                text = f"a request may have {self._lines} header lines (header_lines)"
                return await Response(text, status_code=431)(scope, receive, send)
            if not self._is_host(header(scope["headers"], b"host") or b""):
                return await Response("Invalid Host header", status_code=421)(scope, receive, send)
            origin = header(scope["headers"], b"origin")
            if origin and not self._is_origin(origin):
                return await Response("Invalid Origin header", status_code=403)(scope, receive, send)
        await self._app(scope, receive, send)


def _allowed(raw: bytes, patterns: Sequence[str]) -> bool:
    value = raw.decode("latin-1")
    return any(
        value == pattern or (pattern.endswith(":*") and _has_port(value, pattern[:-1]))
        for pattern in patterns
    )


def _has_port(value: str, start: str) -> bool:
    return value.startswith(start) and value[len(start) :].isdigit()


def _security(hosts: Sequence[str], origins: Sequence[str]) -> TransportSecuritySettings:
    local = [name for host in _LOOPBACK for name in (host, f"{host}:*")]
    pages = [f"http://{name}" for name in local]
    return TransportSecuritySettings(allowed_hosts=[*local, *hosts], allowed_origins=[*pages, *origins])


async def serve_http(
    server: HttpApplication,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    request_timeout: float = REQUEST_TIMEOUT,
) -> None:
    """Serve both HTTP transports until cancelled; open streams are then given a few seconds to end.

    Raises:
        ToolsetError: the address cannot be used, with the reason and the mend.
    """
    with bound_socket(host, port) as listening:
        app = server.http_app(
            allowed_hosts=allowed_hosts, allowed_origins=allowed_origins, request_timeout=request_timeout
        )
        await run_app(app, listening)


async def run_app(app: Starlette, listening: socket.socket) -> None:
    """Run an application on a socket until cancelled; then let it drain, and return.

    Raises:
        ToolsetError: the application could not be started.
    """
    config = uvicorn.Config(
        app,
        http=watching_heads(app.state.request_timeout),
        log_level="error",
        timeout_graceful_shutdown=_DRAIN + 1,
        lifespan="on",
    )
    server, ended = _QuietServer(config), anyio.Event()

    async def serve() -> None:
        with anyio.CancelScope(shield=True):
            await server.serve(sockets=[listening])
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        try:
            await ended.wait()
        finally:
            app.state.draining.stop()
            server.should_exit = True
    if not server.started:
        raise ToolsetError("the HTTP server did not start; the log on stderr has the reason")


class _QuietServer(uvicorn.Server):
    """uvicorn without its own signal handlers: whoever runs us decides when to stop."""

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
    return f"cannot listen on {host}:{port}: {fault.strerror or fault}"
