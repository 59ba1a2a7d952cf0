"""`RoundTrips`: seals the state of a call that asks its client, and opens it in the next run (2026-07-28).

A server asks by ending the call with `input_required`. The client then calls again, with its answers in
`inputResponses` and with the `requestState` that it was given. The bridge seals a request state with a key of
this server or of all replicas, and binds it to the tool, the arguments and the principal. A state expires,
and can be used once.

If a mounted modern server asks and the caller has a principal, the state of that server is sealed inside
ours. A call of a legacy server cannot be run again: it stays in flight, and the state holds its handle
(`suspended`).
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.calls.suspended import Sealer, Suspended, SuspendedStore, digest_of
from mcp_toolset.errors import CallError, RequestStateError, StoreError
from mcp_toolset.protocol.eras import ROUND_TRIP, round_trip
from mcp_toolset.security.key_ring import KeyRing
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import AskUser, ToolResult

STATE_TTL: Final = 600.0  # Seconds that the client and its user have for an answer (2026-07-28).
MAX_STATE: Final = 262_144  # Characters of a state; it carries the answers that the call has had so far.
MAX_USED: Final = 10_000  # Used states of a principal that are remembered; older ones are refused.

FOREIGN: Final = "the request state is none of this server's, or the key that sealed it is gone"
"""The reason for refusing a state that no key of this server has sealed."""

_PURPOSE: Final = "request state"
_log = logging.getLogger("mcp_toolset.ask")

Wire = Mapping[str, Any]
_NOTHING: Final[Wire] = {}
_NO_TOOLS: Final[Mapping[str, str]] = {}
_USED_BEFORE: Final = "it was used before"


@dataclass(slots=True)
class Replay:
    """The questions of one call so far, and their answers."""

    call_id: str  # The id of the call, the same each time it is run.
    answers: dict[str, Wire] = field(default_factory=dict[str, Wire])  # The client's answers, by replay key.
    # The question whose answer is the call's result, with the tool that asked it.
    final: tuple[str, AskUser] | None = None
    # The parameters of a mounted server's round trip: its request state, and the answers for it.
    passed_on: dict[str, Any] = field(default_factory=dict[str, Any])
    server: str = ""  # The key of the mounted server that `passed_on` is for; empty if unknown.
    # The handles of calls that go on upstream meanwhile, by replay key.
    parked: dict[str, str] = field(default_factory=dict[str, str])
    foreign: bool = False  # True if the call has a request state that this server has not sealed.
    # Answers that the client has sent without a state, before the call asks.
    offered: Wire = field(default_factory=dict[str, Any])
    before: Suspended | None = None  # The opened state of the call; `None` in its first run.
    # The arguments as hooks had changed them when the call asked; see `ToolCall.edits`.
    edits: Wire = field(default_factory=dict[str, Any])
    # Uses that the last run has counted, and this run not yet; see `ToolContext.counts`.
    counted: list[str] = field(default_factory=list[str])
    _counting: list[str] = field(default_factory=list[str])
    _asked: dict[str, int] = field(default_factory=dict[str, int])

    def saved(self) -> dict[str, Any]:
        """The call for the next run, in JSON form."""
        final = None
        if self.final is not None:
            tool, asked = self.final
            final = [tool, asked.question, None if asked.schema is None else dict(asked.schema)]
        known = {"answers": self.answers, "final": final, "parked": self.parked, "edits": self.edits}
        counted = [*self.counted, *self._counting]
        return {"call": self.call_id, "server": self.server, "counted": counted, **known}

    @classmethod
    def of_saved(cls, saved: Wire) -> Replay:
        """The call that `saved` has returned."""
        answers, parked = dict(saved["answers"]), dict(saved["parked"])
        state = cls(saved["call"], answers=answers, parked=parked, edits=saved["edits"])
        state.server, state.counted = saved["server"], list(saved.get("counted", ()))
        if saved["final"]:
            tool, question, schema = saved["final"]
            state.final = (tool, AskUser(question, schema))
        return state

    def again(self, answers: Wire, relayed: Wire | None = None) -> Replay:
        """A copy for the next run in this process, with `answers`; `relayed` is a server's question."""
        after = Replay.of_saved(self.saved())
        if relayed is None:
            after.passed_on = dict(self.passed_on)
            after.answers |= answers
            return after
        after.passed_on = {"inputResponses": dict(answers)}
        if (state := relayed.get("requestState")) is not None:
            after.passed_on["requestState"] = state
        return after

    def with_passed_on(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a request to a mounted server: the server's own round trip in place of ours."""
        plain = {key: value for key, value in params.items() if key not in ROUND_TRIP}
        return {**plain, **self.passed_on}

    def counts(self, what: str) -> bool:
        """True if this run must count a use; false if an earlier run has counted it."""
        self._counting.append(what)
        if known := what in self.counted:
            self.counted.remove(what)
        return not known

    def key(self, method: str, params: Wire, name: str = "") -> str:
        """The key of a request: the same in each run, different for equal requests; a name is kept."""
        base = name or digest_of([method, params])[:22]
        count = self._asked[base] = self._asked.get(base, 0) + 1
        return base if name and count == 1 else f"{base}.{count}"

    def answer_to(self, key: str, name: str) -> Wire | None:
        """The client's answer to a request, if there is one; `offered` ones are for named requests only."""
        answer = self.answers.get(key)
        if answer is None and name and isinstance(self.offered.get(key), Mapping):
            answer = self.answers[key] = cast("Wire", self.offered[key])
        return answer

    def final_of(self, tool: str) -> AskUser | None:
        """The question whose answer is the result, if this tool has asked it."""
        return self.final[1] if self.final is not None and self.final[0] == tool else None


@dataclass(slots=True)
class _UsedStates:
    """The used states of one principal."""

    # The time at which each remembered state was issued, by the id of the state.
    issued: OrderedDict[str, float] = field(default_factory=OrderedDict[str, float])
    forgotten: float = float("-inf")  # The latest time of issue among the forgotten states.
    until: float = 0.0  # The time at which the last of these states expires.

    def add(self, state: Suspended) -> str:
        """Mark a state as used; return the reason if it is refused, else an empty text."""
        if state.id in self.issued:
            return _USED_BEFORE
        if state.issued <= self.forgotten:
            return f"it came too late, after {MAX_USED} others"
        self.issued[state.id] = state.issued
        self.until = max(self.until, state.until)
        while len(self.issued) > MAX_USED:
            self.forgotten = max(self.forgotten, self.issued.popitem(last=False)[1])
        return ""


class RoundTrips:
    """Seals and opens the request states of one server's calls."""

    def __init__(
        self,
        *,
        store: SuspendedStore | None = None,
        ttl: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Seal with the keys of `store`, else with a new key; `ttl` is that of the store unless given."""
        self._store = store
        self._own = KeyRing.fresh() if store is None else None
        if ttl is None:
            ttl = STATE_TTL if store is None else store.ttl
        self._ttl = ttl
        self._sealer = Sealer(_PURPOSE, self._keys, clock=clock)
        self._now = clock
        self._used: OrderedDict[str | None, _UsedStates] = OrderedDict()
        self._once = None if store is None else store.used(_PURPOSE)

    async def claim(self, replay: Replay, tools: Mapping[str, str] = _NO_TOOLS) -> None:
        """Use up the state of a call: check the digests of `tools`, and that no replica has used it."""
        if replay.before is None:
            return
        try:
            self._sealer.require_same(replay.before, tools)
            if self._once is not None and not await self._once.use(replay.before.id, ttl=2 * self._ttl):
                raise self._sealer.refused(_USED_BEFORE)
        except RequestStateError as fault:
            raise _logged(fault) from None
        except StoreError as fault:
            raise CallError(str(fault)) from None

    def resume(self, params: Wire, name: str, arguments: Wire, principal: str | None, call_id: str) -> Replay:
        """Read the round trip in a request: open its state, and take the client's answers."""
        sent = round_trip(params)
        token = sent.get("requestState")
        if not isinstance(token, str) or (principal is None and not self._sealer.is_own(token)):
            offered = _answers_in(sent) if token is None else _NOTHING
            return Replay(call_id, passed_on=sent, foreign=token is not None, offered=offered)
        try:
            state = self._opened(token, digest_of([name, arguments]), principal)
        except RequestStateError as fault:
            raise _logged(fault) from None
        replay = _restored(state.data, _answers_in(sent))
        replay.before = state
        return replay

    def suspend(
        self,
        replay: Replay,
        requests: Wire,
        name: str,
        arguments: Wire,
        principal: str | None,
        tools: Mapping[str, str] = _NO_TOOLS,
    ) -> ToolResult:
        """The `input_required` result that asks the client these requests."""
        state = {"asked": list(requests), "upstream": replay.passed_on, **replay.saved()}
        return self._asking(state, requests, digest_of([name, arguments]), principal, tools)

    def relayed(
        self,
        result: ToolResult,
        replay: Replay,
        name: str,
        arguments: Wire,
        principal: str | None,
        tools: Mapping[str, str] = _NO_TOOLS,
    ) -> ToolResult:
        """A mounted server's `input_required`, whose state is sealed in one of ours.

        The result is returned unchanged if the next run needs nothing from our state (answers, edits or
        counts), and there is no principal or no state of the mounted server.
        """
        saved = replay.saved()
        is_kept = bool(replay.answers or replay.edits or saved["counted"])
        if not is_kept and (principal is None or result.wire.get("requestState") is None):
            return result
        state = {"asked": (), "relayed": result.wire.get("requestState"), **saved}
        requests: Wire = result.wire.get("inputRequests") or _NOTHING
        return self._asking(state, requests, digest_of([name, arguments]), principal, tools)

    def _asking(
        self, data: Wire, requests: Wire, digest: str, principal: str | None, tools: Mapping[str, str]
    ) -> ToolResult:
        """An `input_required` result with `data` in its sealed state."""
        token = self._sealer.seal(data, who=principal, what=digest, ttl=self._ttl, tools=tools)
        if len(token) > MAX_STATE:
            raise CallError(
                f"the answers to this call's questions are too long to go on: the request state has "
                f"{len(token)} characters, and {MAX_STATE} are allowed; ask for less"
            )
        wire: dict[str, Any] = {"resultType": "input_required", "requestState": token}
        if requests:
            wire["inputRequests"] = dict(requests)
        return ToolResult(wire)

    def _keys(self) -> KeyRing:
        return self._own or cast("SuspendedStore", self._store).keys

    def _opened(self, token: str, digest: str, principal: str | None) -> Suspended:
        """The state in a token; `RequestStateError` if it is altered, expired or used."""
        if len(token) > MAX_STATE:
            raise self._sealer.refused("it was altered")
        state = self._sealer.open(token, who=principal, what=digest)
        if self._once is not None:
            return state
        if refused := self._used.setdefault(principal, _UsedStates()).add(state):
            raise self._sealer.refused(refused)
        self._used.move_to_end(principal)
        # An expired state is refused anyway, so it need not be remembered.
        while next(iter(self._used.values())).until < self._now():
            self._used.popitem(last=False)
        return state


def _logged(fault: RequestStateError) -> RequestStateError:
    """`fault`, once it is in the log."""
    _log.warning("refused: %s", in_log(str(fault)))
    return fault


def _answers_in(sent: Wire) -> Wire:
    """The client's answers in the round trip of a request."""
    given = sent.get("inputResponses")
    return cast("Wire", given) if isinstance(given, Mapping) else _NOTHING


def _restored(state: Wire, responses: Wire) -> Replay:
    """The call of an opened state, with the client's answers to the requests that it was asked."""
    replay = Replay.of_saved(state)
    asked = frozenset(state["asked"])
    replay.answers |= {
        key: cast("Wire", answer)
        for key, answer in responses.items()
        if key in asked and isinstance(answer, Mapping)
    }
    if "relayed" in state:
        replay.passed_on = {"inputResponses": dict(responses)}
        if state["relayed"] is not None:
            replay.passed_on["requestState"] = state["relayed"]
    else:
        replay.passed_on = dict(state["upstream"])
    return replay
