"""`Carrier`: HTTP requests to the address of one mount, and their replies as a stream of bytes.

Plain connections (`PlainHttp`) carry them where that is enough. TLS, proxies, login flows and cookies are
httpx2's; a server that needs it gets it from then on. A redirect is followed within the origin of the mount
alone, where its headers and credentials are meant for.
"""

from __future__ import annotations

import asyncio
import logging
import re
import select
import zlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from email.message import Message
from http.cookiejar import Cookie, CookieJar
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
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
from mcp_toolset.transports.allowance import PER_CHUNK, PER_INTERIM, PER_PIECE, Allowance, FloodError

if TYPE_CHECKING:
    import httpx2


class Credentials(Protocol):
    """The credentials for one mounted server."""

    async def header(self, caller: Identity | None) -> str | None: ...

    async def challenged(
        self, status: int, challenge: str, used: str | None, caller: Identity | None
    ) -> bool:
        """Take a refusal; returns whether the request is to be sent again, with another header."""
        ...

    async def accepted(self, used: str | None) -> None:
        """Take note that the server has taken a request that it had refused with other credentials."""


class TokenSource(Credentials, Protocol):
    """The credentials for one mounted server, and what becomes of them elsewhere."""

    async def changed(self) -> None: ...

    async def withdrawn(self) -> None:
        """Return once the credentials in use must not be used any more, as there was a logout."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must not be shown: those in use, and those that were used until lately."""
        ...


KEPT_OPEN: Final = 4.0
"""Seconds that an idle HTTP connection is kept: servers close theirs after 5 (uvicorn, Node). A request that
meets that moment is lost."""

CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect to, and to write to, an HTTP upstream. Reading has no limit of its own: calls
have their deadlines, and a stream of changes may be silent for days."""

AHEAD: Final = 16 * 1024
"""Bytes of a response that are received at first. Each time that it is read on, twice as many may come."""

MAX_READ: Final = 256 * 1024
"""Bytes that are received at once at most, and wait to be read before the server is held back."""

_NOTHING: Final = memoryview(b"")


_AT_ONCE: Final = 16
"""Parts of responses that are read before others may have their turn."""


class Exchanges(httpcore2.AsyncHTTP11Connection):
    """The requests and responses of one connection."""

    def __init__(self, stream: Socket, origin: httpcore2.Origin, allowance: Allowance) -> None:
        super().__init__(origin, stream, KEPT_OPEN)
        self._allowance = allowance
        self._turn, self._parts = Turn(), 0

    async def _receive_event(self, timeout: float | None = None) -> Any:
        self._parts += 1
        if not self._parts % _AT_ONCE:
            await self._turn.pause()
        event: Any = await super()._receive_event(timeout)
        data = getattr(event, "data", None)
        if data is not None and len(data) < PER_PIECE:
            self._allowance.spend(PER_CHUNK)
        elif getattr(event, "status_code", 200) < 200:
            self._allowance.spend(PER_INTERIM)
        return event

    @property
    def has_excess(self) -> bool:
        """True if bytes have come after the end of the response, which no request has asked for."""
        return bool(self._h11_state.trailing_data[0])


class Socket(asyncio.BufferedProtocol, httpcore2.AsyncNetworkStream):
    """One TCP connection, as a stream for httpcore2; what is written goes out with the next read."""

    def __init__(self, origin: httpcore2.Origin, allowance: Allowance) -> None:
        self.http = Exchanges(self, origin, allowance)
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._buffer = _NOTHING
        self._room = AHEAD
        self._chunks: list[memoryview | bytes] = []
        self._out: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended = self._full = self._paused = False
        self._fault: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = memoryview(bytearray(self._room))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Keep what has come, up to a size; the next read lets more come, and more at once."""
        part, self._buffer = self._buffer[:nbytes], _NOTHING
        # Little is copied, so that it does not hold a big buffer.
        self._chunks.append(part if 2 * nbytes > self._room else part.tobytes())
        self._size += nbytes
        if self._size > MAX_READ or self._size >= self._room < MAX_READ:
            self._room = min(2 * self._room, MAX_READ)
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._full, self._fault = True, False, exc
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._out.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._paused and not self._chunks:
            self._paused = False
            self._transport.resume_reading()
        if self._out:
            await self._flush()
        while not self._chunks:
            if self._fault is not None:
                raise httpcore2.ReadError(str(self._fault))
            if self._ended:
                return b""
            await self._woken()
        # What it is read for, the parser of httpcore2, takes any bytes-like object.
        data = cast("bytes", self._chunks[0]) if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        return data

    async def aclose(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._ended = True
        self._transport.abort()

    def get_extra_info(self, info: str) -> Any:
        """True if an idle connection is one no more; nothing else is asked here."""
        return (bool(self._chunks) or self._ended or self._has_input()) if info == "is_readable" else None

    def _has_input(self) -> bool:
        """True if the loop will find something to read, such as the end, that it has not looked for yet."""
        number = self._transport.get_extra_info("socket").fileno()
        if not hasattr(select, "poll"):
            return bool(select.select([number], [], [], 0)[0])
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))

    async def _flush(self) -> None:
        if self._ended:
            raise httpcore2.ConnectError("the server has closed the connection")
        self._room = AHEAD
        self._transport.write(b"".join(self._out))
        self._out.clear()
        if self._full:
            with anyio.move_on_after(CONNECT_TIMEOUT) as scope:
                # A server may answer, or go away, before it has read all.
                while self._full and not self._chunks and not self._ended:
                    await self._woken()
            if scope.cancelled_caught:
                raise httpcore2.WriteTimeout(f"nothing could be written for {CONNECT_TIMEOUT:g} s")

    async def _woken(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


MAX_IDLE: Final = 256
"""Idle connections that are kept."""

FAULTS: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, FloodError)
"""Errors of a request over such a connection."""

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
        self._allowance, self._refusal = allowance, refusal
        self._urls = {url: httpcore2.URL(url)}
        self._origin = self._urls[url].origin
        self._idle: deque[Socket] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @staticmethod
    def takes(url: str) -> bool:
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
        request = httpcore2.Request(method, self._urls[url], headers=headers, content=body)
        connection = self._kept()
        if connection is not None:
            # Without a connection after all, nothing has been sent.
            with suppress(httpcore2.ConnectError):
                return await _response(connection, request), connection
        connection = await self._connect()
        return await _response(connection, request), connection

    def give_back(self, connection: Socket) -> None:
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


CODINGS: Final = "gzip, deflate"
"""The codings that are offered to servers, as the header `accept-encoding`."""

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
    """Cookies of one mounted server, as many as browsers keep, that a request can carry.

    Attributes:
        keeps: False if requests of several callers, each with credentials of its own, pass by here.
    """

    keeps = True

    def withdraw(self) -> None:
        """Forget the cookies of one caller, before the first request of another one; keep no more."""
        self.keeps = False
        self.clear()

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
        fits = self.keeps and len(others) < MAX_COOKIES and sum(others) + len(pair) <= MAX_COOKIES_SIZE
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
        self._cookies = FewCookies()
        self._whose: bytes | None = None  # the credentials that were passed on with the first request
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
        if self._credentials is None and self._cookies.keeps:
            whose = wire.get(b"authorization", b"")
            if self._whose is None:
                self._whose = whose
            elif whose != self._whose:
                self._cookies.withdraw()
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
        if self._cookies.keeps and reply.header("set-cookie"):
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
                from mcp_toolset.transports.guarded import GuardedTransport, proxies, tls

                if self._refusal is None:
                    ways = {"verify": tls()}
                else:
                    ways = {"transport": GuardedTransport(self._refusal, limits), "mounts": proxies(limits)}
                self._library = httpx2.AsyncClient(
                    headers=list((_OFFERED | self._given).items()),
                    cookies=self._cookies,
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
