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

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, field
from functools import partial
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.backoff import Drain
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import FOREIGN
from mcp_toolset.context.task import TASKS
from mcp_toolset.errors import CallError, UpstreamProtocolError, UpstreamUnavailableError
from mcp_toolset.protocol.eras import round_trip
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, URL_ELICITATION_REQUIRED
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.core.result import ELICITATION
from mcp_toolset.upstream.known_server import MountState
from mcp_toolset.upstream.resting import ListingSession
from mcp_toolset.upstream.sessions.call_in_flight import CallInFlight
from mcp_toolset.upstream.sessions.client_questions import MAX_ASKED
from mcp_toolset.upstream.sessions.pool import SessionPool
from mcp_toolset.upstream.sessions.pooled_session import OtherEraError, PooledSession
from mcp_toolset.upstream.sessions.question_shapes import (
    answers_to,
    checked,
    pages_of,
    requests_in,
    shown_in,
    shown_question,
    undeclared,
    unshowable,
)
from mcp_toolset.upstream.sessions.session import UpstreamSession
from mcp_toolset.upstream.sessions.session_key import SessionKey, canonical
from mcp_toolset.upstream.sessions.stand_in import StandIn, carried_to, keep, parted, with_kept
from mcp_toolset.upstream.suspended import SuspendedCall, SuspendedCalls
from mcp_toolset.upstream.target import Link

MAX_ROUNDS: Final = 16
"""Times that a modern upstream may ask a legacy client in the course of one request."""

MAX_IN_FLIGHT: Final = 256
"""Calls that one upstream is given at once; more wait, within their own deadline."""

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
    """The way of requests to one upstream.

    Attributes:
        link: How the upstream is reached.
        listing: The session that lists.
        pool: The sessions of clients.
        state: How the server is doing.
        timeout: Seconds that the upstream may work on one request.
        suspended: The calls that go on while their clients are asked.
        current: The definition of a tool as it is listed now; raises `CallError` if it is another tool.
    """

    link: Link
    listing: ListingSession
    pool: SessionPool
    state: MountState
    _: KW_ONLY
    timeout: float
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
        """Send a request of a client on, once, and return the answer in wire form.

        Args:
            method: `tools/call`, `prompts/get`, `resources/read` or `completion/complete`.
            params: Its parameters, without what belongs to one connection.
            context: Whose request it is.
            tool: The definition of the tool that is called.
            then: Makes the result of the answer, with further requests over the same session (legacy).
        """
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
        """Whether the server opens a legacy session, of which the later calls of the client make use."""
        pooled = await self._leased(key, caller)
        try:
            await pooled.opened()
        except (OtherEraError, UpstreamUnavailableError):
            return False
        finally:
            self.pool.give_back(pooled)
        return True

    async def _leased(self, key: SessionKey, caller: WireContext | None) -> PooledSession:
        """A session of its key for one call, which may have to be opened first."""
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
                            else await then(partial(self._again, session, call), result)
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

    async def _again(
        self, session: UpstreamSession, call: CallInFlight, method: str, params: dict[str, Any]
    ) -> dict[str, Any]:
        """A further request in the course of a call."""
        return await session.perform(call, method, params, seconds=self.timeout, slots=self._slots)

    async def _opened(
        self, session: UpstreamSession, call: CallInFlight, fault: UpstreamProtocolError
    ) -> None:
        """Have the pages opened that an older server refuses a call for; the call has not run (-32042).

        A client of the server's own time is told the same and repeats the call by itself; the error
        is unknown to 2026-07-28, which asks by round trips. A page that no user may be shown is in no error.
        """
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
            asked = requests_in(wire)
            if len(asked) > MAX_ASKED:
                raise CallError(
                    f"{self.link.name}: it asks for {len(asked)} things at once, more than {MAX_ASKED}"
                )
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
        """What a modern client brings when it repeats a request, and what the lent model has written."""
        if not client.has_replay:
            return round_trip(client.params)
        is_own = client.replay.server in ("", self._whose)
        return with_kept(round_trip(client.params) if is_own else {}, client)


def _refuse_foreign(caller: WireContext) -> None:
    """Refuse a request state that no call of this server has given out.

    Raises:
        CallError: the request has such a state.
    """
    if caller.replay.foreign:
        raise CallError(f"{FOREIGN}; call again")


def _asks_by_rounds(fault: UpstreamProtocolError) -> bool:
    """Whether a legacy call failed because its handler answers with `input_required`.

    The SDK's servers say so in these words; no older revision has a result that they could send.
    """
    return fault.code == INTERNAL_ERROR and _INVALID_RESULT in str(fault).lower()


def _repeatable(method: str, tool: ToolDefinition | None) -> bool:
    """Whether a request may be sent a second time: it reads, or its tool says that this changes nothing."""
    return method != "tools/call" or (tool is not None and tool.repeatable)


def _in_flight(caller: ToolContext, params: Mapping[str, Any]) -> CallInFlight:
    client = caller.client_key if isinstance(caller, WireContext) else None
    return CallInFlight(caller, client=client, about=params)


def fault_of_task() -> str:
    """Why the answer to a call is no result: it is a task that was begun instead."""
    return (
        f"it began a task although no client declared {TASKS}, which this bridge does not carry; "
        "the task may still run on the server"
    )
