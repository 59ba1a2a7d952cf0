"""`Exchange`: forwards a request of a client to an upstream, for each pair of protocol eras.

| client | upstream | how the upstream asks the client |
|---|---|---|
| modern | modern | round trips are passed on, to the server that has asked |
| legacy | modern | the bridge asks the client, and repeats the request with its answers |
| legacy | legacy | the request goes to the client, over a session that declares what it answers |
| modern | legacy | the call goes on in a task while the client is asked by `input_required` |

It serves `tools/call`, `prompts/get` and `resources/read`: the three that may ask (2026-07-28).
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, field
from functools import partial
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.backoff import Drain
from mcp_toolset.context.request import ASK_DEADLINE, WireContext
from mcp_toolset.context.request_state import FOREIGN
from mcp_toolset.context.task import TASKS
from mcp_toolset.errors import CallError, UpstreamProtocolError, UpstreamUnavailableError
from mcp_toolset.protocol.eras import round_trip
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, INVALID_REQUEST, URL_ELICITATION_REQUIRED, MCPError
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ELICITATION, InputRequired
from mcp_toolset.transports.backpressure import calling
from mcp_toolset.upstream.in_flight import CallInFlight, StandIn, carried_to, keep, parted, with_kept
from mcp_toolset.upstream.known_server import MountState
from mcp_toolset.upstream.pool import OtherEraError, PooledSession, SessionPool
from mcp_toolset.upstream.questions import (
    answers_to,
    checked,
    for_modern,
    pages_of,
    requests_in,
    shown_in,
    shown_question,
    undeclared,
    unshowable,
)
from mcp_toolset.upstream.resting import ListingSession
from mcp_toolset.upstream.routing import SessionKey, canonical
from mcp_toolset.upstream.session import UpstreamSession
from mcp_toolset.upstream.target import Link

MAX_SUSPENDED: Final = 128  # calls of one upstream that may wait for answers at once
OWN_SUSPENDED: Final = 32  # the same of one caller
MAX_LEGS: Final = 64  # requests with which a client may come for one call
GATHERING: Final = 0.01  # seconds after a question in which others may join its round

Work = Callable[["SuspendedCall"], Awaitable[dict[str, Any]]]


@dataclass(eq=False, slots=True)
class _Question:
    request: Mapping[str, Any]
    answer: Mapping[str, Any] | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class SuspendedCall(CallInFlight):
    """A call that outlives the requests of the client that it is for."""

    __slots__ = (
        "_changed _fault _legs _paced_by _suspended _questions _result _scope collected done handle share"
    ).split()

    def __init__(self, caller: WireContext, suspended: SuspendedCalls) -> None:
        super().__init__(caller, client=caller.client_key)
        self.handle = secrets.token_urlsafe(12)
        self.share = caller.share
        self.done = False
        self.collected = anyio.Event()
        self._suspended = suspended
        self._legs = 0
        self._questions: dict[str, _Question] = {}
        self._changed = anyio.Event()
        self._result: dict[str, Any] | None = None
        self._fault: Exception | None = None
        self._paced_by = calling.get()
        self._scope = anyio.CancelScope()

    async def run(self, work: Work) -> None:
        calling.set(self._paced_by)
        try:
            with self._scope:
                self._result = await work(self)
        # Whatever it is, it is raised where the call is waited for, and must not end the upstream.
        except Exception as fault:
            self._fault = fault
        finally:
            self.done = True
            self._tell()

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Have the client asked by the request that waits for this call now, or by its next one."""
        if taken := self._suspended.taken_for(self):
            raise MCPError(INVALID_REQUEST, f"{method} is refused: {taken} wait for answers already")
        # From now on: calls that ask at once are counted before the first of their clients is told.
        self.keep()
        key = f"{self.handle}.{self.asked}"
        question = self._questions[key] = _Question(for_modern(method, params))
        self._tell()
        try:
            with anyio.move_on_after(ASK_DEADLINE):
                await question.answered.wait()
            if question.answer is None:
                self._scope.cancel()
                raise MCPError(INTERNAL_ERROR, f"the client gave no answer within {ASK_DEADLINE:g} s")
            return dict(question.answer)
        finally:
            del self._questions[key]
            self._tell()

    async def leg(self, caller: WireContext) -> dict[str, Any]:
        self.context = caller
        self._legs += 1
        if self._legs > MAX_LEGS:
            self._scope.cancel()
            raise CallError(f"the call was repeated {MAX_LEGS} times and still asks; it was ended")
        try:
            await self._catch_up()
            self._take(caller.replay.answers)
            while not (self.done and not self._questions):
                if self._unanswered():
                    await anyio.sleep(GATHERING)
                    if self._unanswered():
                        await self.delivery.hold()
                    if unanswered := self._unanswered():
                        raise InputRequired(unanswered)
                    await self._catch_up()
                    continue
                await self._changed.wait()
            await super().told()
        except anyio.get_cancelled_exc_class():
            self._scope.cancel()
            raise
        finally:
            super().bill()
        self.collected.set()
        return self._outcome()

    def bill(self) -> None:
        """Add nothing: the work has a task of its own, and `leg` bills each request of the client."""

    async def told(self) -> None:
        """Wait for nothing: the client is told by its requests, and before the last of them is answered."""

    @property
    def is_over(self) -> bool:
        return self.collected.is_set()

    async def _catch_up(self) -> None:
        if self.home is not None and self.delivery.held:
            self.home.go_on(self)
            await self.delivery.all_left()

    def keep(self) -> None:
        self._suspended.keep(self)

    def forget(self) -> None:
        self._suspended.forget(self)

    async def drained(self) -> None:
        while self._questions:
            await self._changed.wait()

    def _unanswered(self) -> dict[str, Mapping[str, Any]]:
        return {key: each.request for key, each in self._questions.items() if each.answer is None}

    def _take(self, answers: dict[str, Mapping[str, Any]]) -> None:
        """Hand the answers on; what has been handed on need not travel any further."""
        for key in [key for key in answers if key.startswith(f"{self.handle}.")]:
            answer = answers.pop(key)
            question = self._questions.get(key)
            if question is not None and question.answer is None:
                question.answer = answer
                question.answered.set()

    def _outcome(self) -> dict[str, Any]:
        """The outcome, which is not kept: cancelled timers of the call have this object until their time."""
        result, self._result = self._result, None
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        if result is None:
            raise CallError("the call has ended before its questions were answered; call again")
        return result

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class SuspendedCalls:
    """The calls of one upstream that go on between the requests of their clients."""

    def __init__(self) -> None:
        self.on_freed: Callable[[], None] = lambda: None
        self._calls: dict[str, SuspendedCall] = {}
        self._before: SuspendedCalls | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def taken_for(self, call: SuspendedCall) -> str:
        """What is in the way of one more call that waits for its client; empty if nothing is."""
        if call.handle in self._calls:
            return ""
        own = sum(bool(call.share) and each.share == call.share for each in self._calls.values())
        if own >= OWN_SUSPENDED:
            return f"{OWN_SUSPENDED} calls of this caller"
        return f"{MAX_SUSPENDED} calls" if len(self._calls) >= MAX_SUSPENDED else ""

    async def carry(
        self, caller: WireContext, name: str, start: Callable[..., None], work: Work
    ) -> dict[str, Any]:
        """Begin a call, or go on with the one of the same `name` that the caller was asked for."""
        key = caller.replay.key("parked", {}, name)
        handle = caller.replay.parked.pop(key, None)
        call = self._begun(caller, start, work) if handle is None else self._found(handle)
        try:
            result = await call.leg(caller)
        except InputRequired:
            call.keep()
            caller.replay.parked[key] = call.handle
            raise
        except BaseException:
            call.forget()
            raise
        call.forget()
        return result

    def follow(self, before: SuspendedCalls) -> None:
        """Find here the calls that wait there as well: their upstream is being replaced."""
        self._before = before

    def unfollow(self, before: SuspendedCalls) -> None:
        """Look there no longer, where nothing waits any more."""
        if self._before is before:
            self._before = None

    def keep(self, call: SuspendedCall) -> None:
        self._calls[call.handle] = call

    def forget(self, call: SuspendedCall) -> None:
        if self._calls.pop(call.handle, None) is not None:
            self.on_freed()

    def _begun(self, caller: WireContext, start: Callable[..., None], work: Work) -> SuspendedCall:
        if caller.replay.foreign:
            raise CallError(f"{FOREIGN}; call again")
        call = SuspendedCall(caller, self)
        start(self._run, call, work)
        return call

    async def _run(self, call: SuspendedCall, work: Work) -> None:
        """The life of a call; what it came to is kept for a while if its client is away."""
        try:
            await call.run(work)
            if call.handle in self._calls:
                with anyio.move_on_after(ASK_DEADLINE):
                    await call.collected.wait()
        finally:
            self.forget(call)

    def _found(self, handle: str) -> SuspendedCall:
        call = self._calls.get(handle)
        if call is None and self._before is not None:
            return self._before._found(handle)
        if call is None:
            raise CallError("the call that waited for this answer has ended; call again")
        return call


MAX_ROUNDS: Final = 16  # times that a modern upstream may ask a legacy client in the course of one request
MAX_IN_FLIGHT: Final = 256  # calls that one upstream is given at once; more wait, within their own deadline

_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 0.25
"""Seconds before a request is repeated for an upstream that asks for nothing but to be asked again."""

_INVALID_RESULT: Final = "returned an invalid result"
_NEXT_TIME: Final = (
    "; the tool asks by multi-round trips (2026-07-28), which this bridge does for it from the next call on: "
    "call again, or name the tool in `eras` of its mount"
)
_NO_WAY_BACK: Final = "back-channel"
"""In the words of the SDK's servers: a tool asks in the way of the legacy era during a modern call."""
_NO_WAY_YET: Final = (
    "it could not ask the client during this call, which was made in 2026-07-28 because the server had not "
    "answered the handshake of an older revision; it has answered by now, so call again"
)
_NOTHING: Final[Mapping[str, Any]] = {}


Send = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
Then = Callable[[Send, dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(eq=False)
class Exchange:
    """The way of requests to one upstream."""

    link: Link  # how the upstream is reached
    listing: ListingSession  # the session that lists
    pool: SessionPool  # the sessions of clients
    state: MountState  # how the server is doing
    _: KW_ONLY
    timeout: float  # seconds that the upstream may work on one request
    suspended: SuspendedCalls = field(default_factory=SuspendedCalls, init=False)
    ending: Drain = field(default_factory=Drain, init=False)
    current: Callable[[ToolDefinition], ToolDefinition] = field(default=lambda tool: tool, init=False)
    _by_rounds: set[str] = field(default_factory=set[str], init=False)

    def __post_init__(self) -> None:
        self._stand_in: StandIn | None = self.link.stand_in
        # Whose a request state is; all replicas have the servers of their process by the same names.
        self._whose = self.link.identity if self.link.server is None else self.link.name
        self._slots = anyio.Semaphore(MAX_IN_FLIGHT, fast_acquire=True)
        self.suspended.on_freed = self.ending.request_ended

    async def perform(
        self,
        method: str,
        params: dict[str, Any],
        context: ToolContext,
        tool: ToolDefinition | None = None,
        then: Then | None = None,
    ) -> dict[str, Any]:
        """Send a request on, once; `then` makes the result of the answer on the same session."""
        if self.state.now != "ready":
            await self.state.summoned(self.timeout)
            tool = tool and self.current(tool)
        self.state.require_ready()
        self.state.used = True
        self.state.calls += 1
        main = self.listing.main
        self.ending.working += 1
        try:
            if not isinstance(context, WireContext):
                return await self._for_program(main, method, params, context, tool, then)
            name = str(params.get("name") or params.get("uri", ""))
            by_rounds = main.modern and not context.modern and name in self._by_rounds
            key = None if by_rounds else self.pool.routing.key(context, name)
            if key is not None:
                return await self._on_own(key, main, method, params, context, tool, then)
            if main.modern and not context.modern and self.pool.routing.was_silent:
                return await self._after_silence(main, method, params, context, tool, then)
            if main.modern:
                return await self._to_modern(main, method, params, context, tool)
            if context.modern:
                _refuse_foreign(context)
            return await self._sent(main, _in_flight(context, params), method, params, tool, None, then)
        finally:
            self.ending.working -= 1
            self.ending.request_ended()

    async def _for_program(
        self,
        main: UpstreamSession,
        method: str,
        params: dict[str, Any],
        context: ToolContext,
        tool: ToolDefinition | None,
        then: Then | None,
    ) -> dict[str, Any]:
        """Send a request of the program itself; nobody but a stand-in can be asked."""
        if main.modern:
            return await self._to_modern(main, method, params, context, tool)
        apart = self._stand_in is not None or self.pool.routing.lists_apart
        key = SessionKey("legacy", canonical(carried_to(self._stand_in, _NOTHING)))
        pooled = await self._leased(key, None) if apart else None
        return await self._sent(main, _in_flight(context, params), method, params, tool, pooled, then)

    async def _on_own(
        self,
        key: SessionKey,
        main: UpstreamSession,
        method: str,
        params: dict[str, Any],
        caller: WireContext,
        tool: ToolDefinition | None,
        then: Then | None,
    ) -> dict[str, Any]:
        """Send it over a session with the older side of the server; what that cannot do goes over `main`."""
        if caller.modern:
            _refuse_foreign(caller)
        name = str(params.get("name") or params.get("uri", ""))
        try:
            if not caller.modern:
                pooled = await self._leased(key, caller)
                return await self._sent(main, _in_flight(caller, params), method, params, tool, pooled, then)

            async def work(call: SuspendedCall) -> dict[str, Any]:
                call.about = params
                pooled = await self._leased(key, caller)
                result = await self._sent(main, call, method, params, tool, pooled, then)
                await call.drained()
                return result

            carried = f"{self.link.name} {method} {name}"
            return await self.suspended.carry(caller, carried, self.pool.start, work)
        except OtherEraError:
            pass
        except UpstreamProtocolError as fault:
            if caller.modern or not main.modern or not _asks_by_rounds(fault):
                raise
            self._by_rounds.add(name)
            if not _repeatable(method, tool):
                raise UpstreamProtocolError(
                    self.link.name, fault.code, f"{fault.reason}{_NEXT_TIME}"
                ) from None
        return await self._to_modern(main, method, params, caller, tool)

    async def _after_silence(
        self,
        main: UpstreamSession,
        method: str,
        params: dict[str, Any],
        caller: WireContext,
        tool: ToolDefinition | None,
        then: Then | None,
    ) -> dict[str, Any]:
        """Send it in 2026-07-28; before it fails for want of a way to ask, the legacy era is tried anew."""
        fault: UpstreamProtocolError | None = None
        wire: dict[str, Any] = {}
        try:
            wire = await self._to_modern(main, method, params, caller, tool)
        except UpstreamProtocolError as refusal:
            fault = refusal
        if _NO_WAY_BACK in (str(fault) if fault else str(wire.get("isError") and wire.get("content"))):
            self.pool.routing.try_again()
            name = str(params.get("name") or params.get("uri", ""))
            key = self.pool.routing.key(caller, name)
            if key is not None and _repeatable(method, tool):
                return await self._on_own(key, main, method, params, caller, tool, then)
            if key is not None and await self._opens(key, caller):
                raise CallError(f"{self.link.name}: {_NO_WAY_YET}")
        if fault is not None:
            raise fault
        return wire

    async def _opens(self, key: SessionKey, caller: WireContext) -> bool:
        """True if the server opens a legacy session, of which the later calls of the client make use."""
        pooled = await self._leased(key, caller)
        try:
            await pooled.opened()
        except (OtherEraError, UpstreamUnavailableError):
            return False
        finally:
            self.pool.give_back(pooled)
        return True

    async def _leased(self, key: SessionKey, caller: WireContext | None) -> PooledSession:
        pooled = self.pool.ready(key, None if caller is None else caller.client_key)
        if pooled is None:
            pooled = await self.pool.take(key, caller, within=self.timeout)
        pooled.called = True
        return pooled

    async def _sent(
        self,
        session: UpstreamSession,
        call: CallInFlight,
        method: str,
        params: dict[str, Any],
        tool: ToolDefinition | None,
        pooled: PooledSession | None = None,
        then: Then | None = None,
    ) -> dict[str, Any]:
        """Send it over the session that lists, or over a leased one; again once pages have been opened."""
        if pooled is None:
            self.pool.uses_listing = True
        else:
            session = pooled.session
        # Counted from before it is open: what a server asks at the handshake is for this caller.
        try:
            with session.calls.of(call):
                if pooled is not None:
                    await pooled.opened()
                    if tool is not None and pooled.unsaid:
                        await pooled.check_offered(tool.name, self.pool.start_timeout)
                for _ in range(MAX_ROUNDS):
                    try:
                        result = await session.perform(
                            call, method, params, seconds=self.timeout, slots=self._slots, tool=tool
                        )
                        result = (
                            result
                            if then is None
                            else await then(
                                partial(session.perform, call, seconds=self.timeout, slots=self._slots),
                                result,
                            )
                        )
                        if call.is_asking:
                            await call.settled()
                        return result
                    except UpstreamProtocolError as fault:
                        if fault.code != URL_ELICITATION_REQUIRED:
                            raise
                        await self._opened(session, call, fault)
        except anyio.get_cancelled_exc_class():
            await call.withdrawn()
            raise
        finally:
            if pooled is not None:
                self.pool.give_back(pooled)
        raise CallError(
            f"{self.link.name}: it still asks for a page after {MAX_ROUNDS} rounds; the call was ended"
        )

    async def _opened(
        self, session: UpstreamSession, call: CallInFlight, fault: UpstreamProtocolError
    ) -> None:
        """Have the pages opened that an older server refuses a call for; the call has not run (-32042)."""
        # A client of the server's own time is told the same and repeats the call by itself; the error is
        # unknown to 2026-07-28, which asks by round trips. A page that no user may be shown is in no error.
        pages, caller, name = pages_of(fault.data), call.context, self.link.name
        if not isinstance(caller, WireContext):
            raise fault
        faults = [unshowable(self.link, page) for page in pages]
        if why := next(filter(None, faults), "" if pages else "it names none"):
            raise CallError(f"{name}: it needs a page to be opened: {why}")
        if isinstance(call, SuspendedCall):
            if obstacle := await session.questions.show(pages):
                raise CallError(f"{name}: {obstacle}{shown_in(pages)}")
            return
        if self.link.plain:
            raise fault
        missing = undeclared(ELICITATION, {"mode": "url"}, caller.declares)
        if missing or caller.modern:
            unable = ", and the client has not declared elicitation.url" if missing else ""
            raise CallError(f"{name}: it needs a page to be opened{unable}{shown_in(pages)}")
        data = {"elicitations": [shown_question(self.link, page) for page in pages]}
        raise UpstreamProtocolError(name, fault.code, fault.reason, data)

    async def _to_modern(
        self,
        session: UpstreamSession,
        method: str,
        params: dict[str, Any],
        caller: ToolContext,
        tool: ToolDefinition | None,
    ) -> dict[str, Any]:
        """Send a request until its server asks no more, or asks what a modern client is to answer."""
        client = caller if isinstance(caller, WireContext) else None
        call, pause = _in_flight(caller, params), _FIRST_PAUSE
        if client is not None and client.modern:
            params = {**params, **self._brought(client)}
        for _ in range(MAX_ROUNDS):
            wire = await self._sent(session, call, method, dict(params), tool)
            if wire.get("resultType") != "input_required":
                return wire
            asked = requests_in(self.link, wire)
            own, others = parted(self._stand_in, asked, caller)
            if others or not own:
                if client is None:
                    return wire
                others = checked(self.link, others, client)
                wire = {**wire, "inputRequests": others} if others else wire
            answers = {} if self._stand_in is None else await self._stand_in.answers(call, own)
            call.bill()
            if client is not None and client.modern and (others or not own):
                keep(answers, client)
                client.replay.server = self._whose
                return wire
            if others and client is not None:
                answers |= await answers_to(self.link.name, others, client)
            if not answers:
                await anyio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
            params = {**params, "inputResponses": answers or None, "requestState": wire.get("requestState")}
            params = {key: value for key, value in params.items() if value is not None}
        raise CallError(f"{self.link.name}: it still asks after {MAX_ROUNDS} rounds; the call was ended")

    def _brought(self, client: WireContext) -> dict[str, Any]:
        if not client.has_replay:
            return round_trip(client.params)
        is_own = client.replay.server in ("", self._whose)
        return with_kept(round_trip(client.params) if is_own else {}, client)


def _refuse_foreign(caller: WireContext) -> None:
    """Raise `CallError` for a request state that no call of this server has given out."""
    if caller.replay.foreign:
        raise CallError(f"{FOREIGN}; call again")


def _asks_by_rounds(fault: UpstreamProtocolError) -> bool:
    """True if a legacy call failed because its handler answers with `input_required`."""
    # The SDK's servers say so in these words; no older revision has a result that they could send.
    return fault.code == INTERNAL_ERROR and _INVALID_RESULT in str(fault).lower()


def _repeatable(method: str, tool: ToolDefinition | None) -> bool:
    """True if a request may be sent a second time: it reads, or its tool says that this changes nothing."""
    return method != "tools/call" or (tool is not None and tool.repeatable)


def _in_flight(caller: ToolContext, params: Mapping[str, Any]) -> CallInFlight:
    client = caller.client_key if isinstance(caller, WireContext) else None
    return CallInFlight(caller, client=client, about=params)


def fault_of_task() -> str:
    return (
        f"it began a task although no client declared {TASKS}, which this bridge does not carry; "
        "the task may still run on the server"
    )
