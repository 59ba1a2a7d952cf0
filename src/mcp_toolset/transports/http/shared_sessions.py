"""`SharedSessions`: legacy sessions that any replica can take, because their id says all about them.

The id of a session is `ID.SEALED`: a random id, and what the client said in its handshake, sealed with keys
that all replicas have and bound to the principal. A replica that does not know a session opens the seal and
goes on with it. The answer to a question is passed on to the replica that asked, the rest of a stream comes
from the replica that has it, and what is said outside of calls is passed on to the replica where the client
listens. A session that was ended is remembered for as long as its id would be good.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import anyio
from starlette.requests import Request
from starlette.types import Send

from mcp_toolset._records import dataclass, replace
from mcp_toolset.context.connection import Answers, RequestContext
from mcp_toolset.errors import CallError, StoreError
from mcp_toolset.protocol.server_machine import INITIALIZED, negotiated_version
from mcp_toolset.transports.http.messages import STREAM, Headers
from mcp_toolset.transports.http.post import SPAN
from mcp_toolset.transports.http.sessions import Home, LegacySession, SessionTable
from mcp_toolset.transports.requests import Incoming

if TYPE_CHECKING:
    from mcp_toolset.shared.state import SharedState

TTL: Final = 86_400.0
"""Seconds for which the id of a session is good; then its client begins a new one."""

MAX_ID: Final = 3_000
"""Characters of an id; many proxies pass on no more than 8,000 of all headers."""

WITHIN: Final = 10.0
"""Seconds that another replica has for an answer."""

TIMEOUT: Final = 5.0
"""Seconds for which another replica waits for the next event of a stream before it answers without one."""

_PURPOSE: Final = "session"
_log = logging.getLogger("mcp_toolset.http")


@dataclass(frozen=True, slots=True)
class Opened:
    """The content of a session id."""

    name: str  # the whole id, as the client sends it
    id: str  # its random part, which tells sessions apart
    version: str
    info: Mapping[str, Any] | None
    capabilities: Mapping[str, Any]


class SharedSessions:
    """The sessions of all replicas, as one replica sees them."""

    def __init__(self, shared: SharedState, answers: Answers, table: SessionTable[LegacySession]) -> None:
        self._shared = shared
        self._answers = answers
        self._table = table
        self._ended = shared.used("session")
        self._known: WeakValueDictionary[str, LegacySession] = WeakValueDictionary()
        for what, handler in self._handlers().items():
            shared.replicas.serve(_method(what), self._served(handler))

    def home(self, opened: Opened, http: Request) -> Home:
        own = self._shared.replicas.own
        return Home(opened.id, f"{own}:", int(own) * SPAN, http, self.say)

    def begun(self, params: Mapping[str, Any], owner: str | None) -> Opened:
        said = _said(params)
        opened = self._sealed(said, owner)
        if len(opened.name) <= MAX_ID:
            return opened
        info = {key: value for key, value in (said.info or {}).items() if key in ("name", "version")}
        capabilities = {key: value for key, value in said.capabilities.items() if key != "experimental"}
        opened = self._sealed(replace(said, info=info, capabilities=capabilities), owner)
        # No known client says so much of itself; what it says is then not known to other replicas.
        nothing = replace(said, info=None, capabilities={})
        return opened if len(opened.name) <= MAX_ID else self._sealed(nothing, owner)

    def keep(self, session: LegacySession) -> None:
        """Let other replicas reach a session for as long as it is open here."""
        self._known[session.connection.session_id or ""] = session

    async def opened(self, name: str, owner: str | None) -> Opened | None:
        id, _, sealed = name.partition(".")
        data = self._shared.keys.open(_PURPOSE, sealed, bound=_bound(id, owner))
        if data is None:
            return None
        said = json.loads(data)
        if time.time() > said["until"] or await self._ended.was_used(id):
            return None
        return Opened(name, id, said["version"], said["info"], said["capabilities"])

    async def adopt(self, session: LegacySession, opened: Opened, http: Request) -> None:
        session.go_on(opened.version, opened.info, opened.capabilities)
        await self._answers.notified(
            RequestContext(INITIALIZED, {}, None, session.connection, Incoming(session), http)
        )
        self.keep(session)

    async def answered(self, session: LegacySession, message: Mapping[str, Any]) -> None:
        replica, colon, _ = str(message.get("id")).partition(":")
        if colon and replica != self._shared.replicas.own:
            await self._told(replica, "answer", session, message)

    async def notified(self, session: LegacySession, message: Mapping[str, Any]) -> None:
        """Pass a notification of a client on to the other replicas, where its call or its stream may be."""
        await self._told("", "notification", session, message)

    async def say(self, session: LegacySession, message: bytes) -> None:
        await self._told("", "say", session, {"line": message.decode()})

    async def end(self, session: LegacySession) -> None:
        try:
            await self._ended.use(session.connection.session_id or "", ttl=TTL)
        except StoreError as fault:
            _log.warning("the end of a session is not known to other replicas: %s", fault)
        await self._told("", "end", session, {})

    async def follow(
        self, session: LegacySession, place: tuple[int, int], send: Send, headers: Headers
    ) -> bool:
        """Answer a `GET` with the rest of a stream that another replica has; whether one has it."""
        name, number = place
        asked = {"session": session.connection.session_id, "log": name, "after": number}
        method, replica, begun = _method("events"), str(name // SPAN), False
        try:
            while True:
                part = await self._shared.replicas.ask(replica, method, asked, within=WITHIN)
                if not begun:
                    head = {"type": "http.response.start", "status": 200, "headers": [*STREAM, *headers]}
                    await send(head)
                    begun = True
                for event in part["events"]:
                    await send({"type": "http.response.body", "body": b64decode(event), "more_body": True})
                if part["ended"]:
                    break
                asked["after"] = part["last"]
        except (CallError, StoreError) as fault:
            _log.warning("the rest of a stream cannot be had from another replica: %s", fault)
        if begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        return begun

    def _handlers(self) -> Mapping[str, Callable[[Mapping[str, Any], LegacySession], Awaitable[Any]]]:
        return {
            "answer": self._take_answer,
            "notification": self._take_notification,
            "say": self._take_line,
            "end": self._take_end,
            "events": self._take_events,
        }

    def _served(self, handler: Callable[[Mapping[str, Any], LegacySession], Awaitable[Any]]) -> Any:
        async def served(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
            session = self._known.get(params["session"])
            return None if session is None else await handler(params, session)

        return served

    async def _take_answer(self, params: Mapping[str, Any], session: LegacySession) -> None:
        session.questions.answered(dict(params["message"]))

    async def _take_notification(self, params: Mapping[str, Any], session: LegacySession) -> None:
        if params["from"] != self._shared.replicas.own:
            await session.notified(params["message"], None)

    async def _take_line(self, params: Mapping[str, Any], session: LegacySession) -> None:
        if params["from"] != self._shared.replicas.own and session.standing.is_open:
            session.standing.say(params["message"]["line"].encode())

    async def _take_end(self, params: Mapping[str, Any], session: LegacySession) -> None:
        self._table.end(session)

    async def _take_events(self, params: Mapping[str, Any], session: LegacySession) -> Mapping[str, Any]:
        """The events of a stream after one; it is waited a little for the first."""
        log, last = session.events.logs.get(params["log"]), params["after"]
        if log is None:
            raise CallError("nothing is kept of the call")
        log.detach()
        if not (events := log.after(last)) and not log.ended:
            with anyio.move_on_after(TIMEOUT):
                await log.news.wait()
            events = log.after(last)
        return {
            "events": [b64encode(event).decode() for _, event in events],
            "last": events[-1][0] if events else last,
            "ended": log.ended,
        }

    async def _told(
        self, replica: str, what: str, session: LegacySession, message: Mapping[str, Any]
    ) -> None:
        told = {
            "session": session.connection.session_id,
            "from": self._shared.replicas.own,
            "message": message,
        }
        try:
            await self._shared.replicas.tell(replica, _method(what), told)
        except (CallError, StoreError) as fault:
            _log.warning("other replicas were not told of %s in a session: %s", what, fault)

    def _sealed(self, said: Opened, owner: str | None) -> Opened:
        facts = {
            "version": said.version,
            "info": said.info,
            "capabilities": said.capabilities,
            "until": time.time() + TTL,
        }
        sealed = self._shared.keys.seal(_PURPOSE, json.dumps(facts).encode(), bound=_bound(said.id, owner))
        return replace(said, name=f"{said.id}.{sealed}")


def _said(params: Mapping[str, Any]) -> Opened:
    version = negotiated_version(params["protocolVersion"])
    return Opened("", secrets.token_hex(16), version, params["clientInfo"], params["capabilities"])


def _bound(id: str, owner: str | None) -> str:
    return json.dumps([id, owner])


def _method(what: str) -> str:
    return f"session.{what}"
