"""A call of a tool that is declared by its input: typed, completed, and put to hooks by itself."""

from __future__ import annotations

import warnings
from collections.abc import Coroutine, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
    runtime_checkable,
)

from mcp_toolset.errors import InvalidOutputError, ToolMismatchError
from mcp_toolset.tools.binding.binding import ToolBinding
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.view import ToolView

if TYPE_CHECKING:
    from types import CoroutineType

    from mcp_toolset.tools.declare.function import FunctionTool
    from mcp_toolset.tools.declare.input import InputTool
    from mcp_toolset.tools.declare.tool import Tool

I = TypeVar("I")  # noqa: E741 - the input, as O is the output
O = TypeVar("O")  # noqa: E741
P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CallMetadata:
    """What a call was before anybody decoded it.

    Attributes:
        id: The call's id, empty where the caller gave none.
        name: The public name that was called.
        arguments: The arguments as the caller sent them.
        tool_id: The tool that decoded it.
    """

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
        """A call by what it was, with its result."""
        return cls(metadata.id, metadata.name, metadata.arguments, result)


@dataclass(frozen=True, slots=True)
class HandledInput(Generic[I, O]):
    """A decoded call that was answered in place of the tool, with what it was answered with."""

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
    """A decoded call that hooks have refused; `result` tells the model why."""

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
    """What hooks make of one call.

    Attributes:
        call: The call as they leave it.
        output: What they answer it with, if `is_answered`.
        is_answered: Whether one of them has completed it.
        rejection: What the model is told, if one of them has refused it.
        reason: Why.
    """

    call: ToolCall
    output: Any = None
    is_answered: bool = False
    rejection: ToolResult | None = None
    reason: str = ""


class CallHooks(Protocol):
    """Hooks that can be asked about one call, such as a `HookSet`."""

    async def about(self, call: ToolCall, binding: ToolBinding, context: ToolContext) -> HookAnswer:
        """What they make of a call of a tool."""
        ...


class CallRunner(Generic[I, O]):
    """What `DecodedCall.call` is: a function that runs the call.

    The attribute was the call that was sent, until 0.1. Its members are still found here, with a
    `DeprecationWarning`; the call that was sent is `DecodedCall.sent`.
    """

    __slots__ = ("_decoded",)

    def __init__(self, decoded: DecodedCall[I, O]) -> None:
        """Run `decoded`."""
        self._decoded = decoded

    async def __call__(self, context: ToolContext = LOCAL_CONTEXT) -> O:
        """Run the tool's own handler with the input as it is now; what it raises propagates.

        Raises:
            StateError: the tool has no handler.
        """
        decoded = self._decoded
        return await decoded.tool.answer(decoded.input, decoded.binding.supplying(context))

    def __getattr__(self, name: str) -> Any:
        """A member of the call that was sent; deprecated."""
        if name.startswith("__"):
            raise AttributeError(name)
        told = f"`DecodedCall.call.{name}` is deprecated: the call that was sent is `DecodedCall.sent`"
        warnings.warn(told, DeprecationWarning, stacklevel=2)
        return getattr(self._decoded.sent, name)


@dataclass(slots=True)
class DecodedCall(Generic[I, O]):
    """A call of one `tool_input` tool, its input typed.

    It is matched by its input: `case DecodedCall(WebSearch(query=query)) as call`.

    Attributes:
        metadata: The call as it was sent.
        input: The decoded input; it may be edited or replaced before the call is completed.
        tool: The tool that it is a call of.
        sent: The call that was decoded.
        binding: The tool under the name that was called.
    """

    __match_args__: ClassVar = ("input",)

    metadata: CallMetadata
    input: I
    tool: InputTool[I, O]
    sent: ToolCall = field(repr=False)
    binding: ToolBinding = field(repr=False)

    @property
    def selector(self) -> InputTool[I, O]:
        """What selects the tool: for an availability, a requirement or a hook."""
        return self.tool

    def parts(self) -> tuple[CallMetadata, I]:
        """The metadata and the input."""
        return self.metadata, self.input

    async def hook(
        self, hooks: CallHooks, *, context: ToolContext = LOCAL_CONTEXT
    ) -> DecodedCall[I, O] | HandledInput[I, O] | RejectedInput[I]:
        """Ask hooks about this call alone, in order and with its input as it is now.

        Returns:
            The call to go on with, as the hooks have left it; or what they have answered or refused,
            whose `completed` is committed in a round.

        Raises:
            InvalidOutputError: a hook has answered with what the tool does not promise.
        """
        answer = await hooks.about(self.sent.with_arguments(self._arguments()), self.binding, context)
        given = self.tool.reader(answer.call)
        if answer.rejection is not None:
            return RejectedInput(self.metadata, given, answer.reason, answer.rejection)
        left = DecodedCall(self.metadata, given, self.tool, answer.call, self.binding)
        return left.handled(answer.output) if answer.is_answered else left

    def _arguments(self) -> dict[str, Any]:
        """The arguments as they came, or those of the input if it was edited since."""
        unchanged = self.tool.reader(self.sent) == self.input
        return dict(self.sent.arguments) if unchanged else self.tool.reader.arguments_of(self.input)

    @property
    def call(self) -> CallRunner[I, O]:
        """Runs the tool's own handler: `await decoded.call()`; see `CallRunner`."""
        return CallRunner(self)

    def complete(self, output: O) -> CompletedCall:
        """The call with its output as a result that a provider takes.

        Raises:
            ToolMismatchError: it is another tool's call.
            InvalidOutputError: the output is not of the tool's type, or has no JSON form.
        """
        return self.tool.complete(self, output)

    def handled(self, output: O) -> HandledInput[I, O]:
        """The call as answered in place of the tool; raises as `complete` does."""
        result = self.tool.complete(self, output).result
        return HandledInput(self.metadata, self.input, output, result)


@dataclass(slots=True)
class FunctionCall(Generic[P, R]):
    """A call of a function's tool, its arguments typed: it knows how to run itself.

    Attributes:
        metadata: The call as it was sent.
        input: The arguments that the model gave, as the types of the function's parameters; they may be
            edited before the call is run.
        tool: The tool that it is a call of.
        sent: The call that was decoded.
        binding: The tool under the name that was called.
    """

    __match_args__: ClassVar = ("input",)

    metadata: CallMetadata
    input: dict[str, Any]
    tool: FunctionTool[P, R]
    sent: ToolCall = field(repr=False)
    binding: ToolBinding = field(repr=False)

    @property
    def selector(self) -> FunctionTool[P, R]:
        """What selects the tool: for an availability, a requirement or a hook."""
        return self.tool

    @overload
    async def call(
        self: FunctionCall[P, CoroutineType[Any, Any, V]], context: ToolContext = LOCAL_CONTEXT
    ) -> V: ...

    @overload
    async def call(
        self: FunctionCall[P, Coroutine[Any, Any, V]], context: ToolContext = LOCAL_CONTEXT
    ) -> V: ...

    @overload
    async def call(self, context: ToolContext = LOCAL_CONTEXT) -> R: ...

    async def call(self: Any, context: ToolContext = LOCAL_CONTEXT) -> Any:
        """Run the function with the input as it is now; what it raises propagates.

        Raises:
            StateError: an injected parameter is supplied by nothing.
        """
        return await self.tool.answer(self.input, self.sent, self.binding.supplying(context))

    @overload
    def complete(self: FunctionCall[P, CoroutineType[Any, Any, V]], output: V) -> CompletedCall: ...

    @overload
    def complete(self: FunctionCall[P, Coroutine[Any, Any, V]], output: V) -> CompletedCall: ...

    @overload
    def complete(self, output: R) -> CompletedCall: ...

    def complete(self: Any, output: Any) -> CompletedCall:
        """The call with its output as a result that a provider takes.

        Raises:
            InvalidOutputError: the output is not of the function's type, or has no JSON form.
        """
        return CompletedCall.of(self.metadata, self.tool.result_of(output))


AnyCall = DecodedCall[Any, Any] | FunctionCall[..., Any]
"""A decoded call of any tool."""

C_co = TypeVar("C_co", covariant=True)


@runtime_checkable
class Decodes(Protocol[C_co]):
    """What decodes calls into typed ones: a tool of a function or of an input class, or a toolset."""

    def decode(self, call: ToolCall, view: ToolView | None = None) -> C_co:
        """The typed call."""
        ...


def metadata_of(call: ToolCall, tool_id: str) -> tuple[CallMetadata, ToolCall]:
    """What a call was before it was decoded, and a copy of the call that an application may keep."""
    sent = call.arguments if call.original is None else call.original
    metadata = CallMetadata(call.id, call.name, deepcopy(dict(sent)), tool_id)
    return metadata, ToolCall(call.name, deepcopy(call.arguments), call.id, metadata.arguments, call.grant)


def binding_of(call: ToolCall, tool: Tool[..., Any], view: ToolView | None) -> ToolBinding:
    """The tool under the name that was called.

    Raises:
        ToolMismatchError: it is another tool's call.
    """
    found = tool.bind() if view is None else view.get(call.name)
    is_own = found is not None and (found.origin is tool or found.tool_id == tool.id)
    if found is None or not is_own or found.name != call.name:
        raise ToolMismatchError(
            f"the call {call.id or '-'} of {call.name!r} is none of tool {tool.name!r}; decode it with "
            "its own tool, and with the view that it was offered in if it has another name there"
        )
    return found


def fitting(result: ToolResult, binding: ToolBinding) -> ToolResult:
    """The result, if it is what the tool promises.

    Raises:
        InvalidOutputError: it is not.
    """
    check = binding.output
    if check is None or result.is_error or not result.is_complete or check.is_valid(result.structured):
        return result
    faults = "; ".join(check.problems(result.structured))
    raise InvalidOutputError(f"the output for {binding.name} does not fit its schema: {faults}")
