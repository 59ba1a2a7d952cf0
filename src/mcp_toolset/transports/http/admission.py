"""`Admission`: what stands before the endpoint of streamable HTTP: bodies in UTF-8, and a cap on sessions.

A legacy session costs some 40 KB and lives for half an hour, and any request can open one. When an address,
or all of them, have as many as they may, the session that has been idle longest is ended for a new one.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_toolset.protocol.eras import SESSION
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, PARSE_ERROR
from mcp_toolset.sdk.http_sessions import SessionManager, end_session, idle_since, open_sessions
from mcp_toolset.transports.http.headers import LEGACY, VERSION, header
from mcp_toolset.transports.http.legacy_sessions import LegacySessions
from mcp_toolset.transports.http.limits import HttpLimits, peer_of

_OTHER_BYTES: Final = (b"\xff\xfe", b"\xfe\xff")
_NOT_UTF_8: Final = (
    "Parse error: the body is not in UTF-8 (it looks like UTF-16 or UTF-32); send JSON in UTF-8"
)


class Admission:
    """The endpoint, behind the checks that need the request's head and the first bytes of its body.

    Attributes:
        app: What it stands before.
    """

    def __init__(
        self, app: ASGIApp, manager: SessionManager, sessions: LegacySessions, limits: HttpLimits
    ) -> None:
        """Stand before `app`."""
        self.app = app
        self._open = OpenSessions(manager, sessions, limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["method"] == "POST":
            first = await receive()
            if _is_wide(first.get("body", b"")):
                return await _refused(400, PARSE_ERROR, _NOT_UTF_8)(scope, receive, send)
            receive = _Again(first, receive)
            headers = scope["headers"]
            if header(headers, SESSION) is None and header(headers, VERSION) in LEGACY:
                return await self._opening(scope, receive, send)
        await self.app(scope, receive, send)

    async def _opening(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = peer_of(scope.get("client"))
        refused = await self._open.admit(peer)
        if refused is not None:
            return await _refused(503, INTERNAL_ERROR, refused)(scope, receive, send)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                name = header(message.get("headers", []), SESSION)
                if name is not None:
                    self._open.note(name.decode("latin-1"), peer)
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            self._open.opened(peer)


class OpenSessions:
    """The legacy sessions of one endpoint, by the address that opened them."""

    def __init__(self, manager: SessionManager, quick: LegacySessions, limits: HttpLimits) -> None:
        """Count the sessions that `manager` keeps; `quick` knows of calls that it does not."""
        self._manager = manager
        self._quick = quick
        self._limits = limits
        self._peers: dict[str, str] = {}
        self._opening: Counter[str] = Counter()

    async def admit(self, peer: str) -> str | None:
        """Make room for one more; why there is none, if there is none."""
        limits = self._limits
        if len(self._peers) >= min(limits.sessions, limits.sessions_per_peer):
            self._forget_ended()
        own = [name for name, other in self._peers.items() if other == peer]
        if len(own) + self._opening[peer] >= limits.sessions_per_peer and not await self._end_one(own):
            return _refusal(f"clients at {peer} have", "sessions_per_peer", limits.sessions_per_peer)
        everyone = [*self._peers]
        if len(everyone) + self._opening.total() >= limits.sessions and not await self._end_one(everyone):
            return _refusal("clients have", "sessions", limits.sessions)
        self._opening[peer] += 1
        return None

    def opened(self, peer: str) -> None:
        """Say that an opening request is answered."""
        self._opening[peer] -= 1
        if not self._opening[peer]:
            del self._opening[peer]

    def note(self, name: str, peer: str) -> None:
        """Count a session."""
        self._peers[name] = peer

    def _forget_ended(self) -> None:
        still = open_sessions(self._manager)
        self._peers = {name: peer for name, peer in self._peers.items() if name in still}

    async def _end_one(self, names: list[str]) -> bool:
        """End the session that has been idle longest; `False` if none is idle."""
        since = {name: idle_since(self._manager, name) for name in names if not self._quick.is_busy(name)}
        idle = {name: time for name, time in since.items() if time is not None}
        if not idle:
            return False
        oldest = min(idle, key=idle.__getitem__)
        del self._peers[oldest]
        await end_session(self._manager, oldest)
        return True


class _Again:
    """A request of which the first part was read."""

    __slots__ = ("_first", "_receive")

    def __init__(self, first: Message, receive: Receive) -> None:
        self._first: Message | None = first
        self._receive = receive

    async def __call__(self) -> Message:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await self._receive()


def _is_wide(start: bytes) -> bool:
    """Whether a body is in UTF-16 or UTF-32: JSON begins with a character of ASCII, and never with NUL."""
    return start[:2] in _OTHER_BYTES or b"\0" in start[:4]


def _refusal(who: str, name: str, limit: int) -> str:
    return f"{who} {limit} sessions open, all of them in use ({name} is {limit}); end one, or try again later"


def _refused(status: int, code: int, message: str) -> Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return JSONResponse(error, status)
