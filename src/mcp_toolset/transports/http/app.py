"""`http_app`: streamable HTTP at `/mcp`, HTTP+SSE at `/sse`, in one application; `run_app` runs it."""

from __future__ import annotations

import errno
import math
import socket
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_network
from typing import Any, Protocol, cast

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from mcp_toolset.concurrency.deadlines import REQUEST_TIMEOUT
from mcp_toolset.concurrency.signals import before_unwinding
from mcp_toolset.context.connection import Answers
from mcp_toolset.context.shared import Shared
from mcp_toolset.errors import DefinitionError, ToolsetError
from mcp_toolset.extending.extension import HttpPage
from mcp_toolset.security.authenticator import Authenticator
from mcp_toolset.transports.http.arrival import Arrivals, Unambiguous, checked_timeout, reading
from mcp_toolset.transports.http.authentication import Current, Guard, Told, check_address
from mcp_toolset.transports.http.endpoint import HttpEndpoint
from mcp_toolset.transports.http.limits import HttpLimits
from mcp_toolset.transports.http.load import Load
from mcp_toolset.transports.http.monitoring_pages import Monitored
from mcp_toolset.transports.http.routing import (
    AllowedNames,
    Doors,
    Draining,
    NameCheck,
    names_pattern,
)
from mcp_toolset.transports.http.send_buffers import Unsent
from mcp_toolset.transports.http.sse import EventDoor
from mcp_toolset.transports.login_pages import Find, LoginPages


class HttpApplication(Protocol):
    """A toolset server, which makes the application that is run."""

    @property
    def auth(self) -> Authenticator | None:
        """Who may call; `None` for every caller."""
        ...

    def http_app(self, *args: Any, **options: Any) -> Starlette: ...


def http_app(
    server: Answers,
    monitor: Monitored,
    pages: Mapping[str, HttpPage],
    *,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    json_response: bool = False,
    request_timeout: float = REQUEST_TIMEOUT,
    limits: HttpLimits | None = None,
    trusted_proxies: Sequence[str] = (),
    auth: Current = lambda: None,
    logins: Find = lambda ticket: None,
    told: Told | None = None,
    shared: Shared | None = None,
) -> Starlette:
    """A Starlette application that serves both HTTP transports.

    Requests are accepted for loopback names, any port, and for what is allowed besides; a page of
    another origin cannot reach the server through a browser.

    Args:
        server: Answers the requests.
        monitor: Says how the server is doing, for `/health` and `/ready`.
        pages: What extensions tell at further paths.
        allowed_hosts: Further `Host` values, such as `tools.example.com` or `tools.example.com:*`.
        allowed_origins: Further `Origin` values, such as `https://app.example.com`; their pages can read
            the answers (CORS).
        json_response: Answer with JSON always: nothing is reported, or asked, in the course of a call.
        request_timeout: Seconds in which the body of a request has to arrive (408), and its head where
            `run_app` listens; how long the answer takes is not limited here.
        limits: How much is kept for clients: sessions, and answers that they do not read.
        trusted_proxies: IP addresses or networks of proxies; in requests from there the address of the client
            is the last one in `X-Forwarded-For` that is not a trusted proxy's.
        auth: Returns who may call, at each request; `None` lets every caller in.
        logins: Finds the logins of callers that wait for a browser.
        told: Is told of callers who are let in, and of requests that are refused for who sends them, or for
            their `Host` or `Origin`.
        shared: What the replicas of the server share.
    """
    limits = limits or HttpLimits()
    _check_proxies(trusted_proxies)
    unsent = Unsent(limits)
    guard = Guard(auth, told)
    load = Load()
    endpoint = HttpEndpoint(
        server,
        limits,
        load,
        streams=not json_response,
        shared=shared,
        note_foreign=guard.note_foreign_session,
    )
    events = EventDoor(server, limits, load, unsent, shared, note_foreign=guard.note_foreign_session)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with server.opened(), endpoint.sessions.running(), events.sessions.running():
            yield

    draining = Draining(endpoint, events)
    doors = Doors(
        endpoint,
        events,
        names=NameCheck(AllowedNames.with_loopback(allowed_hosts, allowed_origins)),
        pages=LoginPages(logins),
        monitor=monitor,
        watching=pages,
        guard=guard,
        limits=limits,
        unsent=unsent,
        arrivals=Arrivals(checked_timeout(request_timeout)),
        draining=draining,
        lifespan=lifespan,
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
    app.add_middleware(Unambiguous)
    if trusted_proxies:
        app.add_middleware(cast("Any", ProxyHeadersMiddleware), trusted_hosts=list(trusted_proxies))
    app.state.draining, app.state.request_timeout = draining, request_timeout
    return app


def _check_proxies(proxies: Sequence[str]) -> None:
    for proxy in proxies:
        try:
            ip_network(proxy)
        except ValueError as fault:
            told = f"trusted_proxies: {proxy!r} is no IP address and no network ({fault})"
            raise DefinitionError(f"{told}; write an address, or a network such as 10.0.0.0/8") from None


async def serve_http(
    server: HttpApplication,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    request_timeout: float = REQUEST_TIMEOUT,
    insecure: bool = False,
) -> None:
    """Serve both HTTP transports until cancelled; open streams are then given a few seconds to end."""
    check_address(host, authenticated=server.auth is not None, insecure=insecure)
    with bound_socket(host, port) as listening:
        app = server.http_app(
            allowed_hosts=allowed_hosts, allowed_origins=allowed_origins, request_timeout=request_timeout
        )
        await run_app(app, listening)


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
        http=reading(app.state.request_timeout),
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
