"""`RoundCommit`: a round's results, checked, in order and within a budget, as messages for the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.middleware.text_limit import cut, text_of
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.rounds.call_result import (
    CallResult,
    GivenResult,
    RoundHalt,
    RoundQuestion,
    is_placeholder,
)
from mcp_toolset.extensions.model_loop.turns import (
    AssistantCall,
    AssistantTurn,
    Origin,
    anthropic_message,
    anthropic_results,
    openai_message,
    openai_result,
    responses_message,
    responses_result,
)
from mcp_toolset.tools.core.result import Block, ToolResult
from mcp_toolset.tools.declare.typed_call import CompletedCall


@dataclass(frozen=True, slots=True)
class RoundCommit:
    """A committed round: the assistant's turn, and one result for each of its calls, in its order.

    Attributes:
        turn: The assistant's turn.
        results: The results.
        questions: Questions that were committed without an answer: the model was told that the
            user was asked; put the answer into the next user message.
        halt: A request to end the loop here.
    """

    turn: AssistantTurn
    results: tuple[CallResult, ...]
    questions: tuple[RoundQuestion, ...] = ()
    halt: RoundHalt | None = None

    @property
    def message(self) -> Mapping[str, Any]:
        """The assistant's message; empty for a round that was made from plain calls."""
        return self.turn.message

    def to_openai(self) -> list[dict[str, Any]]:
        """The messages to append to a chat completion's; `RoundError` if the turn is another provider's."""
        said = self._said("openai", openai_message)
        return [said, *(openai_result(done.id, done.result) for done in self.results)]

    def to_openai_responses(self) -> list[dict[str, Any]]:
        """The items to append to the input of a response: the output's, then one per call.

        With `previous_response_id` only those of `type` `…_output` are to be sent.
        """
        items = self._said("openai_responses", responses_message)["output"]
        return [*items, *(responses_result(items, done.id, done.result) for done in self.results)]

    def to_anthropic(self) -> list[dict[str, Any]]:
        """The messages to append to a request's: the assistant's, then the user's with every result."""
        said = self._said("anthropic", anthropic_message)
        return [said, *anthropic_results((done.id, done.result) for done in self.results)]

    def _said(
        self, form: Origin, make: Callable[[Iterable[AssistantCall]], dict[str, Any]]
    ) -> dict[str, Any]:
        if self.turn.origin == "calls":
            return make(self.turn.calls)
        if self.turn.origin != form:
            raise RoundError(f"this turn came from {self.turn.origin}; use to_{self.turn.origin}()")
        return deepcopy(dict(self.turn.message))


@dataclass(frozen=True, slots=True)
class Ledger:
    """The calls of a turn, by id, and what a commit of them is checked against."""

    calls: Mapping[str, AssistantCall]
    pending: Sequence[str]  # The ids of the calls that need a result.
    manual: frozenset[str]  # Those of them that wait for the application.
    issues: frozenset[str]  # The ids of the calls that may have a result.
    given: Mapping[str, ToolResult]  # Results that the application has given already, by id.
    guarded: frozenset[str] = frozenset()  # The ids of the calls that middleware has not let through yet.

    def accepted(self, results: Iterable[GivenResult]) -> dict[str, ToolResult]:
        accepted: dict[str, ToolResult] = {}
        faults: list[str] = []
        for place, done in enumerate(results):
            if not isinstance(done, CallResult | CompletedCall):  # pyright: ignore[reportUnnecessaryIsInstance]
                faults.append(f"result {place} is {done!r}; make one with CallResult.of(call, output)")
                continue
            if is_placeholder(done) and done.id in self.given:
                continue
            if fault := self._fault(done, accepted):
                faults.append(f"call {done.id} ({done.name}) {fault}")
            accepted[done.id] = done.result
        missing = [id for id in self.pending if id not in accepted and id not in self.given]
        if faults or missing:
            raise RoundError(
                f"the round is not committed: {'; '.join([*faults, *map(self._missing, missing)])}"
            )
        return {**self.given, **accepted}

    def _missing(self, id: str) -> str:
        mend = "waits for your result; submit() it" if id in self.manual else "has no result; give one"
        return f"call {id} ({self.calls[id].name}) {mend}"

    def _fault(self, done: GivenResult, accepted: Mapping[str, ToolResult]) -> str | None:
        call = self.calls.get(done.id)
        if call is None:
            return "is not of this turn"
        if done.id not in self.pending and done.id not in self.issues:
            return "was already answered by a hook; leave its result out"
        if done.id in accepted or self.given.get(done.id, done.result) != done.result:
            return "has two results; give one"
        if done.name != call.name:
            return f"is a call of {call.name}; the result is of another tool"
        if done.id in self.guarded and not done.result.is_error and not is_placeholder(done):
            said = "has middleware that has not let it through"
            return f"{said}, or rules that its toolset carries; have run_pending run it, not call.call()"
        if done.arguments != call.arguments:
            return "has a result for other arguments; give those of the assistant's turn"
        return None


def fair_shares(lengths: Sequence[int], budget: int) -> list[int]:
    """The max-min fair share of a budget for each text: what short ones leave, long ones share."""
    shares, left = [0] * len(lengths), budget
    ascending = sorted(range(len(lengths)), key=lambda place: lengths[place])
    for waiting, place in zip(range(len(lengths), 0, -1), ascending, strict=True):
        shares[place] = min(lengths[place], left // waiting)
        left -= shares[place]
    return shares


def within_budget(results: Sequence[CallResult], budget: int) -> tuple[CallResult, ...]:
    """The results in their order, with at most so many characters of text in total.

    Each result that was cut says by how much, and how to get the rest; these notes are not counted. Images
    and other blocks without text are neither counted nor cut. Structured content stays whole.
    """
    contents = [_said(done.result) for done in results]
    lengths = [sum(len(text_of(block)) for block in content) for content in contents]
    shares = fair_shares(lengths, budget)
    return tuple(
        done if share == length else replace(done, result=_shortened(done, content, share, budget))
        for done, content, length, share in zip(results, contents, lengths, shares, strict=True)
    )


def _said(result: ToolResult) -> Sequence[Block]:
    return result.content or ([{"type": "text", "text": result.text}] if result.text else [])


def _shortened(done: CallResult, content: Sequence[Block], share: int, budget: int) -> ToolResult:
    blocks, lost = cut(content, share)
    note = (
        f"[{lost} characters were cut off: the results of this turn share {budget}; for the rest, call "
        f"{done.name} again for less at once, or alone]"
    )
    return replace(
        done.result, wire={**done.result.wire, "content": [*blocks, {"type": "text", "text": note}]}
    )
