"""`Carrier`: HTTP requests to the address of one mounted server, and their replies as streams of bytes.

Requests without TLS use `PlainHttp`, which is faster. httpx2 sends the requests that need TLS, proxies, login
flows or cookies. A redirect is followed only within the origin of the server, because the headers and
credentials are meant for it alone.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from email.message import Message
from http.cookiejar import Cookie, CookieJar
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies

import anyio
import httpcore2

from mcp_toolset.concurrency.backoff import Turn
from mcp_toolset.errors import UpstreamError
from mcp_toolset.protocol.json_rpc import FAILED_ON_ITS_WAY, NOT_SENT
from mcp_toolset.security.egress import Refusal
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports import plain_http
from mcp_toolset.transports.allowance import PER_CHUNK, PER_PIECE, Allowance
from mcp_toolset.transports.compression import CODINGS, decompressed

if TYPE_CHECKING:
    import httpx2


class Credentials(Protocol):
    """The credentials for one mounted server."""

    async def header(self, caller: Identity | None) -> str | None: ...

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        """Handle a refusal; true if the request is to be sent again, with another header."""
        ...

    async def accepted(self, used: str | None) -> None:
        """Note that the server accepted a request which it had refused with other credentials."""


class TokenSource(Credentials, Protocol):
    """Credentials for one mounted server that other processes may change or remove; by default none does."""

    async def changed(self) -> None:
        await anyio.sleep_forever()

    async def withdrawn(self) -> None:
        """Wait for a logout, after which the credentials must not be used any more."""
        await anyio.sleep_forever()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be shown: those in use, and recent ones."""
        return ()


_log = logging.getLogger("mcp_toolset.upstream")


MAX_REDIRECTS: Final = 20
MAX_REFUSALS: Final = 4
"""Refusals of one request that are answered: with newer tokens, renewed ones, a login, more scopes."""

MAX_COOKIES: Final = 50
MAX_COOKIES_SIZE: Final = 8 * 1024
"""The number of cookies of one server, and their characters: servers refuse longer headers."""

MAX_COOKIE: Final = 4096
"""Characters of a cookie with its attributes; longer cookies are ignored."""

DRAIN_TIMEOUT: Final = 1.0
"""Seconds to read the unwanted rest of a reply."""

EVENTS: Final = "text/event-stream"

_OFFERED: Final = {b"accept-encoding": CODINGS.encode()}
_AGENT: Final = {b"user-agent": b"mcp-toolset"}
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_SAME_METHOD: Final = frozenset((307, 308))
_PORTS: Final = {"http": 80, "https": 443}
_PROXIED: Final = frozenset(("http", "all"))
_PROXIES: Final = (
    "the proxy that the environment names cannot be used: only HTTP proxies (http://, https://) can. Set "
    "HTTP_PROXY or HTTPS_PROXY to one in place of ALL_PROXY, or name the host in NO_PROXY"
)
_NOT_REACHED: Final = frozenset(("ConnectError", "ConnectTimeout"))


class Reply(Protocol):
    """The reply to one request; its body is a stream."""

    status: int

    def header(self, name: str) -> str: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, decompressed; a second call continues where the first one ended."""
        ...

    async def aclose(self) -> None:
        """Release the connection, which can be used again if the body was read to its end."""


class PlainReply:
    """A reply over a plain connection."""

    __slots__ = ("_chunks", "_connection", "_headers", "_http", "_response", "status")

    def __init__(
        self, response: httpcore2.Response, connection: plain_http.Socket, http: plain_http.PlainHttp
    ) -> None:
        self.status = response.status
        self._headers: dict[bytes, bytes] = {}
        for raw, value in response.headers:
            name = raw.lower()
            # Lines of a repeated header are joined (RFC 9110, 5.3), as httpx2 does.
            self._headers[name] = self._headers[name] + b", " + value if name in self._headers else value
        self._response = response
        self._connection = connection
        self._http = http
        chunks: Any = aiter(response.stream)  # pyright: ignore[reportArgumentType, reportUnknownVariableType]
        self._chunks = _body(chunks, self.header("content-encoding"))

    def header(self, name: str) -> str:
        return self._headers.get(name.encode(), b"").decode("latin-1")

    def chunks(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def aclose(self) -> None:
        try:
            await self._chunks.aclose()
            await self._response.aclose()
        except BaseException:
            self._connection.abort()
            raise
        self._http.give_back(self._connection)


class LibraryReply:
    """A reply through httpx2."""

    __slots__ = ("_chunks", "_response", "status")

    def __init__(self, response: httpx2.Response, allowance: Allowance) -> None:
        self.status = response.status_code
        self._response = response
        self._chunks = _body(_counted(response.aiter_raw(), allowance), self.header("content-encoding"))

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    def chunks(self) -> AsyncIterator[bytes]:
        return self._chunks

    async def aclose(self) -> None:
        await self._chunks.aclose()
        await self._response.aclose()


class LimitedCookies(CookieJar):
    """Cookies of one mounted server, limited in number and size.

    Attributes:
        enabled: False once callers with different credentials send requests.
    """

    enabled = True

    def disable(self) -> None:
        """Forget all cookies, which belong to one caller, and keep no more."""
        self.enabled = False
        self.clear()

    def make_cookies(self, response: Any, request: Any) -> Sequence[Cookie]:
        short = [line for line in response.info().get_all("set-cookie", ()) if len(line) <= MAX_COOKIE]
        headers = Message()
        for line in short[:MAX_COOKIES]:
            headers["set-cookie"] = line
        return super().make_cookies(SimpleNamespace(info=lambda: headers), request)  # pyright: ignore[reportArgumentType]

    def set_cookie(self, cookie: Cookie) -> None:
        """Keep a cookie that is within the limits and can be sent back."""
        pair = f"{cookie.name}={cookie.value or ''}"
        others = [
            len(other.name) + len(other.value or "")
            for other in self
            if _cookie_key(other) != _cookie_key(cookie)
        ]
        fits = self.enabled and len(others) < MAX_COOKIES and sum(others) + len(pair) <= MAX_COOKIES_SIZE
        if fits and pair.isascii() and pair.isprintable():
            super().set_cookie(cookie)


def _cookie_key(cookie: Cookie) -> tuple[str, str, str]:
    return cookie.domain, cookie.path, cookie.name


class Carrier:
    """Sends the requests of one mounted server.

    Attributes:
        faults: The errors of a request on its way, and of reading a reply.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        auth: httpx2.Auth | None = None,
        credentials: Credentials | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        """Create a sender to `url`; it connects with the first request.

        Args:
            url: The address of the server.
            headers: Headers of every request.
            auth: Credentials, as httpx2 takes them.
            credentials: Credentials, if `auth` is not given.
            refusal: Refuses IP addresses of the host.
        """
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self.faults: tuple[type[Exception], ...] = plain_http.FAULTS
        self.allowance = Allowance()
        self._url = url
        self.sends_credentials = bool(auth or credentials) or any(
            name.lower() == "authorization" for name in headers
        )
        self._auth = auth
        self._credentials = credentials
        if credentials is not None:
            self.faults = (*plain_http.FAULTS, UpstreamError)
        self._given = _wired(headers)
        self._common = _wired({"host": parts.netloc}) | _OFFERED | _AGENT | self._given
        self._library: httpx2.AsyncClient | None = None
        self._cookies = LimitedCookies()
        self._caller: bytes | None = None  # the credentials of the first request
        is_plain = auth is None and plain_http.PlainHttp.takes(url) and not _PROXIED & getproxies().keys()
        self._plain = plain_http.PlainHttp(url, self.allowance, refusal) if is_plain else None
        # With TLS the server proves its identity; a login flow sends requests to other servers too.
        self._refusal = refusal if auth or parts.scheme == "http" else None

    async def send(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        url: str | None = None,
        bare: bool = False,
    ) -> Reply:
        if self._credentials is not None and not bare:
            return await self._send_authorized(self._credentials, method, headers, body, url)
        target = url or self._url
        for _ in range(MAX_REDIRECTS):
            reply = await self._send_once(method, target, headers, body)
            redirected = redirect_of(reply, target)
            if redirected is None or not _is_followed(method, reply.status, target, redirected):
                return reply
            await drain(reply)
            target = redirected
        return await self._send_once(method, target, headers, body)

    async def _send_authorized(
        self,
        credentials: Credentials,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None,
        url: str | None,
    ) -> Reply:
        for refusals in count():
            used = await credentials.header(None)
            with_credentials = headers if used is None else {**headers, "authorization": used}
            reply = await self.send(method, with_credentials, body, url=url, bare=True)
            try:
                if reply.status not in (401, 403):
                    if refusals:
                        await credentials.accepted(used)
                    return reply
                challenge = reply.header("www-authenticate")
                if refusals == MAX_REFUSALS or not await credentials.challenged(
                    reply.status, challenge, used, None
                ):
                    return reply
            except BaseException:
                await release(reply)
                raise
            await drain(reply)
        raise AssertionError("the last refusal is returned")

    async def aclose(self) -> None:
        if self._plain is not None:
            self._plain.close()
        if self._library is not None:
            await self._library.aclose()

    def why(self, fault: Exception) -> str:
        """The reason of a failed request, which begins with its state: not sent, or failed on its way."""
        kind = type(fault).__name__
        reason = f"{kind}: {fault}" if str(fault) else kind
        return f"{NOT_SENT if kind in _NOT_REACHED else FAILED_ON_ITS_WAY}: {reason}"

    async def _send_once(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        wire = {name.lower().encode(): value.encode("latin-1", "replace") for name, value in headers.items()}
        if self._credentials is None and self._cookies.enabled:
            caller = wire.get(b"authorization", b"")
            if self._caller is None:
                self._caller = caller
            elif caller != self._caller:
                self._cookies.disable()
        http = self._plain
        if http is None or not http.reaches(url):
            client = self._client()
            request = client.build_request(method, url, headers=list(wire.items()), content=body)
            response = await client.send(request, stream=True, follow_redirects=False)
            return LibraryReply(response, self.allowance)
        if body is not None:
            wire[b"content-length"] = b"%d" % len(body)
        response, connection = await http.send(method, url, [*(self._common | wire).items()], body)
        reply = PlainReply(response, connection, http)
        if self._cookies.enabled and reply.header("set-cookie"):
            self._keep_cookies(method, url, response.headers)
        return reply

    def _keep_cookies(self, method: str, url: str, headers: plain_http.Headers) -> None:
        client = self._client()
        from httpx2 import Request, Response

        client.cookies.extract_cookies(Response(200, headers=headers, request=Request(method, url)))
        if client.cookies and self._plain is not None:
            self._plain.close()
            self._plain = None

    def _client(self) -> httpx2.AsyncClient:
        if self._library is None:
            import httpx2

            limits = httpx2.Limits(max_connections=None, keepalive_expiry=plain_http.KEPT_OPEN)
            options: dict[str, Any] = {}
            self.faults = (*self.faults, httpx2.RequestError, httpx2.InvalidURL)
            try:
                from mcp_toolset.transports.guarded import GuardedTransport, proxies, tls

                if self._refusal is None:
                    options = {"verify": tls()}
                else:
                    options = {
                        "transport": GuardedTransport(self._refusal, limits),
                        "mounts": proxies(limits),
                    }
                self._library = httpx2.AsyncClient(
                    headers=list((_OFFERED | self._given).items()),
                    cookies=self._cookies,
                    auth=self._auth,
                    timeout=httpx2.Timeout(plain_http.CONNECT_TIMEOUT, read=None),
                    # The connection limits the calls in flight.
                    limits=limits,
                    **options,
                )
            # The errors of httpx2 for a proxy that it does not support.
            except (ImportError, ValueError) as fault:
                raise UpstreamError(self.host, _PROXIES) from fault
        return self._library


def is_stream(reply: Reply) -> bool:
    return reply.header("content-type").lower().startswith(EVENTS)


async def drain(reply: Reply) -> None:
    """Read the unwanted rest of a body, if it is short, so that the connection can be used again."""
    size = 0
    try:
        with anyio.move_on_after(DRAIN_TIMEOUT):
            async for chunk in reply.chunks():
                size += len(chunk)
                if size > plain_http.MAX_READ:
                    break
    finally:
        await release(reply)


async def release(reply: Reply) -> None:
    """Close a reply, even if the current task is cancelled."""
    with anyio.CancelScope(shield=True):
        await reply.aclose()


def redirect_of(reply: Reply, url: str) -> str | None:
    location = reply.header("location") if reply.status in _REDIRECTS else ""
    if not location:
        return None
    try:
        target = urljoin(url, location)
        _origin(urlsplit(target))
    # Brackets around an invalid address, or an invalid port.
    except ValueError:
        return None
    return target


def shown(url: str) -> str:
    """An address in a message: without user, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


async def _counted(chunks: AsyncIterator[bytes], allowance: Allowance) -> AsyncGenerator[bytes]:
    turn = Turn()
    async for chunk in chunks:
        await turn.pause()
        if len(chunk) < PER_PIECE:
            allowance.spend(PER_CHUNK)
        yield chunk


def _body(chunks: AsyncGenerator[bytes], coding: str) -> AsyncGenerator[bytes]:
    return chunks if coding.lower() in ("", "identity") else decompressed(chunks, coding)


def _is_followed(method: str, status: int, url: str, target: str) -> bool:
    """True if the same request may go to `target`: it keeps its method, and does not leave its origin."""
    here, there = urlsplit(url), urlsplit(target)
    if (method != "GET" and status not in _SAME_METHOD) or (
        "@" in there.netloc and there.netloc.rpartition("@")[0] != here.netloc.rpartition("@")[0]
    ):
        return False
    upgraded = (here.scheme, here.port, there.scheme, there.port) == ("http", None, "https", None)
    return here.hostname == there.hostname and (upgraded or _origin(here) == _origin(there))


def _wired(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    wire: dict[bytes, bytes] = {}
    for name, value in headers.items():
        try:
            wire[name.lower().encode("ascii")] = value.encode("latin-1")
        except UnicodeEncodeError:
            raise ValueError(
                f"HTTP cannot carry the characters of the header {in_log(name)}; correct it"
            ) from None
    return wire


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
