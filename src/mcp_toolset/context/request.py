"""`WireContext`: reports and questions of a served call, which reach the very client that made it.

`Delivery` sends the notifications of a call in order, and before its result.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import anyio
import anyio.lowlevel
from pydantic_core import to_json

from mcp_toolset.concurrency.tasks import TaskScope
from mcp_toolset.context import connection
from mcp_toolset.context.offer_kinds import answer_fault
from mcp_toolset.context.request_state import Replay, RoundTrips
from mcp_toolset.errors import CallError, CannotAskError, InvalidOutputError
from mcp_toolset.protocol.eras import ROUND_TRIP, forwarded_meta, meta_of, wants_log
from mcp_toolset.protocol.json_rpc import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT, MCPError
from mcp_toolset.protocol.methods import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY, MAY_ASK
from mcp_toolset.protocol.server_machine import SESSION
from mcp_toolset.tools import result
from mcp_toolset.tools.call import CAPABILITIES, ToolCall, ToolContext
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.validation import SchemaCheck

MAX_WAITING: Final = 16_384
MAX_BYTES: Final = 8 * 1024 * 1024
"""Notifications of one call that may wait for its client, and their length; the oldest give way.

An upstream may say all at once what its client is sent one after another.
"""

_FEW: Final = 64  # Notifications up to which their length is not looked at.
TIMEOUT: Final = 5.0  # Seconds in which a client has to take one notification.
_TURN: Final = 1024  # Notifications that are sent before other work gets its turn.

_upstream_log = logging.getLogger("mcp_toolset.upstream")

Send = Callable[[Any], Awaitable[None]]
_Answer = TypeVar("_Answer")


class Delivery:
    """Notifications of one call's upstream, until its client has them."""

    __slots__ = (
        *("_added", "_asked", "_bytes", "_left", "_moved", "_read", "_scope", "_stopped", "_waiting"),
        *("confirm", "held", "running"),
    )

    def __init__(self) -> None:
        self._waiting: deque[tuple[Send, Any, int]] = deque()
        self._bytes = 0
        self._added = self._left = self._read = 0
        self._asked: anyio.Event | None = None
        self._moved: anyio.Event | None = None
        self._scope = TaskScope()
        self._stopped = False
        # Returns when the client has read what has left so far; `None` where that is not needed.
        self.confirm: Callable[[], Awaitable[None]] | None = None
        self.held = False  # True if nothing is sent for now, as no request of the client waits for the call.
        self.running = False  # True if a task sends.

    def add(self, send: Send, message: Any) -> int:
        """Queue a message; returns how many must leave before a result."""
        if not self._stopped:
            size = 0 if len(self._waiting) < _FEW else len(to_json(message))
            self._added += 1
            self._bytes += size
            self._waiting.append((send, message, size))
            while len(self._waiting) > MAX_WAITING or self._bytes > MAX_BYTES:
                self._next()
                self._left += 1
        return self._added

    def _next(self) -> tuple[Send, Any]:
        send, message, size = self._waiting.popleft()
        self._bytes -= size
        return send, message

    async def run(self) -> None:
        try:
            with self._scope.begun():
                while self._waiting and not self.held:
                    await self._send_next()
        finally:
            self.running = False
            self._tell()

    async def _send_next(self) -> None:
        send, message = self._next()
        try:
            await send(message)
        # Whatever a client's connection raises, or a program's own context: the next one may arrive.
        except Exception:
            _upstream_log.exception("a notification did not reach the client of its call")
        self._left += 1
        self._tell()
        if not self._left % _TURN:
            await anyio.lowlevel.checkpoint()

    async def left(self, count: int) -> None:
        await self._until(lambda: self._left >= count)

    async def hold(self) -> None:
        await self.all_left()
        self.held = True
        await self._until(lambda: not self.running)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not (self._stopped or reached()):
            if self._moved is None:
                self._moved = anyio.Event()
            with anyio.move_on_after(TIMEOUT) as waiting:
                await self._moved.wait()
            if waiting.cancelled_caught:
                self.stop()

    async def read(self, count: int) -> None:
        await self.left(count)
        while self.confirm is not None and self._read < count and not self._stopped:
            if self._asked is not None:
                await self._asked.wait()
                continue
            asked, left = anyio.Event(), self._left
            self._asked = asked
            try:
                await self.confirm()
                self._read = left
            finally:
                self._asked = None
                asked.set()

    async def all_left(self) -> None:
        await self.left(self._added)

    def stop(self) -> None:
        if self._waiting:
            _upstream_log.warning(
                "%d notifications were dropped: the client does not read them", len(self._waiting)
            )
        self._stopped = True
        self._waiting.clear()
        self._scope.cancel()
        self._tell()

    def _tell(self) -> None:
        if self._moved is not None:
            moved, self._moved = self._moved, None
            moved.set()


_NOTHING: Final[Mapping[str, Any]] = {}


ASK_TIMEOUT: Final = 300.0  # Seconds that a legacy client and its user have for one answer.
_MADE_UP: Final = (CONNECTION_CLOSED, REQUEST_TIMEOUT)  # Codes for a lost connection or answer.

_log = logging.getLogger("mcp_toolset.ask")


class _UnknownAnswerError(Exception):
    """A client's answer that does not follow the protocol."""


class WireContext(ToolContext):
    """One request of one client, as a tool and an upstream see it."""

    __slots__ = (
        *("_carried", "_client", "_meta", "_params", "_replay", "_request", "_wants_progress", "identity"),
        *("modern", "principal", "protocol_version", "session"),
    )

    capabilities = frozenset(CAPABILITIES)
    """All: middleware and hooks are the host's own code; handlers get a `HandlerContext`."""

    def __init__(self, request: connection.RequestContext) -> None:
        self._request = request
        self.protocol_version = request.protocol_version
        modern = self.modern = request.modern
        self._client: connection.ServedClient | None = None if modern else connection.client_of(request)
        self.session = None if self._client is None else self._client.key
        identity = self.identity = (
            None if request.http is None else connection.identity_of(request.http.scope)
        )
        self.principal = None if identity is None else identity.key
        self._params: Mapping[str, Any] = request.params or {}
        self._replay: Replay | None = None
        self._carried: Mapping[str, Any] | None = None
        raw: Any = self._params.get("_meta", _NOTHING)
        given: object = raw
        self._meta: Mapping[str, Any] = raw if isinstance(given, (dict, Mapping)) else _NOTHING
        in_process = modern and request.http is None
        self._wants_progress = "progressToken" in self._meta or in_process

    @property
    def meta(self) -> Mapping[str, Any]:
        return self._meta

    @property
    def params(self) -> Mapping[str, Any]:
        return self._params

    @property
    def client(self) -> connection.ServedClient:
        if self._client is None:
            self._client = connection.client_of(self._request)
        return self._client

    @property
    def client_key(self) -> str | None:
        return connection.stream_of() if self._client is None else self._client.key

    @property
    def share(self) -> str:
        """The owner of its share of resources: the principal, else the client program; empty if unknown."""
        return self.principal or self.client_key or ""

    @property
    def declares(self) -> Mapping[str, Any]:
        """The requests that this client answers in the course of this call, in wire form."""
        if self.modern:
            return connection.declared_by(self._meta.get(CLIENT_CAPABILITIES_META_KEY))
        return self.client.declares if self._request.way.can_send_request else _NOTHING

    @property
    def carried(self) -> Mapping[str, Any]:
        """The client's capabilities that mounted servers are told of: what it answers, and extensions."""
        if self.modern:
            if self._carried is None:
                self._carried = connection.carried_by(self._meta.get(CLIENT_CAPABILITIES_META_KEY))
            return self._carried
        if self.answers:
            return self.client.carried
        return {name: each for name, each in self.client.carried.items() if name not in result.ANSWERABLE}

    @property
    def client_extensions(self) -> Mapping[str, Any]:
        """The client's `extensions` and `experimental`, in wire form."""
        if self.modern:
            return connection.extensions_in(self._meta.get(CLIENT_CAPABILITIES_META_KEY))
        return self.client.extensions

    @property
    def answers(self) -> bool:
        """True if requests reach this client in the course of this call, as it is legacy."""
        return not self.modern and self._request.way.can_send_request

    @property
    def has_own_stream(self) -> bool:
        """True if what is said in this call and in others of its client comes on streams of their own."""
        http = self._request.http
        return http is not None and self.answers and SESSION.decode() in http.headers

    @property
    def request_id(self) -> str:
        return "" if self._request.request_id is None else str(self._request.request_id)

    @property
    def client_info(self) -> Mapping[str, Any]:
        return self._request.connection.client_info or _NOTHING

    def settled(self, key: str, ask: Callable[[], _Answer | None]) -> _Answer | None:
        if self.modern:
            return ask()
        state = self._request.connection.state
        if (known := state.get(key)) is None and (known := ask()) is not None:
            state[key] = known
        return known

    @property
    def log_level(self) -> str | None:
        if self.modern:
            return self._meta.get(LOG_LEVEL_META_KEY)
        return self.client.log_level

    @property
    def authorization(self) -> str | None:
        http = self._request.http
        return None if http is None else http.headers.get("authorization")

    @property
    def origin(self) -> str | None:
        """The address at which the client reaches this server, without a path; `None` without HTTP."""
        http = self._request.http
        host = None if http is None else http.headers.get("host")
        return f"{http.scope['scheme']}://{host}{http.scope.get('root_path', '')}" if http and host else None

    def sent(self, name: str) -> list[str]:
        """The values of a header of the HTTP request, `name` in lower case: one for each line with it."""
        http, wanted = self._request.http, name.encode()
        lines: Iterable[tuple[bytes, bytes]] = () if http is None else http.scope["headers"]
        return [value.decode("latin-1") for each, value in lines if each == wanted]

    @property
    def cancelled_because(self) -> str | None:
        """Why the client has cancelled this request, if it has, and has said so."""
        return self._request.way.reason

    @property
    def wants_progress(self) -> bool:
        return self._wants_progress

    @property
    def is_handed_over(self) -> bool:
        """True if the client has a handle of the call, so that it is asked by the state of a task."""
        return False

    @property
    def replay(self) -> Replay:
        if self._replay is None:
            self._replay = Replay(str(self._request.request_id or secrets.token_hex(16)))
        return self._replay

    @property
    def has_replay(self) -> bool:
        """True if this call has asked anything so far, or has brought anything of a run before."""
        return self._replay is not None

    @property
    def resumed(self) -> bool:
        replay = self._replay
        return replay is not None and bool(replay.answers or replay.passed_on or replay.parked)

    @property
    def edits(self) -> Mapping[str, Any]:
        return _NOTHING if self._replay is None else self._replay.edits

    def keep(self, edits: Mapping[str, Any]) -> None:
        if edits:
            self.replay.edits = edits

    def counts(self, what: str) -> bool:
        return not self.modern or self.replay.counts(what)

    def resume(self, trips: RoundTrips, call: ToolCall) -> bool:
        """Take up what a repeated call brings; true if `RoundTrips.claim` has still to check it."""
        if not self.modern or ROUND_TRIP.isdisjoint(self._params):
            return False
        first = self.replay.call_id
        self._replay = trips.resume(self._params, call.name, call.arguments, self.principal, first)
        self._params = self._replay.with_passed_on(self._params)
        return self._replay.before is not None

    async def elicit(
        self, question: str, schema: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> result.ElicitationAnswer:
        params = result.elicitation(question, schema)
        missing = self._obstacle()
        if missing:
            obstacle = f"this client shows no questions ({missing})"
            raise CannotAskError(
                f"the user has to be asked, and {obstacle}; ask in your own words: {question}",
                obstacle=obstacle,
            )
        answer = result.ElicitationAnswer.of_wire(await self._asked(result.ELICITATION, params, key))
        if answer.accepted:
            check = SchemaCheck(params["requestedSchema"], tool=question, part="the schema of the answer")
            if not check.is_valid(answer.content):
                faults = "; ".join(check.problems(answer.content))
                raise CallError(f"the user's answer does not fit the question {question!r}: {faults}")
        return answer

    async def answer(self, asked: result.AskUser) -> result.ElicitationAnswer:
        return await self.elicit(asked.question, asked.schema, key="the call's result")

    @property
    def opens_pages(self) -> bool:
        """True if the client has declared that it shows addresses to its user, and can be asked now."""
        asks = self._request.method in MAY_ASK if self.modern else self._request.way.can_send_request
        return asks and self.knows_pages

    @property
    def knows_pages(self) -> bool:
        declared: Any = self._request.connection.client_capabilities.get("elicitation")
        return isinstance(declared, Mapping) and cast("Mapping[str, Any]", declared).get("url") is not None

    async def open_page(self, message: str, url: str, *, name: str) -> result.ElicitationAnswer:
        """Ask the user to open a page; accepted means that the user has agreed, not that anything is done."""
        params = {"mode": "url", "message": message, "url": url}
        if not self.modern:
            params["elicitationId"] = secrets.token_hex(16)
        return result.ElicitationAnswer.of_wire(await self._asked(result.ELICITATION, params, name))

    async def _sample(self, params: dict[str, Any], key: str) -> result.SampledMessage:
        if self._request.connection.client_capabilities.get("sampling") is None:
            raise CannotAskError("this client does not support sampling")
        return result.SampledMessage(await self._asked(result.SAMPLING, params, key))

    async def _roots(self, key: str) -> Sequence[Mapping[str, Any]]:
        self.needs("roots")
        return result.roots_in(await self._asked(result.ROOTS, {}, key))

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        declared = self._request.connection.client_capabilities
        return {name: each for name, each in declared.items() if each is not None}

    async def _asked(self, method: str, params: dict[str, Any], name: str) -> Mapping[str, Any]:
        cause = params.pop("_meta", {}).get(result.CALL_META_KEY, {})
        key = self.replay.key(method, params, name)
        found = self.replay.answer_to(key, name)
        if found is not None:
            return found
        cause = {"id": self.replay.call_id, **cause}
        _log.info("call %s asks the client for %s (%s)", in_log(cause["id"]), in_log(method), in_log(key))
        if method == result.SAMPLING:
            params = {**params, "_meta": {result.CALL_META_KEY: cause, result.REPLAY_META_KEY: key}}
        if self.modern:
            raise result.InputRequired({key: {"method": method, "params": params}})
        return await self._within_deadline(method, params)

    async def _within_deadline(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            with anyio.fail_after(ASK_TIMEOUT):
                return await self.request(method, params)
        except TimeoutError:
            raise CannotAskError(f"the client gave no answer to {method} within {ASK_TIMEOUT:g} s") from None

    def _obstacle(self) -> str:
        declared: Any = self._request.connection.client_capabilities.get("elicitation")
        if declared is None or (declared.get("form") is None and declared.get("url") is not None):
            return "it declares no elicitation of forms"
        if self.modern or self._request.way.can_send_request:
            return ""
        return "its connection carries no requests of this server"

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        message = None if message is None else result.encodable(message)
        await self._request.way.progress(progress, total, message)

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        try:
            to_json([data, logger])
        except ValueError as fault:
            raise InvalidOutputError(f"a log message has no JSON form: {fault}") from None
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self.notify("notifications/message", params)

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass a notification on; a modern client gets log messages only at the level it asked for."""
        if method == "notifications/message" and not self._wants_log((params or {}).get("level")):
            return
        if params is not None and "_meta" in params:
            params = {**params, "_meta": forwarded_meta(meta_of(params))}
        await self._request.way.notify(method, params)

    async def pass_progress(self, params: Mapping[str, Any]) -> None:
        """Pass on progress as an upstream has reported it, under this client's own token."""
        token = self._meta.get("progressToken")
        if token is not None:
            return await self.notify("notifications/progress", {**params, "progressToken": token})
        await self.progress(params["progress"], params.get("total"), params.get("message"))

    async def request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        try:
            return await self._sent(method, params)
        except MCPError as fault:
            raise CannotAskError(f"the client cannot be asked for {method}: {fault.message}") from None
        except _UnknownAnswerError:
            raise CallError(f"the client's answer to {method} does not follow the protocol") from None

    async def confirm(self) -> None:
        """Wait for the answer to a ping: what was sent before it in this request has been read by then."""
        if not self.client.answers_pings:
            return
        with anyio.move_on_after(TIMEOUT) as waiting, suppress(MCPError):
            await self._sent("ping", None)
        self.client.answers_pings = not waiting.cancelled_caught

    async def relay(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Put a mounted server's request to this client, and bring back what it says (legacy)."""
        try:
            with anyio.fail_after(ASK_TIMEOUT):
                return await self._sent(method, params)
        except TimeoutError:
            raise MCPError(INTERNAL_ERROR, f"the client gave no answer within {ASK_TIMEOUT:g} s") from None
        except _UnknownAnswerError:
            raise MCPError(INTERNAL_ERROR, "the client's answer does not follow the protocol") from None
        except MCPError as fault:
            if fault.code in _MADE_UP:
                raise MCPError(INTERNAL_ERROR, "the client can no longer be reached") from None
            raise

    async def _sent(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        answer = await self._request.way.send_raw_request(method, dict(params or {}))
        if answer_fault(method, answer) is not None:
            raise _UnknownAnswerError
        return {name: value for name, value in answer.items() if value is not None}

    def _wants_log(self, level: object) -> bool:
        """A legacy client that set no level gets all log messages."""
        wanted = self.log_level
        return wants_log(wanted, level) if wanted is not None else not self.modern
