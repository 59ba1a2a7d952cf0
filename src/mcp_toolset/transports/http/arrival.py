"""Arrival of a request over HTTP: the parser that reads it, and time limits for its head and its body."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, unquote

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http import h11_impl
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.http.h11_impl import H11Protocol

from mcp_toolset._numbers import require_positive
from mcp_toolset.concurrency.tasks import new_scope
from mcp_toolset.context.connection import identity_of
from mcp_toolset.errors import ToolsetError, sole
from mcp_toolset.security.authenticator import Authenticator, Refusal
from mcp_toolset.security.egress import is_this_machine
from mcp_toolset.security.facts import who_fields
from mcp_toolset.tools.call import Identity
from mcp_toolset.transports.http.messages import JSON, METHOD, Head, Headers, reply

_LATE: Final = b"The request did not arrive in time"
_STOPPING: Final = b"The server stops"
_AMBIGUOUS: Final = b"A request has Transfer-Encoding or Content-Length, not both"

# Python before 3.11.4 takes a group that is repeated with `++` for one that fits anything.
_HEAD: Final = re.compile(
    rb"(?:GET|POST|DELETE) /(?!/)[\w/.?&=~-]* HTTP/1\.1\r\n"
    rb"(?:(?!(?i:upgrade|transfer-encoding|proxy-connection):)[\w-]+: ?(?:[!-~](?:[ -~]*[!-~])?)?\r\n)+\r\n"
)
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([^/]*)(.*)")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ?(\d{1,10})\r\n")
_LONGEST_HEAD: Final = 16 * 1024
_NEED_DATA: Final = h11_impl.h11.NEED_DATA  # pyright: ignore[reportPrivateImportUsage]
MAX_ARRIVING: Final = 64 * 1024 * 1024
"""Bytes of bodies that have not arrived as a whole; beyond it the one that takes longest is given up."""

_AT_ONCE: Final = 50
"""Parts of requests, such as chunks of one byte, that h11 reads of one connection at a time."""


def unambiguous(app: ASGIApp) -> ASGIApp:
    """An application that gets no request that a proxy before it may have read in another way (RFC 9112)."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request whose body has two lengths; take a target that is a whole URL by its path."""
        if scope["type"] == "http":
            fields = dict(scope["headers"])
            if b"transfer-encoding" in fields and b"content-length" in fields:
                # What one of the two leaves over would be read as the next request.
                return await reply(send, 400, _AMBIGUOUS, headers=[(b"connection", b"close")])
            if "://" in scope["path"]:
                scope = _by_path(scope)
        await app(scope, receive, send)

    return checked


def _by_path(scope: Scope) -> Scope:
    """A request whose target is a whole URL: its authority counts, whatever `Host` says (RFC 9112, 3.2.2)."""
    root: str = scope.get("root_path", "")
    target: bytes = scope.get("raw_path") or b""
    match = _ABSOLUTE.fullmatch(target.removeprefix(root.encode()))
    if match is None:
        return scope
    authority, path = match[1], match[2] or b"/"
    headers = [(b"host", authority), *(field for field in scope["headers"] if field[0] != b"host")]
    plain = {"path": root + unquote(path.decode("latin-1")), "raw_path": root.encode() + path}
    return {**scope, **plain, "headers": headers}


class Arrivals:
    """The requests whose bodies have not arrived: one timer and one budget watch over all of them."""

    def __init__(self, timeout: float) -> None:
        require_positive("an HTTP application", request_timeout=timeout)
        self._seconds = timeout
        self._requests: dict[ArrivingRequest, float] = {}
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, request: ArrivingRequest) -> None:
        self._requests[request] = asyncio.get_running_loop().time() + self._seconds
        if self._timer is None:
            self._arm()

    def end(self, request: ArrivingRequest) -> None:
        self._requests.pop(request, None)
        self._size -= request.size
        request.size = 0

    def came(self, request: ArrivingRequest, size: int) -> None:
        request.size += size
        self._size += size
        for oldest in [each for each in self._requests if each.size] if self._size > MAX_ARRIVING else ():
            self._give_up(oldest)
            if self._size <= MAX_ARRIVING:
                break

    def _give_up(self, request: ArrivingRequest) -> None:
        self.end(request)
        request.scope.cancel()

    def _arm(self) -> None:
        # The oldest request is the first.
        until = next(iter(self._requests.values()), None)
        if until is not None:
            self._timer = asyncio.get_running_loop().call_at(until, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for request, until in list(self._requests.items()):
            if until > now:
                break
            self._give_up(request)
        self._arm()


class ArrivingRequest:
    """One request and its response, and the scope that it runs in."""

    __slots__ = ("_arrivals", "_receive", "_send", "has_arrived", "scope", "size", "started", "unfinished")

    def __init__(self, *, has_body: bool, receive: Receive, send: Send, arrivals: Arrivals) -> None:
        self._receive = receive
        self._send = send
        self._arrivals = arrivals
        self.scope = new_scope()  # cancelled when the body is late, or when serving ends
        self.started = False
        self.unfinished = False
        self.size = 0
        self.has_arrived = not has_body  # whether the body is there, or the request is answered without it
        if not self.has_arrived:
            arrivals.begin(self)

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._arrived()
        elif not self.has_arrived:
            self._arrivals.came(self, len(message.get("body", b"")))
        return message

    async def send(self, message: Message) -> None:
        if not self.started:
            self.started = True
            self._arrived()
        self.unfinished = message["type"] != "http.response.body" or message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        """Complete the response of a request whose scope was cancelled: it is late, or serving ends."""
        if self.unfinished:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not self.started:
            # Who reads 408 may send the request again, which has arrived, and perhaps had its effect.
            status, text = (503, _STOPPING) if self.has_arrived else (408, _LATE)
            await reply(self._send, status, text, b"text/plain", [(b"connection", b"close")])

    def forget(self) -> None:
        if not self.has_arrived:
            self._arrivals.end(self)

    def _arrived(self) -> None:
        if not self.has_arrived:
            self.has_arrived = True
            self._arrivals.end(self)


def most_connections() -> int:
    """The limit of open connections: the other file descriptors are for files and mounted servers."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if most == resource.RLIM_INFINITY else most * 5 // 8


def watching_heads(seconds: float, base: type[H11Protocol]) -> type[H11Protocol]:
    """`base`, a protocol of uvicorn, that ends a connection whose next request has no whole head in time."""

    class HeadInTime(base):
        cycle: Any
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            cycle = self.cycle
            if cycle is None or cycle.response_complete:
                self._watch()
            else:
                self._unwatch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            super().connection_lost(exc)

        def _watch(self) -> None:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(seconds, self.transport.abort)

        def _unwatch(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return HeadInTime


def leaving_room(base: type[H11Protocol], most: int, known: dict[Any, None]) -> type[H11Protocol]:
    """`base`, of which one client cannot take all connections.

    When more than `most` are open, the one is ended that has been without a whole request for the longest
    time. `known` has all that are open, in the order in which they were last answered, or else made.
    """

    class LeavingRoom(base):
        cycle: Any

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            known[self] = None
            if len(known) > most:
                # It may be this one.
                idle = next(each for each in known if each.is_idle)
                del known[idle]
                idle.transport.abort()

        @property
        def is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self in known:
                del known[self]
                known[self] = None

        def connection_lost(self, exc: Exception | None) -> None:
            known.pop(self, None)
            super().connection_lost(exc)

    return LeavingRoom


def taking_turns(base: type[H11Protocol]) -> type[H11Protocol]:
    """`base`, which leaves the loop to others within a body of many chunks: one read can have 40,000."""

    class InTurns(base):
        _left = _AT_ONCE
        cycle: Any
        _unwatch: Any
        _is_due = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            read = self.conn.next_event

            def next_event() -> Any:
                self._left -= 1
                return _NEED_DATA if self._left < 0 else read()

            self.conn.next_event = next_event

        def handle_events(self) -> None:
            if self._is_due:
                return
            self._left = _AT_ONCE
            super().handle_events()
            if self._left < 0:
                self._is_due = True
                self.transport.pause_reading()
                self.loop.call_soon(self._read_on)

        def _read_on(self) -> None:
            self._is_due = False
            if self.transport.is_closing():
                return
            self.handle_events()
            if self.cycle is not None and not self.cycle.response_complete:
                self._unwatch()
            if not self._is_due and not self.flow.read_paused:
                self.transport.resume_reading()

    return InTurns


def reading(seconds: float, fastest: Any = AutoHTTPProtocol) -> type[asyncio.Protocol]:
    """The protocol for uvicorn, which ends a connection whose head is not there after `seconds`.

    `fastest` is uvicorn's choice: httptools where it is installed, else h11. uvicorn with httptools takes a
    head without end, loses the body of a request that offers another protocol, as Java's client offers
    HTTP/2, and does not tell a call that its client has left while another request waits behind it.
    So httptools reads one whole request at a time. The first of another kind makes h11 read the connection.
    """
    most, known = most_connections(), dict[Any, None]()
    by_h11 = leaving_room(taking_turns(watching_heads(seconds, H11Protocol)), most, known)
    if fastest is H11Protocol:
        return by_h11
    # Both classes have the members that are used here.
    return _reading_plain(leaving_room(watching_heads(seconds, fastest), most, known), by_h11)


def size_of_plain(data: bytes) -> int | None:
    """The size of the request that `data` begins with, if its head is whole and read alike by both."""
    match = _HEAD.match(data, 0, _LONGEST_HEAD)
    if match is None:
        return None
    head = match[0].lower()
    length, named = _LENGTH.search(head), head.count(b"\r\ncontent-length:")
    if head.count(b"\r\nhost:") != 1 or named != (length is not None):
        return None
    return len(head) + (int(length[1]) if length else 0)


def _reading_plain(fast: type[H11Protocol], by_h11: type[H11Protocol]) -> type[H11Protocol]:
    class ReadingPlain(fast):
        cycle: Any
        _missing = 0
        """Bytes of the request that have not arrived."""
        _waiting = b""
        """Bytes that arrived behind a request that is not answered."""

        def data_received(self, data: bytes) -> None:
            if not self._missing:
                if self.cycle is not None and not self.cycle.response_complete:
                    self._waiting += data
                    if len(self._waiting) > _LONGEST_HEAD:
                        self.flow.pause_reading()
                    return
                size = size_of_plain(data)
                if size is None:
                    self._hand_over(data)
                    return
                self._missing = size
            now, behind = data[: self._missing], data[self._missing :]
            self._missing -= len(now)
            super().data_received(now)
            if behind:
                self.data_received(behind)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            waiting, self._waiting = self._waiting, b""
            if waiting and not self.transport.is_closing():
                self.data_received(waiting)

        def _hand_over(self, data: bytes) -> None:
            other = by_h11(self.config, self.server_state, self.app_state, self.loop)
            self.transport.set_protocol(other)
            # It ends the timers of this one, too.
            super().connection_lost(RuntimeError("h11 reads on"))
            self._unset_keepalive_if_required()
            other.connection_made(self.transport)
            other.data_received(data)

    return ReadingPlain


METADATA_PATH: Final = "/.well-known/oauth-protected-resource"

_MET: Final = 4096
"""Identities of verified tokens that are remembered, so that each is one login."""

_MCP: Final = "/mcp"
_SSE: Final = "/sse"
_CREDENTIALS: Final = b"authorization"
_LISTEN: Final = b"subscriptions/listen"
_RETRY: Final = b"5"
_QUERY: Final = Refusal(400, "invalid_request", "a token is sent in the Authorization header, never in a URL")
_REPEATED: Final = Refusal(400, "invalid_request", "the request has more than one Authorization header")
_OPEN: Final[Headers] = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"*"),
]

Current = Callable[[], Authenticator | None]
NoteForeign = Callable[[Scope, str], None]
"""Is told of a request with the id of a session that its caller has not open."""


class Told(Protocol):
    """A callable that is told of logins and refusals, and must not wait."""

    def __call__(self, event: str, /, **facts: Any) -> object: ...


class AuthenticationGate:
    """Lets requests pass whose callers are known, and refuses all others before their bodies are read."""

    def __init__(self, current: Current, told: Told | None = None, views: Collection[str] = ()) -> None:
        """Ask `current` at each request, as a configuration may be reloaded; tell `told` who comes.

        Addresses that begin as in `views` have the doors NAME/mcp and NAME/sse.
        """
        self._current = current
        self._views = views
        self._told = told
        self._met: OrderedDict[int, Identity] = OrderedDict()

    @property
    def is_on(self) -> bool:
        return self._current() is not None

    def admits(self, scope: Scope, head: Head) -> bool:
        """True if a request may pass at once: every caller may call, or its token is known; no streams."""
        auth = self._current()
        if auth is None:
            return True
        credentials = head.fields.get(_CREDENTIALS)
        if credentials is None or head.repeats or scope.get("query_string") or _is_stream(scope, head):
            return False
        caller = auth.recall(credentials)
        if caller is None or (self._told is not None and id(caller) not in self._met):
            return False
        scope["user"] = caller
        return True

    async def take(
        self, request: ArrivingRequest, scope: Scope, head: Head, app: Callable[[], Awaitable[None]]
    ) -> None:
        """Pass a request to `app`, with its caller in the scope; or refuse the request.

        An open stream ends when the caller has no valid token any more.
        """
        auth = self._current()
        if auth is None:
            return await app()
        credentials = head.fields.get(_CREDENTIALS)
        found = _misplaced(scope, head) or await auth.identify(credentials)
        if isinstance(found, Refusal):
            self.note(scope, found.status, found.error, found.description)
            return await _refuse(auth, found, scope, head, request.send, self._views)
        if self._told is not None and id(found) not in self._met:
            self._meet(found, scope, self._told)
        scope["user"] = found
        if credentials is None or not _is_stream(scope, head):
            return await app()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_end_when_refused, auth, credentials, found, request)
                await app()
                group.cancel_scope.cancel()
        except BaseExceptionGroup as fault:
            raise sole(fault) from None

    def note(self, scope: Scope, status: int, error: str | None, reason: str, **facts: Any) -> None:
        """Tell of a request that is refused for who sends it, or from where."""
        if self._told is not None:
            self._told("refused", **_facts(scope), status=status, error=error, reason=reason, **facts)

    def note_foreign_session(self, scope: Scope, session: str) -> None:
        """Tell of a request with the id of a session that its caller has not open."""
        who = identity_of(scope)
        if who is not None:
            reason = "the caller has no open session with this id"
            self.note(scope, 404, "session not found", reason, **who_fields(who), session=session)

    def _meet(self, identity: Identity, scope: Scope, told: Told) -> None:
        """Tell that a new token was verified; the identity is kept, so that its id stays its own."""
        self._met[id(identity)] = identity
        if len(self._met) > _MET:
            self._met.popitem(last=False)
        told(
            "login", **who_fields(identity), issuer=identity.issuer, expires=identity.expires, **_facts(scope)
        )

    async def tell(self, path: str, scope: Scope, head: Head, send: Send) -> bool:
        """Answer a request for the metadata of this server; `False` if there is none at this path."""
        auth = self._current()
        door = path.removeprefix(METADATA_PATH)
        is_door = door in ("", _MCP, _SSE) or (
            door.endswith((_MCP, _SSE)) and door == door_in(door, self._views)
        )
        if auth is None or not auth.authorization_servers or not is_door:
            return False
        if scope["method"] == "OPTIONS":
            await reply(send, 204, headers=_OPEN)
        elif scope["method"] not in ("GET", "HEAD"):
            await reply(send, 405, headers=[(b"allow", b"GET")])
        else:
            base = _base(auth, scope, head)
            named = base + (door or _MCP)
            resource = named if door == _SSE else auth.resource or named
            metadata = {
                "resource": resource,
                "authorization_servers": auth.authorization_servers,
                "bearer_methods_supported": ["header"],
                **({"scopes_supported": auth.required_scopes} if auth.required_scopes else {}),
            }
            await reply(send, 200, json.dumps(metadata).encode(), JSON, _OPEN)
        return True


def _facts(scope: Scope) -> dict[str, Any]:
    client = scope.get("client")
    return {"method": scope["method"], "path": scope["path"], "address": client[0] if client else None}


def check_address(host: str, *, authenticated: bool, insecure: bool) -> None:
    """Check that only known callers can reach a server from other machines."""
    if not (authenticated or insecure or is_this_machine(host)):
        raise ToolsetError(
            f"not listening on {host or 'all addresses'}: without authentication every program that reaches "
            "it could call every tool; say who may call (`auth=…`, `auth` in the section `toolset` of the "
            "configuration, --auth-token-env, or --issuer with --audience), listen on 127.0.0.1, or allow it "
            "with --insecure (`insecure=True`)"
        )


async def _end_when_refused(
    auth: Authenticator, credentials: bytes, identity: Identity, request: ArrivingRequest
) -> None:
    await auth.until_refused(credentials, identity)
    request.scope.cancel()


def _is_stream(scope: Scope, head: Head) -> bool:
    """True if the response stays open for what comes later; a call that has begun is let end."""
    return scope["method"] == "GET" or head.fields.get(METHOD) == _LISTEN


def _misplaced(scope: Scope, head: Head) -> Refusal | None:
    if head.repeats and sum(name == _CREDENTIALS for name, _ in head.all) > 1:
        return _REPEATED
    query: bytes = scope.get("query_string", b"")
    if query:
        named = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        if any(name.strip().lower() == "access_token" for name, _ in named):
            return _QUERY
    return None


async def _refuse(
    auth: Authenticator, refusal: Refusal, scope: Scope, head: Head, send: Send, views: Collection[str]
) -> None:
    error = refusal.error or "unauthorized"
    body = json.dumps({"error": error, "error_description": refusal.description}).encode()
    headers: Headers = [(b"cache-control", b"no-store")]
    if refusal.status == 503:
        headers.append((b"retry-after", _RETRY))
    else:
        headers.append((b"www-authenticate", _challenge(auth, refusal, scope, head, views).encode("latin-1")))
    await reply(send, refusal.status, body, JSON, headers)


def _challenge(
    auth: Authenticator, refusal: Refusal, scope: Scope, head: Head, views: Collection[str]
) -> str:
    parameters: dict[str, str] = {}
    if auth.authorization_servers:
        door = door_in(scope["path"].removeprefix(scope.get("root_path", "")), views)
        parameters["resource_metadata"] = _base(auth, scope, head) + METADATA_PATH + door
    if auth.required_scopes:
        parameters["scope"] = " ".join(auth.required_scopes)
    if refusal.error:
        parameters |= {"error": refusal.error, "error_description": refusal.description}
    parameters = parameters or {"realm": "mcp"}
    return "Bearer " + ", ".join(f'{name}="{_quotable(text)}"' for name, text in parameters.items())


def door_in(path: str, views: Collection[str]) -> str:
    """The door of a path: that of a view, if the path begins as addresses of views do."""
    own = _SSE if path.endswith(_SSE) else _MCP
    start = next((view for view in views if path.startswith(view)), "")
    return f"{start}{path.removeprefix(start).partition('/')[0]}{own}" if start else own


def _quotable(text: str) -> str:
    """The text with characters that a quoted text of a header can hold (RFC 6750, section 3)."""
    return "".join(each if " " <= each <= "~" and each not in '"\\' else "'" for each in text)


def _base(auth: Authenticator, scope: Scope, head: Head) -> str:
    """The URL that this application is reached at, without the path of a transport."""
    if auth.resource:
        return auth.resource.rstrip("/").removesuffix(_MCP)
    host = head.fields.get(b"host", b"").decode("latin-1")
    return f"{scope['scheme']}://{host}{scope.get('root_path', '').rstrip('/')}"
