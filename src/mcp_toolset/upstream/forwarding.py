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
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, field
from functools import partial
from typing import Any, Final

import anyio

from mcp_toolset import errors
from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.tasks import WorkingTime
from mcp_toolset.context.request import ASK_TIMEOUT, WireContext
from mcp_toolset.context.request_state import FOREIGN
from mcp_toolset.context.task import POLL_MS, RELATED, TASKS, TaskContext
from mcp_toolset.protocol import json_rpc
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.eras import final_result, round_trip
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.definition import ToolDefinition, task_support
from mcp_toolset.tools.result import ELICITATION, InputRequired, mapping_of
from mcp_toolset.transports.requests import calling
from mcp_toolset.upstream import questions
from mcp_toolset.upstream.in_flight import CallInFlight, StandIn, carried_to, keep, parted, with_kept
from mcp_toolset.upstream.mount_state import MountState
from mcp_toolset.upstream.resting import ListingSession
from mcp_toolset.upstream.routing import SessionKey, canonical
from mcp_toolset.upstream.session import (
    OWN_EXTENSIONS,
    OtherEraError,
    OwnExtensions,
    PooledSession,
    SessionPool,
    UpstreamSession,
)
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
        """Ask the client by the request that waits for this call now, or by its next one."""
        if taken := self._suspended.taken_for(self):
            raise json_rpc.MCPError(
                json_rpc.INVALID_REQUEST, f"{method} is refused: {taken} wait for answers already"
            )
        # From now on: calls that ask at once are counted before the first of their clients is told.
        self._suspended.keep(self)
        key = f"{self.handle}.{self.asked}"
        question = self._questions[key] = _Question(questions.for_modern(method, params))
        self._tell()
        try:
            with anyio.move_on_after(ASK_TIMEOUT):
                await question.answered.wait()
            if question.answer is None:
                self._scope.cancel()
                raise json_rpc.MCPError(
                    json_rpc.INTERNAL_ERROR, f"the client gave no answer within {ASK_TIMEOUT:g} s"
                )
            return dict(question.answer)
        finally:
            del self._questions[key]
            self._tell()

    async def leg(self, caller: WireContext) -> dict[str, Any]:
        self.context = caller
        self._legs += 1
        if self._legs > MAX_LEGS:
            self._scope.cancel()
            raise errors.CallError(f"the call was repeated {MAX_LEGS} times and still asks; it was ended")
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
            raise errors.CallError("the call has ended before its questions were answered; call again")
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
        """The limit that one more call that waits for its client would exceed; empty for none."""
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
            self.keep(call)
            caller.replay.parked[key] = call.handle
            raise
        except BaseException:
            self.forget(call)
            raise
        self.forget(call)
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
            raise errors.CallError(f"{FOREIGN}; call again")
        call = SuspendedCall(caller, self)
        start(self._run, call, work)
        return call

    async def _run(self, call: SuspendedCall, work: Work) -> None:
        """The life of a call; what it came to is kept for a while if its client is away."""
        try:
            await call.run(work)
            if call.handle in self._calls:
                with anyio.move_on_after(ASK_TIMEOUT):
                    await call.collected.wait()
        finally:
            self.forget(call)

    def _found(self, handle: str) -> SuspendedCall:
        call = self._calls.get(handle)
        if call is None and self._before is not None:
            return self._before._found(handle)
        if call is None:
            raise errors.CallError("the call that waited for this answer has ended; call again")
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


class Drain:
    """The end of one run, and the requests in flight that it waits for."""

    def __init__(self) -> None:
        self.working = 0
        self._scope: anyio.CancelScope | None = None
        self._idle: anyio.Event | None = None
        self._is_closing = False

    @contextmanager
    def open(self) -> Generator[None]:
        with anyio.CancelScope() as self._scope:
            if self._is_closing:
                self._scope.cancel()
            try:
                yield
            finally:
                self._scope, self._is_closing = None, False

    def request_ended(self) -> None:
        if self._idle is not None:
            self._idle.set()

    async def close(self, within: float, is_busy: Callable[[], bool]) -> None:
        """Wait until nothing is in flight, requests or other work, at most `within` seconds; then end."""
        try:
            with anyio.move_on_after(within):
                while self.working or is_busy():
                    self._idle = anyio.Event()
                    await self._idle.wait()
        finally:
            self._is_closing = True
            if self._scope is not None:
                self._scope.cancel()


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
        key = SessionKey("legacy", canonical(carried_to(self.link, None)))
        pooled = await self.pool.lease(key, None, within=self.timeout) if apart else None
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
                pooled = await self.pool.lease(key, caller, within=self.timeout)
                call = CallInFlight(caller, client=pooled.owner, about=params)
                return await self._sent(main, call, method, params, tool, pooled, then)

            async def work(call: SuspendedCall) -> dict[str, Any]:
                call.about = params
                pooled = await self.pool.lease(key, caller, within=self.timeout)
                result = await self._sent(main, call, method, params, tool, pooled, then)
                await call.drained()
                return result

            carried = f"{self.link.name} {method} {name}"
            return await self.suspended.carry(caller, carried, self.pool.start, work)
        except OtherEraError:
            pass
        except errors.UpstreamProtocolError as fault:
            if caller.modern or not main.modern or not _asks_by_rounds(fault):
                raise
            self._by_rounds.add(name)
            if not _repeatable(method, tool):
                raise errors.UpstreamProtocolError(
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
        fault: errors.UpstreamProtocolError | None = None
        wire: dict[str, Any] = {}
        try:
            wire = await self._to_modern(main, method, params, caller, tool)
        except errors.UpstreamProtocolError as refusal:
            fault = refusal
        if _NO_WAY_BACK in (str(fault) if fault else str(wire.get("isError") and wire.get("content"))):
            self.pool.routing.try_again()
            name = str(params.get("name") or params.get("uri", ""))
            key = self.pool.routing.key(caller, name)
            if key is not None and _repeatable(method, tool):
                return await self._on_own(key, main, method, params, caller, tool, then)
            if key is not None and await self._opens(key, caller):
                raise errors.CallError(f"{self.link.name}: {_NO_WAY_YET}")
        if fault is not None:
            raise fault
        return wire

    async def _opens(self, key: SessionKey, caller: WireContext) -> bool:
        """True if the server opens a legacy session, of which the later calls of the client make use."""
        pooled = await self.pool.lease(key, caller, within=self.timeout)
        try:
            await pooled.opened()
        except (OtherEraError, errors.UpstreamUnavailableError):
            return False
        finally:
            self.pool.give_back(pooled)
        return True

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
                        if call.questions:
                            await call.settled()
                        return result
                    except errors.UpstreamProtocolError as fault:
                        if fault.code != json_rpc.URL_ELICITATION_REQUIRED:
                            raise
                        await self._opened(session, call, fault)
        except anyio.get_cancelled_exc_class():
            await call.withdrawn()
            raise
        finally:
            if pooled is not None:
                self.pool.give_back(pooled)
        raise errors.CallError(
            f"{self.link.name}: it still asks for a page after {MAX_ROUNDS} rounds; the call was ended"
        )

    async def _opened(
        self, session: UpstreamSession, call: CallInFlight, fault: errors.UpstreamProtocolError
    ) -> None:
        """Ask to open the pages without which an older server refuses a call; it has not run (-32042)."""
        # A client of the server's own time is told the same and repeats the call by itself; the error is
        # unknown to 2026-07-28, which asks by round trips. A page that no user may be shown is in no error.
        pages, caller, name = questions.pages_of(fault.data), call.context, self.link.name
        if not isinstance(caller, WireContext):
            raise fault
        faults = [questions.unshowable(self.link, page) for page in pages]
        if why := next(filter(None, faults), "" if pages else "it names none"):
            raise errors.CallError(f"{name}: it needs a page to be opened: {why}")
        if isinstance(call, SuspendedCall):
            if obstacle := await session.questions.show(pages):
                raise errors.CallError(f"{name}: {obstacle}{questions.shown_in(pages)}")
            return
        if self.link.plain:
            raise fault
        missing = questions.undeclared(ELICITATION, {"mode": "url"}, caller.declares)
        if missing or caller.modern:
            unable = ", and the client has not declared elicitation.url" if missing else ""
            raise errors.CallError(f"{name}: it needs a page to be opened{unable}{questions.shown_in(pages)}")
        data = {"elicitations": [questions.shown_question(self.link, page) for page in pages]}
        raise errors.UpstreamProtocolError(name, fault.code, fault.reason, data)

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
            asked = questions.requests_in(self.link, wire)
            own, others = parted(self._stand_in, asked, caller)
            if others or not own:
                if client is None:
                    return wire
                others = questions.checked(self.link, others, client)
                wire = {**wire, "inputRequests": others} if others else wire
            answers = {} if self._stand_in is None else await self._stand_in.answers(call, own)
            call.bill()
            if client is not None and client.modern and (others or not own):
                keep(answers, client)
                client.replay.server = self._whose
                return wire
            if others and client is not None:
                answers |= await questions.answers_to(self.link.name, others, client)
            if not answers:
                await anyio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)
            params = {**params, "inputResponses": answers or None, "requestState": wire.get("requestState")}
            params = {key: value for key, value in params.items() if value is not None}
        raise errors.CallError(
            f"{self.link.name}: it still asks after {MAX_ROUNDS} rounds; the call was ended"
        )

    def _brought(self, client: WireContext) -> dict[str, Any]:
        if not client.has_replay:
            return round_trip(client.params)
        is_own = client.replay.server in ("", self._whose)
        return with_kept(round_trip(client.params) if is_own else {}, client)


def _refuse_foreign(caller: WireContext) -> None:
    """Raise `CallError` for a request state that no call of this server has given out."""
    if caller.replay.foreign:
        raise errors.CallError(f"{FOREIGN}; call again")


def _asks_by_rounds(fault: errors.UpstreamProtocolError) -> bool:
    """True if a legacy call failed because its handler answers with `input_required`."""
    # The SDK's servers say so in these words; no older revision has a result that they could send.
    return fault.code == json_rpc.INTERNAL_ERROR and _INVALID_RESULT in str(fault).lower()


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


LEAST_PAUSE: Final = 0.02  # seconds between two requests for the state of a task, at least
MISSES: Final = 5  # requests for the state in a row that may be lost before a client that waits is told
LONGEST_PAUSE: Final = 30.0  # seconds between two attempts to reach a server that has a task and is away
TELLING: Final = 2.0  # seconds in which a server is told that its task is cancelled

DECLARED: Final[Mapping[str, Any]] = {OWN_EXTENSIONS: OwnExtensions({TASKS: {}})}
"""Members of the `_meta` of a request that may begin a task, or is about one."""

Wire = Mapping[str, Any]


class FollowedTask:
    """One task of a server, while the bridge follows it."""

    def __init__(self, exchange: Exchange, id: str, context: ToolContext, wait: float) -> None:
        self._wait = wait
        self._teller = Teller(context)
        self._exchange = exchange
        self._name = exchange.link.name
        self._id = id
        self._context = context
        self._way = context.way if isinstance(context, TaskContext) else None
        self._time: WorkingTime | None = None
        self._answered: set[str] = set()

    async def within_deadline(self, state: Wire) -> dict[str, Any]:
        try:
            with anyio.fail_after(self._wait) as scope:
                self._time = WorkingTime(scope)
                return await self.result(state)
        except TimeoutError:
            raise too_long(self._name, self._wait) from None

    async def result(self, state: Wire) -> dict[str, Any]:
        ending = self._exchange.ending
        ending.working += 1
        try:
            return await self._followed(state)
        except anyio.get_cancelled_exc_class():
            if self._way is None or self._way.withdrawn or not self._way.outlives:
                await self._cancel()
            raise
        finally:
            ending.working -= 1
            ending.request_ended()

    async def _followed(self, state: Wire) -> dict[str, Any]:
        """Its result; `state` is the handle just given, or empty if an earlier run got it."""
        if state:
            await self._teller.tell(state)
            if state.get("status") == "working":
                await self._pause(state)
            state = {}
        misses = 0
        while True:
            if state:
                misses = 0
                await self._take(state)
                if state.get("status") == "completed":
                    return final_result(mapping_of(state.get("result")))
                await self._pause(state)
            try:
                state = await self._ask("tasks/get", {"taskId": self._id})
            except errors.UpstreamUnavailableError:
                misses += 1
                # A client that has a handle may ask for as long as the task is kept.
                if misses >= MISSES and (self._way is None or not self._way.begun):
                    raise
                state = {}
                await self._pause({"pollIntervalMs": min(POLL_MS * misses, int(LONGEST_PAUSE * 1000))})

    async def _take(self, state: Wire) -> None:
        status, said = state.get("status"), _said(state)
        if status == "failed":
            error = mapping_of(state.get("error"))
            code = error.get("code")
            link, data = self._exchange.link, error.get("data")
            told = link.secrets.scrubbed(
                str(error.get("message") or said or "the task has failed")[: json_rpc.MAX_ERROR]
            )
            data = link.secrets.cleaned(data) if link.secrets.takes(data) else None
            if not isinstance(code, int) or code == json_rpc.URL_ELICITATION_REQUIRED:
                code, data = json_rpc.INTERNAL_ERROR, None
            raise errors.UpstreamProtocolError(self._name, code, told, data)
        if status == "cancelled":
            if self._way is not None:
                self._way.ended_upstream = True
            raise errors.CallError(
                f"{self._name}: the server has cancelled the task" + (f": {said}" if said else "")
            )
        if status not in ("working", "input_required", "completed"):
            raise errors.InvalidOutputError(
                f"{self._name}: its task does not follow the protocol: status {status!r}"
            )
        await self._teller.tell(state)
        if status == "input_required":
            await self._answer(state)

    async def _answer(self, state: Wire) -> None:
        context = self._context
        requests: Mapping[str, Wire] = {
            key: each
            for key, each in questions.requests_in(self._exchange.link, state).items()
            if key not in self._answered
        }
        if not isinstance(context, WireContext):
            raise errors.CallError(f"{self._name}: its task asks the client, and this call has none")
        requests = questions.checked(self._exchange.link, requests, context)
        if not requests:
            return
        if context.modern:
            # The id of the task sets its questions apart from those of other tasks in the same call.
            places = {key: f"{self._id}/{key}" for key in requests}
            given = context.replay.answers
            if missing := {places[key]: requests[key] for key in requests if places[key] not in given}:
                raise InputRequired(missing)
            answers: dict[str, Any] = {key: given[place] for key, place in places.items()}
        else:
            answers = await self._asked(requests, context)
        self._answered |= answers.keys()
        await self._ask("tasks/update", {"taskId": self._id, "inputResponses": answers})

    async def _asked(self, requests: Mapping[str, Wire], context: WireContext) -> dict[str, Any]:
        if self._time is not None:
            self._time.pause()
        try:
            return dict(await questions.answers_to(self._name, requests, context))
        finally:
            if self._time is not None:
                self._time.resume()

    async def _pause(self, state: Wire) -> None:
        seconds = max((milliseconds(state) or POLL_MS) / 1000, LEAST_PAUSE)
        if self._way is not None:
            await self._way.wait_for_interest(seconds)
        else:
            await anyio.sleep(seconds)

    async def _ask(self, method: str, params: dict[str, Any]) -> Wire:
        exchange = self._exchange
        if exchange.state.now != "ready":
            await exchange.state.summoned(exchange.timeout)
        exchange.state.require_ready()
        opts: CallOptions = {"timeout": exchange.timeout}
        try:
            return await exchange.listing.main.request(
                method, {**params, "_meta": dict(DECLARED)}, context=self._context, opts=opts
            )
        except TimeoutError:
            raise errors.UpstreamUnavailableError(self._name, f"no answer to {method}") from None

    async def _cancel(self) -> None:
        with anyio.move_on_after(TELLING, shield=True):
            try:
                await self._ask("tasks/cancel", {"taskId": self._id})
            except errors.UpstreamError:
                return


class Teller:
    """Tells the client of a call what its task is doing."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._said = ""
        self._steps = 0

    async def tell(self, state: Wire) -> None:
        message, ttl = _said(state), state.get("ttlMs")
        if isinstance(self._context, TaskContext):
            way = self._context.way
            kept = ttl if isinstance(ttl, int) else None
            way.begin(ttl_ms=kept, poll_ms=milliseconds(state), message=message)
            if way.begun:
                return
        if message and message != self._said and self._context.wants_progress:
            self._said = message
            self._steps += 1
            await self._context.progress(self._steps, message=message)


def too_long(server: str, seconds: float) -> errors.CallError:
    return errors.CallError(
        f"{server}: the task has not ended within {seconds:g} s, and was cancelled; set a longer "
        f"`task_timeout` for this server, or call it from a client that declares {TASKS}"
    )


def milliseconds(state: Wire) -> int | None:
    found = state.get("pollIntervalMs")
    return found if isinstance(found, int) and found > 0 else None


def _said(state: Wire) -> str | None:
    message = state.get("statusMessage")
    return message if isinstance(message, str) else None


_ENDED: Final = ("completed", "failed", "cancelled")


@dataclass(eq=False)
class UpstreamTasks:
    """The tasks of one mounted server."""

    exchange: Exchange  # the way of requests to it
    wait: float  # seconds that a client which takes no tasks waits; 0 if it does not wait
    needed: set[str] = field(default_factory=set[str])  # run only as tasks, as far as said

    def is_for(self, context: ToolContext, tool: ToolDefinition) -> bool:
        support = "" if self.exchange.listing.main.modern else task_support(tool)
        if not context.is_task:
            return (tool.name in self.needed or support == "required") and not self._refuses(context)
        return self.exchange.listing.main.modern or bool(support)

    def is_needed(
        self, fault: errors.UpstreamProtocolError, context: ToolContext, tool: ToolDefinition
    ) -> bool:
        """True if a call failed because its tool runs only as a task, and is to be made as one instead."""
        if tool.name in self.needed or self._refuses(context):
            return False
        required = mapping_of(mapping_of(fault.data).get("requiredCapabilities"))
        declares = TASKS in mapping_of(required.get("extensions"))
        if fault.code != json_rpc.MISSING_REQUIRED_CLIENT_CAPABILITY or not declares:
            return False
        self.needed.add(tool.name)
        return True

    def _refuses(self, context: ToolContext) -> bool:
        """True if a client is told to declare the extension, rather than waits."""
        return not self.wait and isinstance(context, WireContext) and context.modern

    async def call(
        self, method: str, params: dict[str, Any], context: ToolContext, tool: ToolDefinition
    ) -> dict[str, Any]:
        if not self.exchange.listing.main.modern:
            then = partial(self._followed, context)
            return await self.exchange.perform(method, {**params, "task": {}}, context, tool, then)
        replay = context.replay if isinstance(context, WireContext) else None
        key = "" if replay is None else replay.key("task", {}, f"task {self.exchange.link.name} {tool.name}")
        id = None if replay is None else replay.parked.get(key)
        state: Wire = {}
        if id is None:
            declared = {**params.get("_meta", {}), **DECLARED}
            wire = await self.exchange.perform(method, {**params, "_meta": declared}, context, tool)
            if wire.get("resultType") != "task":
                return wire
            state, id = wire, self._id_in(wire)
            if replay is not None:
                replay.parked[key] = id
        task = FollowedTask(self.exchange, id, context, self.wait)
        if isinstance(context, TaskContext):
            with context.way.following():
                return await task.result(state)
        return await task.within_deadline(state)

    async def _followed(self, context: ToolContext, send: Send, wire: dict[str, Any]) -> dict[str, Any]:
        """The result of a task of 2025-11-25; of a call that has become none, its own result."""
        created = wire.get("task")
        if created is None:
            return wire
        state = mapping_of(created)
        id = self._id_in(state)
        try:
            with anyio.fail_after(None if isinstance(context, TaskContext) else self.wait):
                return _plain(await self._ended(context, send, id, state))
        except TimeoutError:
            await _cancel(send, id)
            raise too_long(self.exchange.link.name, self.wait) from None
        except anyio.get_cancelled_exc_class():
            await _cancel(send, id)
            raise

    async def _ended(self, context: ToolContext, send: Send, id: str, state: Wire) -> dict[str, Any]:
        teller = Teller(context)
        while True:
            status = state.get("status")
            told = {**state, "ttlMs": state.get("ttl"), "pollIntervalMs": state.get("pollInterval")}
            await teller.tell(told)
            if status in _ENDED or status == "input_required":
                try:
                    return await self._outcome(context, send, id, status)
                except errors.UpstreamTimeoutError:
                    if status in _ENDED:
                        raise
            seconds = max((milliseconds(told) or POLL_MS) / 1000, LEAST_PAUSE)
            if isinstance(context, TaskContext):
                await context.way.wait_for_interest(seconds)
            else:
                await anyio.sleep(seconds)
            state = await send("tasks/get", {"taskId": id})

    async def _outcome(self, context: ToolContext, send: Send, id: str, status: object) -> dict[str, Any]:
        """Its result; while it waits for input, the server asks the client by this request."""
        if status == "cancelled":
            if isinstance(context, TaskContext):
                context.way.ended_upstream = True
            raise errors.CallError(f"{self.exchange.link.name}: the server has cancelled the task")
        return await send("tasks/result", {"taskId": id})

    def _id_in(self, state: Wire) -> str:
        id = state.get("taskId")
        if not isinstance(id, str):
            raise errors.InvalidOutputError(
                f"{self.exchange.link.name}: its task does not follow the protocol: it has no taskId"
            )
        return id


async def _cancel(send: Send, id: str) -> None:
    with anyio.move_on_after(TELLING, shield=True):
        try:
            await send("tasks/cancel", {"taskId": id})
        except errors.UpstreamError:
            return


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what relates it to a task of the server."""
    meta = {key: value for key, value in mapping_of(result.get("_meta")).items() if key != RELATED}
    rest = {key: value for key, value in result.items() if key != "_meta"}
    return {**rest, "_meta": meta} if meta else rest
