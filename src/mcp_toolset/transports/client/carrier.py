"""`Carrier`: HTTP requests to the address of one mount, and their replies as a stream of bytes.

Plain connections (`PlainHttp`) carry them where that is enough. TLS, proxies, login flows and cookies are
httpx2's; a server that needs it gets it from then on. A redirect is followed within the origin of the mount
alone, where its headers and credentials are meant for.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
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
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.backpressure import PER_CHUNK, PER_PIECE, Allowance
from mcp_toolset.transports.client.credentials import Credentials
from mcp_toolset.transports.client.plain_http import (
    CONNECT_TIMEOUT,
    FAULTS,
    KEPT_OPEN,
    MAX_READ,
    Headers,
    PlainHttp,
    Socket,
)

if TYPE_CHECKING:
    import httpx2


CODINGS: Final = "gzip, deflate"
"""What is offered to servers, as the header `accept-encoding`."""

_PIECE: Final = 64 * 1024
_SHOWN: Final = 40
"""Characters of a coding that is not read which its error repeats."""

_GZIP: Final = 31
_MEMBER: Final = b"\x1f"
_WITH_HEADER: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": 15}


async def decompressed(chunks: AsyncGenerator[bytes], coding: str) -> AsyncGenerator[bytes]:
    """A body that is compressed with `coding`, as in the header `content-encoding`."""
    unpacker: Any = None
    turn = Turn()
    async with aclosing(chunks):
        async for chunk in chunks:
            is_full = True
            # A full piece may not be all of what was taken in.
            while chunk or is_full:
                # A body of gzip may have several members, each with a beginning and an end (RFC 1952).
                if unpacker is None or (unpacker.eof and chunk.startswith(_MEMBER) and _is_gzip(coding)):
                    unpacker = _unpacker(coding, chunk)
                elif unpacker.eof and chunk:
                    raise httpcore2.RemoteProtocolError("the body goes on after the end of its compression")
                try:
                    piece = unpacker.decompress(chunk, _PIECE)
                except zlib.error as fault:
                    raise httpcore2.RemoteProtocolError(
                        f"the body is not {_shown(coding)}: {fault}"
                    ) from None
                chunk = unpacker.unconsumed_tail or unpacker.unused_data
                is_full = len(piece) == _PIECE
                await turn.pause()
                if piece:
                    yield piece
    if unpacker is not None and not unpacker.eof:
        raise httpcore2.RemoteProtocolError("the body breaks off within its compression")


def _shown(coding: str) -> str:
    return in_log(coding if len(coding) <= _SHOWN else f"{coding[:_SHOWN]}…")


def _is_gzip(coding: str) -> bool:
    return _WITH_HEADER.get(coding.strip().lower()) == _GZIP


def _unpacker(coding: str, begin: bytes) -> Any:
    bits = _WITH_HEADER.get(coding.strip().lower())
    if bits is None:
        told = f"the body is compressed with {_shown(coding)}; only gzip and deflate are read"
        raise httpcore2.RemoteProtocolError(told)
    # Some servers send "deflate" without the header of zlib, whose first byte names method 8.
    return zlib.decompressobj(-15 if bits == 15 and begin[0] & 15 != 8 else bits)


MAX_REDIRECTS: Final = 20
MAX_REFUSALS: Final = 4
"""Refusals of one request that are answered: by newer tokens, renewed ones, a login, one for more scopes."""

MAX_COOKIES: Final = 50
MAX_COOKIES_SIZE: Final = 8 * 1024
"""Cookies that are kept of one server, and the characters of all of them: servers read no longer heads.

Of one response no more are looked at.
"""

MAX_COOKIE: Final = 4096
"""Characters of a cookie with its attributes; a longer one is not looked at."""

READ_AWAY: Final = 1.0
"""Seconds that the end of a reply is waited for of which nothing more is wanted."""

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
    """The answer to one request, whose body is read as it comes."""

    status: int

    def header(self, name: str) -> str: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body, decompressed; asked for once more, what is left of it."""
        ...

    async def aclose(self) -> None:
        """Let go of the connection; it is kept if the body was read to its end."""


class PlainReply:
    """A reply over a plain connection."""

    __slots__ = ("_chunks", "_connection", "_headers", "_http", "_response", "status")

    def __init__(self, response: httpcore2.Response, connection: Socket, http: PlainHttp) -> None:
        self.status = response.status
        self._headers: dict[bytes, bytes] = {}
        for raw, value in response.headers:
            name = raw.lower()
            # Of a header that is there twice neither line is left out (RFC 9110, 5.3), as with httpx2.
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
    """A reply that httpx2 has brought."""

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


class FewCookies(CookieJar):
    """Cookies of one mounted server, as many as browsers keep, that a request can carry."""

    def make_cookies(self, response: Any, request: Any) -> Sequence[Cookie]:
        short = [line for line in response.info().get_all("set-cookie", ()) if len(line) <= MAX_COOKIE]
        headers = Message()
        for line in short[:MAX_COOKIES]:
            headers["set-cookie"] = line
        return super().make_cookies(SimpleNamespace(info=lambda: headers), request)  # pyright: ignore[reportArgumentType]

    def set_cookie(self, cookie: Cookie) -> None:
        """Keep a cookie, unless it is too big, one too many, or cannot be sent back."""
        pair = f"{cookie.name}={cookie.value or ''}"
        others = [len(one.name) + len(one.value or "") for one in self if _place(one) != _place(cookie)]
        fits = len(others) < MAX_COOKIES and sum(others) + len(pair) <= MAX_COOKIES_SIZE
        if fits and pair.isascii() and pair.isprintable():
            super().set_cookie(cookie)


def _place(cookie: Cookie) -> tuple[str, str, str]:
    return cookie.domain, cookie.path, cookie.name


class Carrier:
    """Sends the requests of one mount.

    Attributes:
        faults: What a request, or reading a reply, fails with on its way.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        auth: httpx2.Auth | None = None,
        credentials: Credentials | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        """Send to `url`, each request with `headers` and with the credentials of `auth` or `credentials`.

        `refusal` says to which addresses of the host nothing may be sent.
        """
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self.faults: tuple[type[Exception], ...] = FAULTS
        self.allowance = Allowance()
        self._url = url
        self.sends_credentials = bool(auth or credentials) or any(
            name.lower() == "authorization" for name in headers
        )
        self._auth = auth
        self._credentials = credentials
        if credentials is not None:
            self.faults = (*FAULTS, UpstreamError)
        self._given = _wired(headers)
        self._common = _wired({"host": parts.netloc}) | _OFFERED | _AGENT | self._given
        self._library: httpx2.AsyncClient | None = None
        is_plain = auth is None and PlainHttp.takes(url) and not _PROXIED & getproxies().keys()
        self._plain = PlainHttp(url, self.allowance, refusal) if is_plain else None
        # With TLS the server proves that it is the one that is meant; a login flow asks other servers too.
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
            return await self._authorized(self._credentials, method, headers, body, url)
        target = url or self._url
        for _ in range(MAX_REDIRECTS):
            reply = await self._sent(method, target, headers, body)
            followed = redirect_of(reply, target)
            if followed is None or not _is_followed(method, reply.status, target, followed):
                return reply
            await read_away(reply)
            target = followed
        return await self._sent(method, target, headers, body)

    async def _authorized(
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
                await let_go(reply)
                raise
            await read_away(reply)
        raise AssertionError("the last refusal is returned")

    async def aclose(self) -> None:
        if self._plain is not None:
            self._plain.close()
        if self._library is not None:
            await self._library.aclose()

    def why(self, fault: Exception) -> str:
        """Why a request failed; whether it was sent comes first."""
        kind = type(fault).__name__
        told = f"{kind}: {fault}" if str(fault) else kind
        return f"{NOT_SENT if kind in _NOT_REACHED else FAILED_ON_ITS_WAY}: {told}"

    async def _sent(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        wire = {name.lower().encode(): value.encode("latin-1", "replace") for name, value in headers.items()}
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
        if reply.header("set-cookie"):
            self._keep_cookies(method, url, response.headers)
        return reply

    def _keep_cookies(self, method: str, url: str, headers: Headers) -> None:
        client = self._client()
        from httpx2 import Request, Response

        client.cookies.extract_cookies(Response(200, headers=headers, request=Request(method, url)))
        if client.cookies and self._plain is not None:
            self._plain.close()
            self._plain = None

    def _client(self) -> httpx2.AsyncClient:
        if self._library is None:
            import httpx2

            limits = httpx2.Limits(max_connections=None, keepalive_expiry=KEPT_OPEN)
            ways: dict[str, Any] = {}
            self.faults = (*self.faults, httpx2.RequestError, httpx2.InvalidURL)
            try:
                if self._refusal is not None:
                    from mcp_toolset.transports.client.guarded import GuardedTransport, proxies

                    ways = {"transport": GuardedTransport(self._refusal, limits), "mounts": proxies(limits)}
                self._library = httpx2.AsyncClient(
                    headers=list((_OFFERED | self._given).items()),
                    cookies=FewCookies(),
                    auth=self._auth,
                    timeout=httpx2.Timeout(CONNECT_TIMEOUT, read=None),
                    # How many calls are in flight at once is for the connection to limit.
                    limits=limits,
                    **ways,
                )
            # What httpx2 says of a proxy that it does not speak to.
            except (ImportError, ValueError) as fault:
                raise UpstreamError(self.host, _PROXIES) from fault
        return self._library


def is_stream(reply: Reply) -> bool:
    return reply.header("content-type").lower().startswith(EVENTS)


async def read_away(reply: Reply) -> None:
    """Read the unwanted rest of a body, if it is short, so that the connection can be used again."""
    size = 0
    try:
        with anyio.move_on_after(READ_AWAY):
            async for chunk in reply.chunks():
                size += len(chunk)
                if size > MAX_READ:
                    break
    finally:
        await let_go(reply)


async def let_go(reply: Reply) -> None:
    """Close what is not read to its end, whatever the task at hand is ended by."""
    with anyio.CancelScope(shield=True):
        await reply.aclose()


def redirect_of(reply: Reply, url: str) -> str | None:
    location = reply.header("location") if reply.status in _REDIRECTS else ""
    if not location:
        return None
    try:
        target = urljoin(url, location)
        _origin(urlsplit(target))
    # Brackets around what is no address, or a port that is none.
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
            told = in_log(name)
            raise ValueError(f"HTTP cannot carry the characters of the header {told}; correct it") from None
    return wire


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
