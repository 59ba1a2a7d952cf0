"""`GuardedTransport`: requests of httpx2, each to an address that was judged after its name was resolved.

Requests that a proxy of the environment carries go to the proxy (`proxies`), which resolves names itself.
httpx2 makes its own transports of these variables only if it gets no other transport. Private is
`get_environment_proxies`, because nothing public says which request goes where.
"""

from __future__ import annotations

import os
import socket
import ssl
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2  # noqa: TID253 - who imports this module needs it at once
from httpx2._utils import get_environment_proxies  # noqa: TID253

from mcp_toolset.security.egress import Refusal

_NEXT_ADDRESS: Final = 5.0
"""Seconds after which the next address of a host is tried."""


def tls() -> ssl.SSLContext:
    """The TLS context for connections to servers; one for the process, as loading certificates takes long."""
    return _tls(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=4)
def _tls(file: str | None, folder: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects to the very addresses that were judged, so that a name cannot lead elsewhere meanwhile."""

    def __init__(self, refusal: Refusal, limits: httpx2.Limits) -> None:
        self._refusal = refusal
        self._limits = limits
        self._hosts: dict[tuple[str, str], httpx2.AsyncHTTPTransport] = {}

    async def aclose(self) -> None:
        for transport in self._hosts.values():
            await transport.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        # Hosts at one address must not share a connection, which is a proof for one of them alone.
        transport = self._hosts.get((url.scheme, url.host))
        if transport is None:
            # Without TLS none of the certificates are needed, and no server could prove itself by this one.
            context = tls() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            transport = httpx2.AsyncHTTPTransport(verify=context, limits=self._limits)
            self._hosts[url.scheme, url.host] = transport
        *others, last = await permitted(self._refusal, str(url))
        for address in (*others, last):
            # TLS still checks the name.
            extensions: dict[str, Any] = {**request.extensions, "sni_hostname": url.host}
            if address != last:
                extensions["timeout"] = {**extensions.get("timeout", {}), "connect": _NEXT_ADDRESS}
            there, stream = url.copy_with(host=address), request.stream
            to = httpx2.Request(
                request.method, there, headers=request.headers, stream=stream, extensions=extensions
            )
            try:
                answer = await transport.handle_async_request(to)
                # The HTTP client logs it, and a server can write a token there.
                answer.extensions.pop("reason_phrase", None)
                return answer
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if address == last:
                    raise
        raise AssertionError("the last address is answered or raises")


def proxies(limits: httpx2.Limits) -> dict[str, httpx2.AsyncBaseTransport | None]:
    """The transports of proxies by pattern of the URLs that they are for; `None` for those that need none."""
    return {
        pattern: None
        if proxy is None
        else httpx2.AsyncHTTPTransport(verify=tls(), proxy=proxy, limits=limits)
        for pattern, proxy in get_environment_proxies().items()
    }


async def permitted(refusal: Refusal, url: str) -> list[str]:
    """The addresses of the host of a URL that may be reached."""
    parts = urlsplit(url)
    try:
        found = await anyio.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    # A name that cannot be one in DNS is a UnicodeError.
    except (OSError, UnicodeError) as fault:
        raise httpx2.ConnectError(str(fault)) from None
    addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
    refused = [refusal(url, address) for address in addresses]
    if all(refused):
        raise httpx2.ConnectError(refused[0] if refused else "the name has no address")
    return [address for address, why in zip(addresses, refused, strict=True) if not why]
