"""`SharedSessions`: legacy sessions that any replica can continue, because their ids hold their state.

The id of a session is `ID.SEALED`: a random id, and the client's part of the handshake, sealed with keys that
all replicas have and bound to the principal. A replica that does not know a session opens the seal and adopts
the session. Replicas pass on the rest: a client's answer goes to the replica that asked, the rest of a stream
comes from the replica that has it, and messages outside of calls go to the replica where the client listens.
An ended session is remembered for as long as its id would be valid.
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
"""Seconds for which the id of a session is valid; then its client begins a new session."""

MAX_ID: Final = 3_000
"""The largest number of characters of an id; many proxies limit all headers together to 8,000."""

REPLY_TIMEOUT: Final = 10.0
"""Seconds that another replica has to answer."""

EVENT_TIMEOUT: Final = 5.0
"""Seconds that another replica waits for the next event of a stream before it answers without events."""

_PURPOSE: Final = "session"
_log = logging.getLogger("mcp_toolset.http")


@dataclass(frozen=True, slots=True)
class SessionId:
    """The id of a session, with its content."""

    text: str  # the whole id, as the client sends it
    id: str  # the random part, which tells sessions apart
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
        for event, handler in self._handlers().items():
            shared.replicas.serve(_method(event), self._served(handler))

    def home(self, session_id: SessionId, http: Request) -> Home:
        own = self._shared.replicas.own
        return Home(session_id.id, f"{own}:", int(own) * SPAN, http, self.say)

    def new_id(self, params: Mapping[str, Any], owner: str | None) -> SessionId:
        """The id of the session that a handshake begins; a client's long description of itself is cut."""
        version = negotiated_version(params["protocolVersion"])
        facts = SessionId("", secrets.token_hex(16), version, params["clientInfo"], params["capabilities"])
        sealed = self._sealed(facts, owner)
        if len(sealed.text) <= MAX_ID:
            return sealed
        info = {key: value for key, value in (facts.info or {}).items() if key in ("name", "version")}
        capabilities = {key: value for key, value in facts.capabilities.items() if key != "experimental"}
        sealed = self._sealed(replace(facts, info=info, capabilities=capabilities), owner)
        if len(sealed.text) <= MAX_ID:
            return sealed
        # No known client sends so much; other replicas then know neither its name nor its capabilities.
        return self._sealed(replace(facts, info=None, capabilities={}), owner)

    def keep(self, session: LegacySession) -> None:
        """Let other replicas reach a session for as long as it is open here."""
        self._known[session.connection.session_id or ""] = session

    async def opened(self, text: str, owner: str | None) -> SessionId | None:
        """The content of an id that a client sends; `None` if it has expired or is not this owner's."""
        id, _, sealed = text.partition(".")
        data = self._shared.keys.open(_PURPOSE, sealed, bound=_bound(id, owner))
        if data is None:
            return None
        facts = json.loads(data)
        if time.time() > facts["until"] or await self._ended.was_used(id):
            return None
        return SessionId(text, id, facts["version"], facts["info"], facts["capabilities"])

    async def adopt(self, session: LegacySession, session_id: SessionId, http: Request) -> None:
        """Continue a session of another replica."""
        session.go_on(session_id.version, session_id.info, session_id.capabilities)
        await self._answers.notified(
            RequestContext(INITIALIZED, {}, None, session.connection, Incoming(session), http)
        )
        self.keep(session)

    async def answered(self, session: LegacySession, message: Mapping[str, Any]) -> None:
        replica, colon, _ = str(message.get("id")).partition(":")
        if colon and replica != self._shared.replicas.own:
            await self._tell(replica, "answer", session, message)

    async def notified(self, session: LegacySession, message: Mapping[str, Any]) -> None:
        """Pass a client's notification on to the other replicas, which may have its call or its stream."""
        await self._tell("", "notification", session, message)

    async def say(self, session: LegacySession, message: bytes) -> None:
        await self._tell("", "say", session, {"line": message.decode()})

    async def end(self, session: LegacySession) -> None:
        try:
            await self._ended.use(session.connection.session_id or "", ttl=TTL)
        except StoreError as fault:
            _log.warning("the end of a session is not known to other replicas: %s", fault)
        await self._tell("", "end", session, {})

    async def follow(
        self, session: LegacySession, place: tuple[int, int], send: Send, headers: Headers
    ) -> bool:
        """Answer a `GET` with the rest of a stream of another replica; false if no replica has it."""
        name, number = place
        params = {"session": session.connection.session_id, "log": name, "after": number}
        method, replica, begun = _method("events"), str(name // SPAN), False
        try:
            while True:
                part = await self._shared.replicas.ask(replica, method, params, within=REPLY_TIMEOUT)
                if not begun:
                    head = {"type": "http.response.start", "status": 200, "headers": [*STREAM, *headers]}
                    await send(head)
                    begun = True
                for event in part["events"]:
                    await send({"type": "http.response.body", "body": b64decode(event), "more_body": True})
                if part["ended"]:
                    break
                params["after"] = part["last"]
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
        """The events of a stream after an event; waits up to `EVENT_TIMEOUT` seconds for the first."""
        log, last = session.events.logs.get(params["log"]), params["after"]
        if log is None:
            raise CallError("nothing is kept of the call")
        log.detach()
        if not (events := log.after(last)) and not log.ended:
            with anyio.move_on_after(EVENT_TIMEOUT):
                await log.news.wait()
            events = log.after(last)
        return {
            "events": [b64encode(event).decode() for _, event in events],
            "last": events[-1][0] if events else last,
            "ended": log.ended,
        }

    async def _tell(
        self, replica: str, event: str, session: LegacySession, message: Mapping[str, Any]
    ) -> None:
        params = {
            "session": session.connection.session_id,
            "from": self._shared.replicas.own,
            "message": message,
        }
        try:
            await self._shared.replicas.tell(replica, _method(event), params)
        except (CallError, StoreError) as fault:
            _log.warning("other replicas were not told of %s in a session: %s", event, fault)

    def _sealed(self, session_id: SessionId, owner: str | None) -> SessionId:
        facts = {
            "version": session_id.version,
            "info": session_id.info,
            "capabilities": session_id.capabilities,
            "until": time.time() + TTL,
        }
        bound = _bound(session_id.id, owner)
        sealed = self._shared.keys.seal(_PURPOSE, json.dumps(facts).encode(), bound=bound)
        return replace(session_id, text=f"{session_id.id}.{sealed}")


def _bound(id: str, owner: str | None) -> str:
    return json.dumps([id, owner])


def _method(event: str) -> str:
    return f"session.{event}"
