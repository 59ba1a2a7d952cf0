"""`@tool`: a Python function as a tool, which stays callable as before."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field
from functools import partial
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import anyio.to_thread

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError, StateError
from mcp_toolset.tools.binding.binding import Executor, Reads, ToolBinding
from mcp_toolset.tools.core.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.core.definition import ToolOptions, checked, definition_of, fields_of
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.signature import FunctionSignature, arguments_of, is_method, read_signature
from mcp_toolset.tools.declare.tool import P, R, Tool
from mcp_toolset.tools.view.view import ToolView

if TYPE_CHECKING:
    from types import CoroutineType

    from mcp_toolset.tools.declare.typed_call import CallMetadata, CompletedCall, HandledInput, RejectedInput

S = TypeVar("S")
V = TypeVar("V")
Q = ParamSpec("Q")


@dataclass(slots=True)
class FunctionCall(Generic[P, R]):
    """A call of a function's tool with its typed arguments, `input`, which may be edited first.

    `metadata` is the call as it was sent; `is_replaced` if hooks have refused, answered or changed it.
    """

    __match_args__: ClassVar = ("input",)

    metadata: CallMetadata
    input: dict[str, Any]
    tool: FunctionTool[P, R]
    sent: ToolCall = field(repr=False)
    binding: ToolBinding = field(repr=False)
    is_replaced: bool = field(default=False, repr=False, compare=False)

    @property
    def selector(self) -> FunctionTool[P, R]:
        """The tool as a selector, for an availability, a requirement or a hook."""
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
        """Run the function with the present input; its exceptions propagate.

        Raises `StateError` if its toolset carries rules, or hooks have refused, answered or changed the call.
        """
        from mcp_toolset.tools.declare.typed_call import require_own

        require_own(self, context)
        return await self.tool.answer(self.input, self.sent, self.binding.supplying(context))

    def parts(self) -> tuple[CallMetadata, dict[str, Any]]:
        """The metadata and the input."""
        return self.metadata, self.input

    async def hook(
        self, hooks: object, *, context: ToolContext = LOCAL_CONTEXT
    ) -> FunctionCall[P, R] | HandledInput[dict[str, Any], Any] | RejectedInput[dict[str, Any]]:
        """Run hooks on this call only; see `DecodedCall.hook`."""
        from mcp_toolset.tools.declare.typed_call import hooked

        is_unchanged = self.tool.reads(self.sent) == self.input
        arguments = self.sent.arguments if is_unchanged else arguments_of(self.input)
        return await hooked(self, hooks, arguments, self.tool.reads, context)

    def handled(self: Any, output: Any) -> HandledInput[dict[str, Any], Any]:
        """The call with an answer that replaces the tool's; raises like `complete`."""
        from mcp_toolset.tools.declare.typed_call import HandledInput

        return HandledInput(self.metadata, self.input, output, self.complete(output).result)

    def complete(self, output: Any) -> CompletedCall:
        """The call with its output, which fits the function's return type, for a round or a provider."""
        from mcp_toolset.tools.declare.typed_call import CompletedCall

        return CompletedCall.of(self.metadata, self.tool.result_of(output))


@dataclass(frozen=True, repr=False, eq=False)
class FunctionTool(Tool[P, R]):
    """A tool made from a function by `@tool`; of an `unbound` method, each instance has its own tool."""

    __name__: ClassVar[str]
    __qualname__: ClassVar[str]

    signature: FunctionSignature = field(kw_only=True, compare=False)
    unbound: bool = field(default=False, kw_only=True, compare=False)

    @property
    def reads(self) -> Reads:
        return self.signature.arguments.read

    def decode(self, call: ToolCall, view: ToolView | None = None) -> FunctionCall[P, R]:
        # Typed calls are for loops of an application: no server needs their seven classes.
        from mcp_toolset.tools.declare.typed_call import binding_of, metadata_of

        binding = binding_of(call, self, view)
        metadata, own = metadata_of(call, self.id)
        return FunctionCall(metadata, (binding.reads or self.reads)(own), self, own, binding)

    async def answer(self, input: Mapping[str, Any], call: ToolCall, context: ToolContext) -> Any:
        if self.unbound:
            raise _no_instance(self.name)
        function: Any = self.function
        keywords = self.signature.arguments.supplied(dict(input), call, context)
        if inspect.iscoroutinefunction(function):
            return await function(**keywords)
        return await _in_thread(function, keywords)

    def result_of(self, output: Any) -> ToolResult:
        from mcp_toolset.tools.declare.typed_call import fitting

        return fitting(self.signature.returned.to_result(output, self.name), self.bind())

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> FunctionTool[Q, R]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Self: ...
    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool[..., Any]:
        return self if instance is None or not self.unbound else self.bound_to(instance)

    def bound_to(self, instance: object) -> FunctionTool[..., R]:
        """The tool of a method on one instance; the method selects it wherever it is nested."""
        assert self.function is not None
        method = cast("Callable[..., R]", MethodType(self.function, instance))
        run = runner(method, self.signature)
        made = replace(self, function=method, run=run, unbound=False, declared=self)
        return cast("FunctionTool[..., R]", made)


def runner(function: Callable[..., Any], signature: FunctionSignature) -> Executor:
    parse, to_result = signature.arguments.parse, signature.returned.to_result

    async def run(call: ToolCall, context: ToolContext) -> ToolResult:
        return to_result(await function(**parse(call, context)), call.name)

    async def run_in_thread(call: ToolCall, context: ToolContext) -> ToolResult:
        return to_result(await _in_thread(function, parse(call, context)), call.name)

    return run if inspect.iscoroutinefunction(function) else run_in_thread


async def _unbound(call: ToolCall, context: ToolContext) -> ToolResult:
    raise _no_instance(call.name)


def _no_instance(name: str) -> StateError:
    return StateError(f"tool {name!r} is a method without an instance; use that of an instance")


async def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    value = await anyio.to_thread.run_sync(partial(function, **arguments), abandon_on_cancel=True)
    return await value if inspect.isawaitable(value) else value


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Unpack[ToolOptions]
) -> Any:
    """Make a tool from a sync or async function.

    A sync function runs in a worker thread, so that it never blocks the event loop. A parameter
    annotated with `ToolContext` or `Annotated[T, Injected]` is supplied by the application and
    hidden from the model. A method, whose first parameter is a bare `self`, becomes a tool of each
    instance: `Toolset(instance.method)`, or a method of a class toolset.

    Args:
        function: The function, when used as a bare decorator.
        name: The tool's name; by default the function's.
        **options: See `ToolOptions`. The description is the docstring's text and the id is
            `module:function` unless given.

    Raises:
        DefinitionError: a parameter has no annotation, or its type has no JSON Schema.
    """
    checked("tool()", options)

    def define(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        if isinstance(function, staticmethod):  # `@tool` over `@staticmethod`, in a class toolset.
            function = function.__func__
        unbound = is_method(function)
        signature = read_signature(function, name, without_self=unbound)
        schemas = signature.arguments.schema, signature.returned.schema
        definition = definition_of(signature.name, signature.description, *schemas, options)
        return FunctionTool(
            definition,
            function,
            signature.place,
            run=_unbound if unbound else runner(function, signature),
            signature=signature,
            unbound=unbound,
            declared=function,
            **fields_of(options),
        )

    if function is None:
        return define
    if not callable(function):
        raise DefinitionError(f"@tool takes a function, not {function!r}")
    return define(function)
