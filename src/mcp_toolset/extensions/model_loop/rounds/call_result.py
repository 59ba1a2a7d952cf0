"""The outcomes of a round's calls as values, and `RoundCommit`: the results as messages for the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from typing import Any, Final, Literal, cast, overload

from pydantic_core import PydanticSerializationError

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.checks import cut, text_of
from mcp_toolset.calls.decision import Complete, Reject
from mcp_toolset.errors import CallError, DefinitionError, InvalidOutputError, RoundError, UnknownToolError
from mcp_toolset.extensions.model_loop.turns import (
    Arguments,
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
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall
from mcp_toolset.tools.export import Export, ToolMark
from mcp_toolset.tools.input import CompletedCall
from mcp_toolset.tools.result import ANY_ANSWER, AskUser, Block, ElicitationAnswer, ToolResult, checked_result
from mcp_toolset.tools.validation import SchemaCheck
from mcp_toolset.tools.view import ToolView

NOTHING_OFFERED: Final[Mapping[str, ToolMark]] = {}


class InvalidCallReason(StrEnum):
    """Why a call of the model cannot run."""

    UNKNOWN_TOOL = "unknown_tool"
    UNAVAILABLE_TOOL = "unavailable_tool"
    INVALID_JSON = "invalid_json"
    INVALID_ARGUMENTS = "invalid_arguments"
    CHANGED_TOOL = "changed_tool"
    """The round was stored, and its tool has changed since the model saw it."""
    INTERRUPTED = "interrupted"
    """The round was stored while its tool ran; whether the tool took effect is unknown."""


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """A call that cannot run. The model reads why, and can call again.

    Attributes:
        call: The call as the model sent it; its arguments are text if they were not a JSON object.
        reason: For the application.
        message: For the model; it does not reveal whether an unavailable tool exists.
    """

    call: AssistantCall
    reason: InvalidCallReason
    message: str


def examined(
    call: AssistantCall,
    given: Arguments,
    view: ToolView,
    known: Container[str],
    offered: Mapping[str, ToolMark] = NOTHING_OFFERED,
) -> ToolCall | InvalidCall:
    """A call that can run with the arguments `given`, or what is wrong with it.

    `known` names further tools that exist but were not offered. `offered` are deferred tools that the
    provider's own search has shown to the model, in their versions: this grants the call by name.
    """
    binding = view.get(call.name)
    if binding is None or (binding.deferred and call.name not in offered):
        return not_callable(call, known=call.name in known or view.knows(call.name))
    if binding.deferred and offered[call.name] != ToolMark.of(binding):
        return changed(call)
    fault = f"Invalid arguments for {call.name}: "
    if isinstance(given, str) or isinstance(call.arguments, str):
        return InvalidCall(call, InvalidCallReason.INVALID_JSON, f"{fault}they are not the JSON of an object")
    decoded = ToolCall(call.name, deepcopy(dict(given)), call.id, deepcopy(call.arguments))
    # Arguments that differ from the model's have been prepared, or edited, in an earlier round.
    if binding.prepare is not None and given == call.arguments:
        try:
            decoded = binding.prepare(decoded, LOCAL_CONTEXT)
        except CallError as refusal:
            return InvalidCall(call, InvalidCallReason.INVALID_ARGUMENTS, str(refusal))
    if misfit := binding.misfit(decoded):
        return InvalidCall(call, InvalidCallReason.INVALID_ARGUMENTS, misfit)
    return decoded


def searched(
    examined: Sequence[ToolCall | InvalidCall], calls: Sequence[AssistantCall], export: Export
) -> list[ToolCall | InvalidCall]:
    """The same for a request with a search of the application: tools may have changed since the request."""
    if export.search is None or not calls:
        return list(examined)
    present = export.search.present()
    pairs = zip(examined, calls, strict=True)
    return [_searched(one, given, export, export.search.name, present) for one, given in pairs]


def _searched(
    one: ToolCall | InvalidCall,
    given: AssistantCall,
    export: Export,
    search: str,
    present: Mapping[str, ToolBinding],
) -> ToolCall | InvalidCall:
    if isinstance(one, InvalidCall):
        if one.reason not in (InvalidCallReason.UNKNOWN_TOOL, InvalidCallReason.UNAVAILABLE_TOOL):
            return one
        return replace(one, message=f"{one.message}; {_to_search(search)}")
    offered, now = (export.view or {}).get(one.name), present.get(one.name)
    if now is None:
        gone = f"{one.name} is not there any more, so it was not run; {_to_search(search)}"
        return InvalidCall(given, InvalidCallReason.CHANGED_TOOL, gone)
    return one if offered is None or ToolMark.of(offered) == ToolMark.of(now) else changed(given)


def _to_search(name: str) -> str:
    return f"find tools with {name}, and call them in the turn after that"


def not_callable(call: AssistantCall, *, known: bool) -> InvalidCall:
    reason = InvalidCallReason.UNAVAILABLE_TOOL if known else InvalidCallReason.UNKNOWN_TOOL
    return InvalidCall(call, reason, str(UnknownToolError(call.name)))


def changed(call: AssistantCall) -> InvalidCall:
    """The issue of a call whose tool was replaced or redefined while the round was stored."""
    told = f"{call.name} has changed since it was called, so it was not run; read it again before you call it"
    return InvalidCall(call, InvalidCallReason.CHANGED_TOOL, told)


def interrupted(call: AssistantCall) -> InvalidCall:
    """The issue of a call that was running when the round was stored."""
    told = f"{call.name} was interrupted and may have taken effect or not; find out before you call it again"
    return InvalidCall(call, InvalidCallReason.INTERRUPTED, told)


@dataclass(frozen=True, slots=True)
class HandledCall:
    """A call that a hook answered; its tool does not run."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class RejectedCall:
    """A call that a hook or a policy refused; `result` is the rejection after the result hooks."""

    call: ToolCall
    decision: Reject
    result: ToolResult


@dataclass(frozen=True, slots=True)
class CallResult:
    """A result with its call; `arguments` are the arguments in the assistant's turn."""

    id: str
    name: str
    arguments: Arguments
    result: ToolResult

    @classmethod
    def of(cls, call: ToolCall | AssistantCall, output: Any) -> CallResult:
        """A result of the application: text, a value, or a `ToolResult`."""
        return cls(call.id, call.name, original_of(call), result_of(call, output))


GivenResult = CallResult | CompletedCall
"""Results for a commit: results of a run or of the application, and calls that a typed tool completed."""


def is_placeholder(done: GivenResult) -> bool:
    return done.result.ask is not None


def result_of(call: ToolCall | AssistantCall, output: Any) -> ToolResult:
    try:
        result = Complete(output).result()
        return checked_result(result, "the application") if isinstance(output, ToolResult) else result
    except InvalidOutputError as fault:
        raise RoundError(f"the output for {call.name} ({call.id}) is not a result: {fault}") from None
    except (PydanticSerializationError, ValueError) as fault:
        raise RoundError(f"the output for {call.name} ({call.id}) has no JSON form: {fault}") from None


def original_of(call: ToolCall | AssistantCall) -> Any:
    original = call.original if isinstance(call, ToolCall) else None
    return call.arguments if original is None else original


@dataclass(frozen=True, slots=True)
class RoundQuestion:
    """A question of a tool, or of middleware, that `plan.answer(id, …)` has not answered yet.

    `schema` is the JSON Schema of the answer, an object; a text unless given.
    """

    id: str
    name: str
    question: str
    schema: Mapping[str, Any] | None = None

    @property
    def is_confirmation(self) -> bool:
        """True if it is a yes-or-no question: `plan.answer(id, True)`."""
        return is_confirmation(self.schema)


def is_confirmation(schema: Mapping[str, Any] | None) -> bool:
    return schema is not None and not schema.get("properties")


def placeholder(ask: AskUser) -> ToolResult:
    text = f"The user was asked: {ask.question}\nThere is no answer yet."
    return ToolResult({"content": [{"type": "text", "text": text}]}, ask=ask)


@dataclass(frozen=True, slots=True)
class RoundHalt:
    """A call's request to end the loop after this round; `reason` is `error` for `on_tool_error`."""

    id: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """A call whose tool failed.

    `exception` is a `TimeoutError` if its time was over, and `None` if the tool itself reported the failure.
    """

    call: ToolCall
    result: ToolResult
    exception: BaseException | None


Verdict = Literal["continue", "halt"]

OnToolError = Verdict | Callable[[ToolFailure], "Verdict | Awaitable[Verdict]"]
"""The consequence of a failed tool: continue, halt, or the result of a function."""


@dataclass(frozen=True, slots=True)
class RunReport(Sequence[CallResult]):
    """The results of `run_pending`: a sequence, in the order of the calls.

    Attributes:
        results: Every result of the round so far, with placeholders for open questions.
        manual: The calls that wait for the application; give each a result with `plan.submit`.
        questions: The questions that wait for the user; `plan.answer` takes the answers.
        halt: A request to end the loop, from the first call that made one.
        failures: The calls whose tools failed in this run, with their exceptions.
    """

    results: tuple[CallResult, ...]
    manual: tuple[ToolCall, ...] = ()
    questions: tuple[RoundQuestion, ...] = ()
    halt: RoundHalt | None = None
    failures: tuple[ToolFailure, ...] = ()

    @overload
    def __getitem__(self, index: int) -> CallResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[CallResult, ...]: ...
    def __getitem__(self, index: int | slice) -> CallResult | tuple[CallResult, ...]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)


GivenAnswer = str | Mapping[str, Any] | bool | None
"""The application's answer for the user: a text, an object, yes or no; `None` means declined."""


def user_answer(ask: AskUser, answer: GivenAnswer) -> ElicitationAnswer:
    if answer is None or answer is False:
        return ElicitationAnswer("decline")
    given: object = answer
    if is_confirmation(ask.schema) and (answer is True or answer == {}):
        given = {} if answer is True else None  # an empty object says neither yes nor no
    if isinstance(given, str) and ask.schema is None:
        given = {"answer": given}
    if not isinstance(given, Mapping):
        form = "True or False" if is_confirmation(ask.schema) else "an object that fits its schema"
        raise RoundError(f"the question {ask.question!r} is answered with {form}, not {answer!r}")
    content = dict(cast("Mapping[str, Any]", given))
    _check(ask, content)
    return ElicitationAnswer("accept", content)


def answer_result(ask: AskUser, answer: GivenAnswer) -> ToolResult:
    found = user_answer(ask, answer)
    if not found.accepted:
        return ToolResult.of_error(f"The user declined to answer: {ask.question}")
    given = found.content
    if ask.schema is None:
        return ToolResult.of_text(given["answer"])
    return ToolResult.of_structured(dict(given))


def _check(ask: AskUser, answer: Mapping[str, Any]) -> None:
    try:
        check = SchemaCheck(ask.schema or ANY_ANSWER, tool=ask.question, part="answer")
    except DefinitionError as fault:
        raise RoundError(f"the question cannot be answered: {fault}") from None
    if problems := check.problems(dict(answer)):
        raise RoundError(f"the answer to {ask.question!r} does not fit: {'; '.join(problems)}")


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
