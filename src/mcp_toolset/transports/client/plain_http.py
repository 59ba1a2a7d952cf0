"""`PlainHttp`: requests to one `http:` origin over connections that are kept, with little work for each.

httpx2 takes three times as much CPU for a request as the HTTP/1.1 connection below it (`httpcore2`). Where no
proxy, TLS, login flow, cookie or redirect is involved, that connection is used directly.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from contextlib import suppress
from typing import Any, Final

import anyio
import httpcore2

from mcp_toolset.security.egress import Refusal
from mcp_toolset.transports.client.socket import CONNECT_TIMEOUT, KEPT_OPEN, Socket
from mcp_toolset.transports.flood import Allowance, FloodError

MAX_IDLE: Final = 256
"""Idle connections that are kept."""

FAULTS: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, FloodError)
"""What a request over such a connection fails with."""

_FEW: Final = 8
_PLAIN_URL: Final = re.compile(r"http://[\w.:\[\]-]+(?:[/?][!$-;=?-\[\]_a-z~]*)?", re.ASCII)
Headers = list[tuple[bytes, bytes]]
_ADDRESS: Final = re.compile(r"localhost|[\d.]+|[\da-fA-F:.]*:[\da-fA-F:.]*")
_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address of the host is tried as well."""

_log = logging.getLogger("mcp_toolset.upstream")


class PlainHttp:
    """The connections to one server."""

    def __init__(self, url: str, allowance: Allowance, refusal: Refusal | None = None) -> None:
        """Connect to nothing yet.

        Args:
            url: Where the server is.
            allowance: Counts what answers nothing.
            refusal: Says to which addresses nothing may be sent.
        """
        self._allowance, self._refusal = allowance, refusal
        self._urls = {url: httpcore2.URL(url)}
        self._origin = self._urls[url].origin
        self._idle: deque[Socket] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @staticmethod
    def takes(url: str) -> bool:
        """Whether a URL needs no encryption, no credentials of its own and no escaping."""
        return _PLAIN_URL.fullmatch(url) is not None

    def reaches(self, url: str) -> bool:
        if url not in self._urls:
            if not self.takes(url) or (found := httpcore2.URL(url)).origin != self._origin:
                return False
            if len(self._urls) > _FEW:
                self._urls.popitem()
            self._urls[url] = found
        return True

    async def send(
        self, method: str, url: str, headers: Headers, body: bytes | None
    ) -> tuple[httpcore2.Response, Socket]:
        """Send a request to a URL that is reached. Close the response, then give its connection back."""
        request = httpcore2.Request(method, self._urls[url], headers=headers, content=body)
        connection = self._kept()
        if connection is not None:
            # Without a connection after all, nothing has been sent.
            with suppress(httpcore2.ConnectError):
                return await _response(connection, request), connection
        connection = await self._connect()
        return await _response(connection, request), connection

    def give_back(self, connection: Socket) -> None:
        """Keep a connection whose response was closed, if another request can go over it."""
        if not connection.http.is_idle():
            return
        if connection.http.has_excess:
            # They would be read as the answer to the next request.
            _log.debug("%s sent bytes after its answer; the connection is closed", self._origin)
            return connection.abort()
        self._idle.append(connection)
        if self._closed or len(self._idle) > MAX_IDLE:
            self._idle.popleft().abort()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEPT_OPEN, self._sweep)

    def close(self) -> None:
        """Close the idle connections, and those in use once they are given back."""
        self._closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _kept(self) -> Socket | None:
        """The connection that was used last, if it can be used again."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.http.has_expired():
                return connection
            connection.abort()
        return None

    def _sweep(self) -> None:
        """Close what has been idle for long; the oldest stand first."""
        while self._idle and self._idle[0].http.has_expired():
            self._idle.popleft().abort()
        self._timer = asyncio.get_running_loop().call_later(KEPT_OPEN, self._sweep) if self._idle else None

    async def _connect(self) -> Socket:
        loop, origin = asyncio.get_running_loop(), self._origin
        connection, host = Socket(origin, self._allowance), origin.host.decode()
        options: dict[str, Any] = {}
        if isinstance(loop, asyncio.BaseEventLoop) and not _ADDRESS.fullmatch(host):
            # Other loops race no addresses. A race that is cancelled may leave a socket open; one address
            # needs none.
            options["happy_eyeballs_delay"] = _NEXT_ADDRESS
        try:
            with anyio.fail_after(CONNECT_TIMEOUT):
                transport, _ = await loop.create_connection(lambda: connection, host, origin.port, **options)
            peer = transport.get_extra_info("peername")
            if self._refusal is not None and (why := self._refusal(str(origin), peer[0])):
                transport.abort()
                raise OSError(why)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"no connection within {CONNECT_TIMEOUT:g} s") from None
        # A name that cannot be one in DNS is a UnicodeError.
        except (OSError, UnicodeError) as fault:
            raise httpcore2.ConnectError(str(fault)) from None
        return connection


async def _response(connection: Socket, request: httpcore2.Request) -> httpcore2.Response:
    """The head of the response; the connection of a request that fails or is cancelled is closed."""
    try:
        return await connection.http.handle_async_request(request)
    except BaseException:
        connection.abort()
        raise
