"""`InnerCall`: one of several calls that are made for one request of a client, such as by code of a model.

No answer to its questions counts for another call; its progress is not reported, as a request has one number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.tasks import WorkingTime
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import Replay
from mcp_toolset.errors import CallError
from mcp_toolset.tools.result import REPLAY_META_KEY, InputRequired, ToolResult

Wire = Mapping[str, Any]
_NOTHING: Final[Wire] = {}


@dataclass(frozen=True, slots=True)
class InnerState:
    """The questions and answers of one inner call, and the result with which a mounted server has asked."""

    replay: Replay
    relayed: Wire | None = None

    def answered(self, given: Wire, name: str) -> Replay:
        """The same with the client's answers, for the call `name` that is made again."""
        after = self.replay.again(_mappings(given) if self.relayed is None else given, self.relayed)
        after.call_id = name
        return after


class InnerCall(WireContext):
    """The caller of a request, as one inner call sees it."""

    __slots__ = ("_time",)

    is_inner = True

    def __init__(self, outer: WireContext, replay: Replay, time: WorkingTime, number: int) -> None:
        super().__init__(outer._request)
        if isinstance(key := self._meta.get(REPLAY_META_KEY), str):
            # The client's key is that of the whole request; each call in it has one of its own.
            self._meta = {**self._meta, REPLAY_META_KEY: f"{key}/{number}"}
        self._params = replay.with_passed_on(outer.params)
        self._replay = replay
        self._time = time
        self._wants_progress = False

    def state(self) -> InnerState:
        return InnerState(self.replay)

    def relayed(self, result: ToolResult) -> InnerState:
        if result.ask is not None:
            raise CallError(
                "the tool asks the user in its result, and code cannot wait for the answer; use call_tool"
            )
        return InnerState(self.replay, result.wire)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None: ...

    async def pass_progress(self, params: Wire) -> None: ...

    async def _sent(self, method: str, params: Wire | None) -> dict[str, Any]:
        self._time.pause()
        try:
            return await super()._sent(method, params)
        finally:
            self._time.resume()


def asked_by(result: Wire) -> InputRequired:
    """The questions of a mounted server's `input_required`; none if it wants to be called again."""
    return InputRequired(_mappings(result.get("inputRequests")))


def _mappings(wire: object) -> dict[str, Wire]:
    table = cast("Mapping[str, object]", wire) if isinstance(wire, Mapping) else _NOTHING
    return {key: cast("Wire", one) for key, one in table.items() if isinstance(one, Mapping)}
