"""Typed calls: what `DecodedCall` and `FunctionCall` have in common, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from mcp_toolset._records import dataclass
from mcp_toolset.errors import InvalidOutputError, StateError, ToolMismatchError
from mcp_toolset.tools.binding.binding import Reads, ToolBinding
from mcp_toolset.tools.core.call import ToolCall, ToolContext, require_context
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.tool import Tool
from mcp_toolset.tools.view.view import ToolView, rules_of

I = TypeVar("I")  # noqa: E741 - the input, as O is the output
O = TypeVar("O")  # noqa: E741


@dataclass(frozen=True, slots=True)
class CallMetadata:
    """A call as it was before it was decoded, with the id of the tool that decoded it."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    tool_id: str


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """A call with its result, to be committed in a round; `arguments` are those that were sent."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    result: ToolResult

    @classmethod
    def of(cls, metadata: CallMetadata, result: ToolResult) -> CompletedCall:
        return cls(metadata.id, metadata.name, metadata.arguments, result)


@dataclass(frozen=True, slots=True)
class HandledInput(Generic[I, O]):
    """A decoded call that a hook answered instead of the tool, with the answer."""

    metadata: CallMetadata
    input: I
    output: O
    result: ToolResult

    @property
    def completed(self) -> CompletedCall:
        """The call with its result, to be committed in a round."""
        return CompletedCall.of(self.metadata, self.result)


@dataclass(frozen=True, slots=True)
class RejectedInput(Generic[I]):
    """A decoded call that hooks refused; `result` tells the model why."""

    metadata: CallMetadata
    input: I
    reason: str
    result: ToolResult

    @property
    def completed(self) -> CompletedCall:
        """The call with its rejection, to be committed in a round."""
        return CompletedCall.of(self.metadata, self.result)


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """The outcome of hooks for one call: the call after them, and their answer or refusal, if any."""

    call: ToolCall
    output: Any = None
    is_answered: bool = False
    rejection: ToolResult | None = None
    reason: str = ""


async def hooked(
    call: Any, rule: object, arguments: Mapping[str, Any], reads: Reads, context: ToolContext
) -> Any:
    """A typed call after hooks of any form: the call itself, their answer, or their refusal."""
    require_context(context)
    answer: HookAnswer = await rules_of(rule).only_hooks.about(
        call.sent.with_arguments(dict(arguments)), call.binding, context
    )
    given = reads(answer.call)
    is_same = answer.rejection is None and not answer.is_answered and answer.call.arguments == dict(arguments)
    call.is_replaced = not is_same
    if answer.rejection is not None:
        return RejectedInput(call.metadata, given, answer.reason, answer.rejection)
    left = type(call)(call.metadata, given, call.tool, answer.call, call.binding)
    return left.handled(answer.output) if answer.is_answered else left


def require_own(call: Any, context: object) -> None:
    """Raise `StateError` if running the tool's function itself would pass by rules or hooks of its call."""
    require_context(context)
    where = f"the call {call.metadata.id or '-'} of {call.metadata.name!r}"
    if call.binding.carried:
        raise StateError(
            f"{where} has rules that its toolset carries, which call.call() would pass by: have "
            "plan.run_pending(), toolset.execute(…) or view.execute(…) run it"
        )
    if call.is_replaced:
        raise StateError(
            f"{where} was refused, answered or changed by hooks: go on with what call.hook(…) returned"
        )


C_co = TypeVar("C_co", covariant=True)


@runtime_checkable
class Decodes(Protocol[C_co]):
    """Decodes calls into typed ones: the tool of a function or of an input class, or a toolset."""

    def decode(self, call: ToolCall, view: ToolView | None = None) -> C_co: ...


def metadata_of(call: ToolCall, tool_id: str) -> tuple[CallMetadata, ToolCall]:
    sent = call.arguments if call.original is None else call.original
    metadata = CallMetadata(call.id, call.name, deepcopy(dict(sent)), tool_id)
    arguments = deepcopy(call.arguments)
    return metadata, ToolCall(call.name, arguments, call.id, metadata.arguments, call.grant, call.repairs)


def binding_of(call: ToolCall, tool: Tool[..., Any], view: ToolView | None) -> ToolBinding:
    found = tool.bind() if view is None else view.get(call.name)
    is_own = found is not None and (found.origin is tool or found.tool_id == tool.id)
    if found is None or not is_own or found.name != call.name:
        raise ToolMismatchError(
            f"the call {call.id or '-'} of {call.name!r} is not a call of tool {tool.name!r}; decode it with "
            "its own tool, and with the view that it was offered in if it has another name there"
        )
    return found


def fitting(result: ToolResult, binding: ToolBinding) -> ToolResult:
    check = binding.output
    if check is None or result.is_error or not result.is_complete or check.is_valid(result.structured):
        return result
    faults = "; ".join(check.problems(result.structured))
    raise InvalidOutputError(f"the output for {binding.name} does not fit its schema: {faults}")
