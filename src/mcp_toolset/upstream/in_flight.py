"""`CallsInFlight`: finds the call in flight to which a message of an upstream belongs.

Progress has the token of its call. Over streamable HTTP every other message comes on the stream of its
call, in whose context it is read. Over stdio and SSE nothing says which call it belongs to; there it can be
told only while all calls in flight are of one client, and it goes before the results of all of them, on the
stream of the newest. What comes while no call is in flight is for the session's only client, see `Outside`.
A message that belongs to no client is dropped. `SessionHealth` checks the server once a call gets no answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count
from typing import Any, Final, Literal

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.calls.observers import note_usage
from mcp_toolset.concurrency.tasks import WorkingTime
from mcp_toolset.context.connection import ServedClient
from mcp_toolset.context.request import Delivery, WireContext
from mcp_toolset.errors import UpstreamProtocolError, UpstreamUnavailableError
from mcp_toolset.protocol.eras import forwarded_meta, meta_of, wants_log
from mcp_toolset.protocol.json_rpc import INVALID_REQUEST, MCPError
from mcp_toolset.protocol.methods import is_of_mcp
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.upstream.target import Link

_NOTHING: Final[Mapping[str, Any]] = {}
WITHDRAWING: Final = 2.0  # seconds in which clients are told that a question is withdrawn


class ClientQuestion:
    """One question that a client has."""

    __slots__ = ("answered", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.answered = anyio.Event()


_calling: ContextVar[CallInFlight | None] = ContextVar("mcp_toolset_calling", default=None)


class CallInFlight:
    """One call that an upstream is working on, and the client that it is for now."""

    __slots__ = (
        "_before _delivery _token about answered around asked client context ended home outer questions"
        " time tokens"
    ).split()

    def __init__(
        self, context: ToolContext, *, client: str | None = None, about: Mapping[str, Any] = _NOTHING
    ) -> None:
        self.context = context  # the client's request that waits for it; the newest, if repeated
        self.client = client  # what tells its client from all others; `None` if nothing does
        self.time: WorkingTime | None = None  # stands still while the client is asked
        self.asked = 0  # how many requests the upstream has put to the client in this call
        self.answered = False  # it has answered the request at hand, and says no more in it
        self.ended = False  # whether the upstream has answered it, or its client has given it up
        self.home: CallsInFlight | None = None  # where it is counted as in flight
        self.outer: CallInFlight | None = None  # within which it was made, if the server is of this process
        self.around: Context | None = None  # the variables of the task that made it
        self.about = about  # the parameters of the request
        self.tokens: tuple[Mapping[str, int], ...] = ()  # of the program's own model, by kind, not billed yet
        self.questions: set[ClientQuestion] = set()  # what its client is asked in it
        self._delivery: Delivery | None = None
        self._before: dict[Delivery, int] | None = None

    # A generator would cost each call twice as much.
    def __enter__(self) -> None:
        if self.home is not None:
            self.home.under_way[id(self)] = self
        self._token = _calling.set(self)
        self.around = copy_context()

    def __exit__(self, *_: object) -> None:
        _calling.reset(self._token)
        self.end()
        if self.tokens:
            self.bill()
        # The variables hold the call, so that the two would wait for the garbage collector.
        self.around = None
        if self.home is not None:
            del self.home.under_way[id(self)]

    @property
    def delivery(self) -> Delivery:
        if self._delivery is None:
            self._delivery = Delivery()
        return self._delivery

    def comes_after(self, delivery: Delivery, number: int) -> None:
        """Let the result wait for messages that were sent in another call's name and may be of this one."""
        if self._before is None:
            self._before = {}
        self._before[delivery] = number

    @property
    def has_notifications(self) -> bool:
        """True if something was said in it that its result waits for."""
        return self._delivery is not None or self._before is not None

    @property
    def is_over(self) -> bool:
        """True if its client has the result by now, or does not wait for it any more."""
        return self.ended

    async def told(self) -> None:
        """Wait until the client has what was said before this moment, if it takes it at all."""
        if self._delivery is not None:
            await self._delivery.all_left()
        if self._before is not None:
            for delivery, number in list(self._before.items()):
                await delivery.read(number)

    def tell_nothing(self) -> None:
        """Drop what is on its way: its connection has ended."""
        if self._delivery is not None:
            self._delivery.stop()

    @contextmanager
    def asking(self, *, exact: bool) -> Generator[None]:
        """Ask the client until this call ends, or, unless `exact`, every call that may have asked."""
        self.asked += 1
        if self.time is not None:
            self.time.pause()
        asking = ClientQuestion()
        among = self.questions if exact or self.home is None else self.home.asking
        try:
            with asking.scope:
                among.add(asking)
                yield
        finally:
            among.discard(asking)
            asking.answered.set()
            if self.time is not None:
                self.time.resume()

    def reason(self) -> str | None:
        return self.context.cancelled_because if isinstance(self.context, WireContext) else None

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(self.context, WireContext):
            raise MCPError(INVALID_REQUEST, f"{method} is refused: this call has no client to ask")
        return await self.context.relay(method, params)

    def bill(self) -> None:
        tokens, self.tokens = self.tokens, ()
        for usage in tokens:
            note_usage(usage)

    async def settled(self) -> None:
        """End it, and wait until its client has been told that what was asked has no use any more."""
        self.end()
        await self.withdrawn()

    def end(self) -> None:
        self.ended = True
        if self.questions or (self.home is not None and self.home.asking):
            for asking in self._orphaned():
                asking.scope.cancel()

    async def withdrawn(self) -> None:
        """Wait, for a little while at most, until the client has been told what is asked no more."""
        # Over streamable HTTP that goes with the stream of the call, which the end of the call closes.
        with anyio.move_on_after(WITHDRAWING, shield=True):
            for asking in self._orphaned():
                await asking.answered.wait()

    def _orphaned(self) -> list[ClientQuestion]:
        """The questions that no call in flight can have asked, once this call has ended."""
        if self.home is None or self.home.busy:
            return list(self.questions)
        return [*self.questions, *self.home.asking]


Start = Callable[[Callable[[], Awaitable[None]]], object]


class Outside:
    """The client that has used a session, as long as it is the only one.

    Up to 2025-11-25 a server may send log messages, and notifications of its own, at any time. They are for
    the client of the session; where several clients have used it, nothing says for which of them, and they
    are dropped.
    """

    __slots__ = ("_client", "_delivery", "_ends", "_shared", "key")

    def __init__(self) -> None:
        self.key: str | None = ""  # what tells the client of the latest request from others
        self._client: ServedClient | None = None
        self._shared = False
        self._ends: Callable[[], None] | None = None
        self._delivery = Delivery()

    def used_by(self, key: str | None, context: ToolContext) -> None:
        first, self.key = self.key == "", key
        self._forget()
        self._shared = self._shared or not first
        if not self._shared and isinstance(context, WireContext) and not context.modern:
            self.client_is(context.client)

    def meet(self, context: ToolContext) -> None:
        key = context.client_key if isinstance(context, WireContext) else None
        if key != self.key:
            self.used_by(key, context)

    def client_is(self, client: ServedClient) -> None:
        self.key, self._client = client.key, client
        self._ends = client.gone.add(self._forget)

    def take(self, method: str, params: Mapping[str, Any] | None, start: Start) -> None:
        """Send a notification on, on no request's stream, if it is sure whom it is for."""
        client = self._client
        if client is None:
            return
        if method == "notifications/message" and not wants_log(client.log_level, (params or {}).get("level")):
            return
        if params is not None and "_meta" in params:
            params = {**params, "_meta": forwarded_meta(meta_of(params))}
        self._delivery.add(partial(client.notify, method), params)
        if not self._delivery.running:
            self._delivery.running = True
            start(self._delivery.run)

    def _forget(self) -> None:
        self._client = None
        if self._ends is not None:
            self._ends()
            self._ends = None


_OF_NO_CALL: Final = frozenset(
    (
        "notifications/cancelled notifications/elicitation/complete notifications/prompts/list_changed "
        "notifications/resources/list_changed notifications/resources/updated "
        "notifications/subscriptions/acknowledged notifications/tools/list_changed"
    ).split()
)
"""Notifications of servers that are not for the client of one call."""


class CallsInFlight:
    """The calls that one upstream session is working on."""

    def __init__(self) -> None:
        self.outside = Outside()  # where messages go that come while no call is in flight
        self.asking: set[ClientQuestion] = set()  # questions that any call of the client may have caused
        self.under_way: dict[int, CallInFlight] = {}  # by their `id`
        self._start: Callable[..., object] | None = None
        self._tokens: dict[str, CallInFlight] = {}
        self._numbers = count(1)

    @contextmanager
    def told_by(self, start: Callable[..., object]) -> Generator[None]:
        self._start = start
        try:
            yield
        finally:
            self._start = None
            for call in self.under_way.values():
                call.tell_nothing()

    def token(self, call: CallInFlight) -> str:
        token = f"call-{next(self._numbers)}"
        self._tokens[token] = call
        return token

    def give_back(self, token: str) -> None:
        del self._tokens[token]

    def of(self, call: CallInFlight) -> CallInFlight:
        """The call, whose block is the time in which it is in flight here."""
        if call.client != self.outside.key:
            self.outside.used_by(call.client, call.context)
        call.home, call.outer = self, _calling.get()
        call.ended = False
        return call

    def __len__(self) -> int:
        return len(self.under_way)

    @property
    def busy(self) -> bool:
        return any(not call.ended for call in self.under_way.values())

    def current(self) -> CallInFlight | None:
        """The call whose own stream the message at hand came on, if it came on one; it may have ended."""
        call = _calling.get()
        while call is not None and call.home is not self:
            call = call.outer
        return call

    def sole(self) -> CallInFlight | None:
        return _newest(self._open())

    def _open(self) -> list[CallInFlight]:
        return [call for call in self.under_way.values() if not (call.ended or call.answered)]

    def take(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take a notification in the moment in which it is read; `False` if it is of no call's business."""
        if method == "notifications/progress":
            return self._take_progress(params or {})
        if method in _OF_NO_CALL:
            return False
        current = self.current()
        if current is None:
            self._take_of_any(method, params)
        elif not current.ended:
            self._send(current, partial(self._notify, current, method), params)
        return True

    def _take_of_any(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Take what may be of any call in flight: it comes before the results of all."""
        calls = self._open()
        if not calls and self._start is not None:
            return self.outside.take(method, params, self._start)
        owner = _newest(calls)
        if owner is None:
            return
        if len(calls) > 1 and isinstance(owner.context, WireContext) and owner.context.has_own_stream:
            owner.delivery.confirm = owner.context.confirm
        number = self._send(owner, partial(self._notify, owner, method), params)
        for call in calls:
            call.comes_after(owner.delivery, number)

    def _take_progress(self, params: Mapping[str, Any]) -> bool:
        token = params.get("progressToken")
        call = self._tokens.get(token) if isinstance(token, str) else None
        if call is None or type(params.get("progress")) not in (int, float):
            return False
        self._send(call, partial(self._report, call), params)
        return True

    def _send(self, call: CallInFlight, send: Callable[[Any], Awaitable[None]], params: object) -> int:
        number = call.delivery.add(send, params)
        self._have_sent(call)
        return number

    def _have_sent(self, call: CallInFlight) -> None:
        delivery, idle = call.delivery, not (call.delivery.running or call.delivery.held)
        if idle and self._start is not None and call.around is not None:
            delivery.running = True
            call.around.run(self._start, delivery.run)

    def go_on(self, call: CallInFlight) -> None:
        call.delivery.held = False
        if self._start is None:
            call.tell_nothing()
        self._have_sent(call)

    async def _notify(self, call: CallInFlight, method: str, params: Mapping[str, Any] | None) -> None:
        if not call.is_over:
            await call.context.notify(method, params)

    async def _report(self, call: CallInFlight, params: Mapping[str, Any]) -> None:
        if call.is_over:
            return
        if isinstance(call.context, WireContext):
            return await call.context.pass_progress(params)
        message = params.get("message")
        total = params.get("total")
        await call.context.progress(
            params["progress"],
            total if type(total) in (int, float) else None,
            message if isinstance(message, str) else None,
        )

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass on a notification of a server of this process, which waits until its client has it."""
        owner = self.current() or self.sole()
        if owner is not None and method not in _OF_NO_CALL:
            await self._notify(owner, method, params)


def _newest(calls: list[CallInFlight]) -> CallInFlight | None:
    if not calls:
        return None
    newest = calls[-1]
    if len(calls) == 1:
        return newest
    alike = newest.client is not None and all(call.client == newest.client for call in calls)
    return newest if alike else None


_KEPT: Final = "lent "  # begins the names of its answers among those of the client; no request is named so

Requests = Mapping[str, Mapping[str, Any]]


class StandIn(ABC):
    """Answers one kind of request."""

    method: str  # the method of the requests
    capability: str  # what clients that answer them declare

    @abstractmethod
    def serves(self, context: ToolContext) -> bool: ...

    @abstractmethod
    def takes(self, request: Mapping[str, Any]) -> bool: ...

    @abstractmethod
    async def relay(self, call: CallInFlight, params: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request of a legacy server; `MCPError` if there is none."""

    @abstractmethod
    async def answers(self, call: CallInFlight, requests: Requests) -> dict[str, dict[str, Any]]:
        """The answers to one round trip's requests (2026-07-28); `CallError` if one of them has none."""


def carried_to(link: Link, caller: WireContext | None) -> Mapping[str, Any]:
    """The capabilities that a mounted server is told of: those of the client, and that of the stand-in."""
    carried = _NOTHING if caller is None else caller.carried
    if link.carries.tables and caller is not None and (own := carried_extensions(link, caller)):
        carried = {**carried, **{kind: {**carried.get(kind, {}), **table} for kind, table in own.items()}}
    stand_in: StandIn | None = link.stand_in
    if stand_in is None or stand_in.capability in carried:
        return carried
    return {**carried, stand_in.capability: {}}


def carried_extensions(link: Link, caller: WireContext) -> dict[str, dict[str, Any]]:
    """The extensions of a client that are carried to a server, in the tables in which the server has them."""
    found: dict[str, dict[str, Any]] = {}
    for table in caller.client_extensions.values():
        for name, settings in table.items():
            if name in link.carries.tables:
                found.setdefault(link.carries.tables[name], {}).setdefault(name, settings)
    return found


def is_carried(link: Link, method: str, context: ToolContext) -> bool:
    """True for a request of a server that is of an extension which is carried to it for this caller."""
    if not link.carries.tables or is_of_mcp(method) or not isinstance(context, WireContext):
        return False
    shared = {name for table in carried_extensions(link, context).values() for name in table}
    return bool(shared) and link.carries.takes(method, shared)


def parted(
    stand_in: StandIn | None, requests: Requests, context: ToolContext
) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """The requests of a round trip that the stand-in answers, and those for the client."""
    if stand_in is None or not stand_in.serves(context):
        return {}, dict(requests)
    own = {key: each for key, each in requests.items() if stand_in.takes(each)}
    return own, {key: each for key, each in requests.items() if key not in own}


def keep(answers: Mapping[str, dict[str, Any]], caller: WireContext) -> None:
    """Keep answers until the client repeats the call with answers of its own (2026-07-28)."""
    caller.replay.answers |= {f"{_KEPT}{key}": answer for key, answer in answers.items()}


def with_kept(trip: dict[str, Any], caller: WireContext) -> dict[str, Any]:
    known = caller.replay.answers
    kept = {name.removeprefix(_KEPT): known.pop(name) for name in list(known) if name.startswith(_KEPT)}
    return {**trip, "inputResponses": {**kept, **trip.get("inputResponses", {})}} if kept else trip


TELL: Final = 0.75  # seconds that a health check may take before calls fail at once
TIMEOUT: Final = 5.0  # seconds that a health check may take before the session is given up
SILENCE: Final = 10.0  # seconds that the server must have been silent, from the overdue call on
GIVEN_UP_AFTER: Final = 5.0  # seconds after which a call that its client cancels counts as unanswered

State = Literal["closed", "checking", "open", "lost"]


@dataclass(frozen=True, slots=True)
class Circuit:
    """The health at a moment; each event gives another one. It knows no event loop: it is told the time."""

    state: State = "closed"  # one of the four in the table
    waited: float = 0.0  # seconds that the overdue call had waited
    asked_at: float = 0.0  # when the health check was sent

    @property
    def refuses(self) -> bool:
        return self.state in ("open", "lost")

    @property
    def due(self) -> float:
        """When `at` has something else to say, if nothing is heard; infinity for never."""
        if self.state == "checking":
            return self.asked_at + TELL
        if self.state == "open":
            return self.asked_at + max(TIMEOUT, SILENCE - self.waited)
        return float("inf")

    def missed(self, now: float, waited: float) -> Circuit:
        """A call got no answer in `waited` seconds; from `closed` this begins a health check."""
        return Circuit("checking", waited, now) if self.state == "closed" else self

    def heard(self) -> Circuit:
        """The server sent something; what is lost stays so, as its session is ending."""
        return self if self.state == "lost" else CLOSED

    def at(self, now: float) -> Circuit:
        if now < self.due:
            return self
        later: State = "open" if self.state == "checking" else "lost"
        return Circuit(later, self.waited, self.asked_at).at(now)

    @property
    def reason(self) -> str:
        if not self.refuses:
            return ""
        if self.state == "open":
            checked, then = (TELL, "; calls go through once it answers; if it does not, it is given up")
        else:
            checked, then = max(TIMEOUT, SILENCE - self.waited), ""
        return (
            f"it does not answer: a call got no answer within {self.waited:.3g} s, "
            f"nor did a health check within {checked:.3g} s{then}"
        )


CLOSED: Final = Circuit()


READ_ON: Final = 0.05  # seconds in which an answer is read that came while this process had no time to read


class SessionHealth:
    """Checks whether a session's server still answers, once a call was left without an answer.

    A call that is answered costs nothing here. One that is not has the server asked for something that it
    answers at once: `ping`, or `server/discover` in 2026-07-28. What follows is a circuit breaker:

    | state | calls | what it waits for |
    |---|---|---|
    | `closed` | go through | a call that gets no answer |
    | `checking` | go through | the answer to a health check, for `TELL` seconds |
    | `open` | fail at once | the same answer: it closes the circuit (half-open) |
    | `lost` | fail at once | nothing more: the session is ended, and a new one decides |

    A slow server answers the health check and stays. One that answers nothing is given `TIMEOUT` before what
    it holds in memory is given up.
    """

    def __init__(
        self, check: Callable[[], Awaitable[object]], reads: Callable[[], bool] = lambda: True
    ) -> None:
        self._reads = reads
        self.fault = ""  # why calls fail at once; empty while they go through
        self.on_change: Callable[[], None] = lambda: None  # called when `fault` has changed
        self._check = check
        self._circuit = CLOSED
        self._moved: anyio.Event | None = None

    @property
    def waited(self) -> float:
        return self._circuit.waited

    def missed(self, waited: float) -> None:
        self._move(self._circuit.missed(anyio.current_time(), waited))

    def given_up(self, waited: float) -> None:
        """The client of a call cancelled it after `waited` seconds."""
        if waited >= GIVEN_UP_AFTER:
            self.missed(waited)

    def heard(self) -> None:
        if self._circuit is not CLOSED:
            self._move(self._circuit.heard())

    async def lost(self) -> str:
        """Check whenever a call was missed; returns once the session is to be given up, with the reason."""
        while self._circuit.state != "lost":
            if self._circuit.state == "closed":
                await self._changed()
            await self._settle(self._circuit)
        return self.fault

    async def _settle(self, begun: Circuit) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._ask)
            while (now := self._circuit).due < float("inf") and now.asked_at == begun.asked_at:
                await self._changed(now.due)
                if self._circuit is now:
                    await self._changed(anyio.current_time() + READ_ON)
                self._move(self._circuit.at(anyio.current_time()) if self._reads() else CLOSED)
            group.cancel_scope.cancel()

    async def _ask(self) -> None:
        try:
            await self._check()
        except UpstreamUnavailableError:
            # The connection has ended or broke off, which is found out and told elsewhere.
            return
        except UpstreamProtocolError:
            pass
        self.heard()

    async def _changed(self, until: float = float("inf")) -> None:
        before = self._circuit
        with anyio.move_on_after(until - anyio.current_time()):
            while self._circuit is before:
                self._moved = anyio.Event()
                await self._moved.wait()

    def _move(self, circuit: Circuit) -> None:
        if circuit == self._circuit:
            return
        self._circuit = circuit
        if self._moved is not None:
            self._moved.set()
        if circuit.reason != self.fault:
            self.fault = circuit.reason
            self.on_change()
