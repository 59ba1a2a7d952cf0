"""`RoundTrips`: questions of a call that travel in its result, and the answers that come back.

On 2026-07-28 a server asks by ending the call with `input_required`; the client calls again with
`inputResponses` and the `requestState` it was given ("Multi round-trip requests"). What is known of
the call so far travels in that state, so nothing is kept here for calls that never come back. The
state is the client's to hold and not to write: it is signed with a key of this server, bound to the
tool, the arguments and the principal, ends after a while, and can be used once. A call of a legacy
upstream cannot be run again: it goes on meanwhile, and the state says where (`suspended`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import CallError, RequestStateError
from mcp_toolset.protocol.eras import round_trip
from mcp_toolset.tools.core.asking import AskUser
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.text.hidden_text import in_log

STATE_LIFETIME: Final = 600.0
"""Seconds that the client and its user have for an answer (2026-07-28)."""

MAX_STATE: Final = 262_144
"""Characters of a state; it carries the answers that the call has had so far."""

MAX_USED: Final = 10_000
"""Used states that are remembered; one older than the last forgotten is refused, used or not."""

_REFUSED: Final = "the answer came too late, or belongs to another call; call the tool again"
_log = logging.getLogger("mcp_toolset.ask")

Wire = Mapping[str, Any]
_NOTHING: Final[Wire] = {}


@dataclass(slots=True)
class Replay:
    """What one call has asked so far, and what it was answered.

    Attributes:
        call_id: What tells the call from others, the same each time it is run.
        answers: The client's answers, by replay key.
        final: The question whose answer is the call's result, with the tool that asked it.
        passed_on: What of a round trip belongs to a mounted server.
        parked: The handles of calls that go on upstream meanwhile, by replay key.
        foreign: Whether the state that came with the call is not one of ours.
        offered: Answers that came without a state, to questions that this call has not put yet.
    """

    call_id: str
    answers: dict[str, Wire] = field(default_factory=dict[str, Wire])
    final: tuple[str, AskUser] | None = None
    passed_on: dict[str, Any] = field(default_factory=dict[str, Any])
    parked: dict[str, str] = field(default_factory=dict[str, str])
    foreign: bool = False
    offered: Wire = field(default_factory=dict[str, Any])
    _asked: Counter[str] = field(default_factory=Counter[str])

    def key(self, method: str, params: Wire, name: str = "") -> str:
        """The replay key of a request: the same at each run, another for each of several equal ones.

        A request that was named keeps its name, so that a client may answer it unasked.
        """
        base = name or _digest([method, params])[:22]
        self._asked[base] += 1
        return base if name and self._asked[base] == 1 else f"{base}.{self._asked[base]}"

    def answer_to(self, key: str, name: str) -> Wire | None:
        """The client's answer to a request, if it is there; unasked ones count for what was named."""
        found = self.answers.get(key)
        if found is None and name and isinstance(self.offered.get(key), Mapping):
            found = self.answers[key] = cast("Wire", self.offered[key])
        return found

    def final_of(self, tool: str) -> AskUser | None:
        """The question that this tool has ended with at an earlier run."""
        return self.final[1] if self.final is not None and self.final[0] == tool else None


class RoundTrips:
    """Opens and closes the states of one server's calls."""

    def __init__(
        self, *, lifetime: float = STATE_LIFETIME, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Draw a key. `lifetime` is in seconds, on the clock `now`."""
        self._key = secrets.token_bytes(32)
        self._mark = f"mt{secrets.token_hex(4)}"
        self._lifetime = lifetime
        self._now = now
        self._used: OrderedDict[str, float] = OrderedDict()
        self._forgotten = float("-inf")

    def resume(self, params: Wire, name: str, arguments: Wire, principal: str | None, call_id: str) -> Replay:
        """What a call brings with it from earlier runs; nothing at its first.

        Raises:
            RequestStateError: its state was altered, has ended, was used, or belongs to another call.
        """
        brought = round_trip(params)
        token = brought.get("requestState")
        if not isinstance(token, str) or not token.startswith(f"{self._mark}."):
            offered = _answers_in(brought) if token is None else _NOTHING
            return Replay(call_id, passed_on=brought, foreign=token is not None, offered=offered)
        state = self._verified(token, _digest([name, arguments, principal]))
        return _restored(state, _answers_in(brought))

    def suspend(
        self, replay: Replay, requests: Wire, name: str, arguments: Wire, principal: str | None
    ) -> ToolResult:
        """The result that asks the client, with all that the next run needs.

        Raises:
            CallError: the answers so far are too long to be carried.
        """
        state = {"asked": list(requests), "upstream": replay.passed_on, **_carried(replay)}
        return self._asking(state, requests, _digest([name, arguments, principal]))

    def relayed(
        self, result: ToolResult, replay: Replay, name: str, arguments: Wire, principal: str | None
    ) -> ToolResult:
        """A mounted server's `input_required`, with the answers that it would make the next run forget.

        Without such answers it is passed on verbatim.

        Raises:
            CallError: the answers so far are too long to be carried.
        """
        if not replay.answers:
            return result
        state = {"asked": (), "relayed": result.wire.get("requestState"), **_carried(replay)}
        requests: Wire = result.wire.get("inputRequests") or _NOTHING
        return self._asking(state, requests, _digest([name, arguments, principal]))

    def _asking(self, state: dict[str, Any], requests: Wire, bound: str) -> ToolResult:
        state |= {"id": secrets.token_hex(8), "issued": self._now(), "bound": bound}
        token = self._signed(state)
        if len(token) > MAX_STATE:
            raise CallError("the answers to this call's questions are too long to go on; ask for less")
        wire: dict[str, Any] = {"resultType": "input_required", "requestState": token}
        if requests:
            wire["inputRequests"] = dict(requests)
        return ToolResult(wire)

    def _signed(self, state: Wire) -> str:
        payload = _encoded(json.dumps(state, separators=(",", ":")).encode())
        return f"{self._mark}.{payload}.{self._signature(payload)}"

    def _signature(self, payload: str) -> str:
        return _encoded(hmac.digest(self._key, f"{self._mark}.{payload}".encode(), "sha256"))

    def _verified(self, token: str, bound: str) -> dict[str, Any]:
        state, fault = self._read(token)
        if state is None or fault or state["bound"] != bound:
            _log.warning("a request state is refused: %s", in_log(fault or "it belongs to another call"))
            raise RequestStateError(_REFUSED)
        self._use(state["id"], state["issued"])
        return state

    def _read(self, token: str) -> tuple[dict[str, Any] | None, str]:
        _, payload, signature = (token.split(".") + ["", ""])[:3]
        expected = self._signature(payload)
        if len(token) > MAX_STATE or not hmac.compare_digest(signature.encode(), expected.encode()):
            return None, "it was altered"
        state: dict[str, Any] = json.loads(_decoded(payload))
        if self._now() > state["issued"] + self._lifetime:
            return state, "its time is over"
        if state["id"] in self._used or state["issued"] <= self._forgotten:
            return state, "it was used before"
        return state, ""

    def _use(self, name: str, issued: float) -> None:
        self._used[name] = issued
        while len(self._used) > MAX_USED:
            self._forgotten = max(self._forgotten, self._used.popitem(last=False)[1])


def _answers_in(brought: Wire) -> Wire:
    given = brought.get("inputResponses")
    return cast("Wire", given) if isinstance(given, Mapping) else _NOTHING


def _carried(replay: Replay) -> dict[str, Any]:
    final = None
    if replay.final is not None:
        tool, asked = replay.final
        final = [tool, asked.question, None if asked.schema is None else dict(asked.schema)]
    return {"call": replay.call_id, "answers": replay.answers, "final": final, "parked": replay.parked}


def _restored(state: Wire, responses: Wire) -> Replay:
    replay = Replay(state["call"], answers=dict(state["answers"]), parked=dict(state["parked"]))
    asked = frozenset(state["asked"])
    replay.answers |= {
        key: cast("Wire", answer)
        for key, answer in responses.items()
        if key in asked and isinstance(answer, Mapping)
    }
    if state["final"]:
        tool, question, schema = state["final"]
        replay.final = (tool, AskUser(question, schema))
    if "relayed" in state:
        replay.passed_on = {"inputResponses": dict(responses)}
        if state["relayed"] is not None:
            replay.passed_on["requestState"] = state["relayed"]
    else:
        replay.passed_on = dict(state["upstream"])
    return replay


def _digest(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return _encoded(hashlib.sha256(canonical.encode()).digest())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
