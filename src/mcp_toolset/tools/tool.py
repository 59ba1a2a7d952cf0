"""`Tool`: an immutable tool, made by `@tool`, `@tool_input`, `ToolBuilder` or `Tool.from_schema`.

A function with `@tool` stays callable as before. A class of tools (`class AppTools(Toolset): search =
search_tool`) has them as attributes, which type checkers and editors see.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import field
from functools import partial
from importlib import import_module
from threading import Lock
from types import FunctionType, MethodType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    overload,
)

import anyio.to_thread

from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import SAYING, is_ours, rules_among
from mcp_toolset.errors import DefinitionError, StateError
from mcp_toolset.tools.binding import Executor, Reads, Supplies, ToolBinding
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext
from mcp_toolset.tools.definition import (
    FrozenObject,
    ToolDefinition,
    ToolOptions,
    checked,
    checked_tags,
    declared_tool,
    default_id,
    definition_of,
    fields_of,
    frozen,
    handler_name,
    thawed,
)
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import (
    JSON,
    FunctionSignature,
    Returned,
    arguments_of,
    is_method,
    read_signature,
    with_injected,
)
from mcp_toolset.tools.validation import SchemaCheck, checks_of
from mcp_toolset.tools.view import KnownTools, ToolView

if TYPE_CHECKING:
    from types import CoroutineType

    from mcp_toolset.tools.input import CallMetadata, CompletedCall, HandledInput, RejectedInput


Handler = Callable[..., Any] | str  # A function of `(arguments[, context])`, or its name `module:function`.


_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """The conversion of a call to the first argument of a handler, and of its output to a result."""

    read: Callable[[ToolCall], Any]
    returned: Returned = JSON

    def executor(self, handler: Handler, tool: str) -> Executor:
        if not isinstance(handler, str):
            return self._runner(handler, tool)
        check_handler_name(handler, tool)
        executors: list[Executor] = []

        async def run(call: ToolCall, context: ToolContext) -> ToolResult:
            if not executors:
                executors.append(self._resolved(handler, tool))
            return await executors[0](call, context)

        return run

    def _resolved(self, name: str, tool: str) -> Executor:
        handler = resolve_handler(name, tool)
        if not isinstance(handler, Tool):
            return self._runner(handler, tool)
        # A tool parses the arguments itself.
        if handler.run is None:
            raise DefinitionError(
                f"tool {tool!r}: handler {name!r} is a tool without a handler; name a function"
            )
        return handler.run

    def _runner(self, handler: Callable[..., Any], tool: str) -> Executor:
        answer = answering(handler, tool)

        async def run(call: ToolCall, context: ToolContext) -> ToolResult:
            return self.returned.to_result(await answer(self.read(call), context), call.name)

        return run


def answering(handler: Callable[..., Any], tool: str) -> Callable[[Any, ToolContext], Awaitable[Any]]:
    takes_context = _takes_context(handler, tool)

    async def answer(input: Any, context: ToolContext) -> Any:
        given = (input, context) if takes_context else (input,)
        if is_async(handler):
            return await handler(*given)
        value = await anyio.to_thread.run_sync(partial(handler, *given), abandon_on_cancel=True)
        return await value if inspect.isawaitable(value) else value

    return answer


def arguments_reader(schema: Mapping[str, Any]) -> Callable[[ToolCall], dict[str, Any]]:
    properties: dict[str, Any] = schema.get("properties", {})
    defaults = {
        name: cast("Any", item["default"])
        for name, item in properties.items()
        if isinstance(item, dict) and "default" in item
    }

    def read(call: ToolCall) -> dict[str, Any]:
        absent = {name: deepcopy(value) for name, value in defaults.items() if name not in call.arguments}
        return {**call.arguments, **absent}

    return read


def is_async(handler: Callable[..., Any]) -> bool:
    inner = cast("partial[Any]", handler).func if isinstance(handler, partial) else handler
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


def check_handler_name(name: str, tool: str) -> str:
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"tool {tool!r}: a handler is a function or named as 'package.module:function', not {name!r}"
        )
    return name


def resolve_handler(name: str, tool: str) -> Callable[..., Any]:
    """Import the function of a name. Importing runs code: use only names that you trust."""
    module, _, path = name.partition(":")
    where = f"tool {tool!r}: handler {name!r} cannot be loaded"
    try:
        target: Any = import_module(module)
    except ImportError as fault:
        raise DefinitionError(f"{where}: {fault}; install the module or correct the name") from fault
    for step in path.split("."):
        if not hasattr(target, step):
            raise DefinitionError(
                f"{where}: {getattr(target, '__name__', target)!r} has no {step!r}; correct the name"
            )
        target = getattr(target, step)
    if not callable(target):
        raise DefinitionError(f"{where}: it is {type(target).__name__}, not a function; correct the name")
    return target


def _takes_context(handler: Callable[..., Any], tool: str) -> bool:
    where = f"tool {tool!r}: handler {getattr(handler, '__qualname__', repr(handler))}"
    if not callable(handler):
        raise DefinitionError(f"{where} cannot be called; give a function or its name as 'module:function'")
    try:
        parameters = inspect.signature(handler).parameters.values()
    except ValueError:
        raise DefinitionError(f"{where} has no signature that can be read; wrap it in a function") from None
    needed = [item for item in parameters if item.default is item.empty and item.kind in _POSITIONAL]
    takes = [item for item in parameters if item.kind in (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL)]
    named = [
        item.name for item in parameters if item.kind is item.KEYWORD_ONLY and item.default is item.empty
    ]
    if not takes or len(needed) > 2 or named:
        raise DefinitionError(f"{where} must take (arguments) or (arguments, context); wrap it in a function")
    return len(needed) == 2


P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, repr=False)
class Tool(Generic[P, R]):
    """A tool: its definition and its handler. Without a handler the application answers its calls.

    Calling a `Tool` calls the function it was made from, unchanged. `execute` runs it from JSON arguments.

    Attributes:
        definition: The tool's definition.
        function: The function it was made from, if any.
        place: The place of its definition, for messages.
        manual: True if the application answers its calls; always so without a handler.
        timeout: Seconds that one call may take; `None` leaves the default.
        id: The stable id of the tool, independent of its public name.
        handler: The function that `run` calls with the arguments, for a tool defined by a schema.
        calling: The calling convention of the handler.
        run: Runs a call, if the tool has a handler.
        tags: Tags for selectors and policies; clients do not see them.
        metadata: Data for the application; clients do not see it.
        supplies: The values for its injected parameters.
        declared: The input class or function that the tool was made from; it selects the tool.
    """

    __name__: ClassVar[str]
    __qualname__: ClassVar[str]

    definition: ToolDefinition
    function: Callable[P, R] | None = field(default=None, compare=False)
    place: str = ""
    manual: bool = False
    timeout: float | None = None
    id: str = ""
    handler: Handler | None = field(default=None, kw_only=True, compare=False)
    calling: HandlerCall | None = field(default=None, kw_only=True, compare=False)
    run: Executor | None = field(default=None, kw_only=True, compare=False)
    declared: object = field(default=None, kw_only=True, compare=False)
    tags: frozenset[str] = field(default=frozenset(), kw_only=True)
    metadata: Mapping[str, Any] = field(default_factory=FrozenObject, kw_only=True, compare=False)
    supplies: tuple[Supplies, ...] = field(default=(), kw_only=True, compare=False)
    _checks: tuple[SchemaCheck, SchemaCheck | None] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.manual, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"tool {self.name!r}: manual is True or False, not {self.manual!r}")
        if not isinstance(self.id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"tool {self.name!r}: an id is a text, not {self.id!r}")
        seconds: object = self.timeout
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and seconds > 0):
            raise DefinitionError(f"tool {self.name!r}: timeout is seconds above 0, not {self.timeout!r}")
        object.__setattr__(self, "id", self.id or default_id(self.name, self.function))
        object.__setattr__(self, "tags", checked_tags(self.tags, f"tool {self.name!r}"))
        object.__setattr__(self, "metadata", frozen(dict(self.metadata)))
        object.__setattr__(self, "_checks", checks_of(self.definition))
        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            object.__setattr__(self, attribute, getattr(self.function, attribute, None))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself; `StateError` if the tool was made without one."""
        if self.function is None:
            raise StateError(f"tool {self.name!r} has no function to call; run it with execute()")
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return (
            f"Tool({self.definition.name!r}, {', '.join(self.definition.input_schema.get('properties', {}))})"
        )

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.definition.name

    @property
    def description(self) -> str | None:
        """The tool's description for the model."""
        return self.definition.description

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments."""
        return self.definition.input_schema

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the structured result, if the tool has one."""
        return self.definition.output_schema

    @property
    def waits(self) -> bool:
        """True if the application answers its calls: it is manual, or has no handler."""
        return self.manual or self.run is None

    def bind(self) -> ToolBinding:
        """The tool as an entry of a view."""
        arguments, output = self._checks
        return ToolBinding(
            self.name,
            self.definition,
            self.run or self._unhandled,
            arguments,
            output,
            place=self.place,
            manual=self.waits,
            timeout=self.timeout,
            tool_id=self.id,
            origin=self,
            reads=self.reads,
            supplies=self.supplies,
            tags=self.tags,
            metadata=self.metadata,
        )

    @property
    def reads(self) -> Reads | None:
        """Parses the typed input of a call, for tools that have one."""
        return None

    async def execute(
        self,
        arguments: dict[str, Any] | None = None,
        context: ToolContext = LOCAL_CONTEXT,
        *,
        rules: object = None,
    ) -> ToolResult:
        """Run the tool from JSON arguments, which are checked like those of a served call.

        Without rules the tool's own exceptions propagate; with `rules` it runs as it would be served: see
        `ToolView.execute`; the rules may be for other tools, too. `tool(…)` calls the function itself.

        Raises:
            InvalidArgumentsError: the arguments do not fit; nothing ran.
            StateError: the tool has no handler.
        """
        bound = self.bind()
        view = ToolView([bound], known=KnownTools(lambda: [bound], is_part=True))
        return await view.execute(self.name, arguments, context, rules=rules)

    async def call_handler_unchecked(
        self, arguments: dict[str, Any], context: ToolContext = LOCAL_CONTEXT
    ) -> ToolResult:
        """Run the handler only: no schema is checked, no rule applies, and arguments are parsed leniently.

        For tests of a handler, and for callers that have checked the arguments; otherwise use `execute`.
        """
        return await (self.run or self._unhandled)(ToolCall(self.name, arguments), context)

    async def _unhandled(self, call: ToolCall, context: ToolContext) -> ToolResult:
        raise StateError(f"tool {call.name!r} has no handler; its result comes from the application")

    @staticmethod
    def from_schema(
        name: str,
        schema: Mapping[str, Any],
        handler: Handler | None = None,
        *,
        output: Any = None,
        **options: Unpack[ToolOptions],
    ) -> Tool[..., Any]:
        """A tool from a schema.

        Args:
            name: The tool's name.
            schema: Its parameters, in loose, extended or full notation; see `tools.from_schema`.
            handler: A sync or async function of `(arguments)` or `(arguments, context)`, or its name
                as `module:function`; without a handler the application answers the calls.
            output: The type of the result, or its schema in any of the notations.
            **options: See `ToolOptions`; the id is `tool:name` unless given.
        """
        from mcp_toolset.tools.from_schema import define

        return Tool(**define(name, schema, handler, output=output, **options))

    def with_handler(self, handler: Handler) -> Self:
        """The same tool with a handler: a function of `(arguments[, context])`, or its name."""
        calling = self.calling or HandlerCall(arguments_reader(self.input_schema))
        run = calling.executor(handler, self.name)
        return replace(self, handler=handler, calling=calling, run=run)

    def injecting(self, supplies: Supplies) -> Self:
        """The same tool with values for its injected parameters, by name or type."""
        run = with_injected(self.bind(), supplies).execute if self.run else None
        return replace(self, run=run, supplies=(*self.supplies, supplies))

    def tagged(self, *tags: str, metadata: Mapping[str, Any] | None = None) -> Self:
        """The same tool with more of the application's tags and metadata; clients do not see them."""
        noted = {**self.metadata, **(metadata or {})}
        return replace(self, tags=self.tags | checked_tags(tags, "tagged()"), metadata=noted)

    def to_openai(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's chat completions; see `ToolView.to_openai`."""
        return ToolView([self.bind()]).to_openai()[0]

    def to_openai_responses(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's Responses; see `ToolView.to_openai_responses`."""
        return ToolView([self.bind()]).to_openai_responses()[0]

    def to_anthropic(self) -> dict[str, Any]:
        """The tool in the form of Anthropic's Messages; see `ToolView.to_anthropic`."""
        return ToolView([self.bind()]).to_anthropic()[0]

    def to_gemini(self) -> dict[str, Any]:
        """The tool in the form of Gemini's requests; see `ToolView.to_gemini`."""
        return ToolView([self.bind()]).to_gemini()[0]

    def to_data(self) -> dict[str, Any]:
        """The tool as plain data that survives JSON.

        The handler is stored by name: the name it was given by, or that of an importable function. Any other
        function is left out; attach it again with `with_handler`.
        """
        return {
            "id": self.id,
            "definition": self.definition.to_wire(),
            "handler": handler_name(self.handler or (self.function if self.run else None)),
            "manual": self.manual,
            "timeout": self.timeout,
            **({"tags": sorted(self.tags)} if self.tags else {}),
            **({"metadata": thawed(self.metadata)} if self.metadata else {}),
        }

    @staticmethod
    def from_data(data: Mapping[str, Any], handler: Handler | None = None) -> Tool[..., Any]:
        """The tool that `to_data` wrote, with `handler` in place of the one that the data names.

        A handler's name is imported at the first call, which runs code: load only data that you trust.
        """
        from mcp_toolset.tools.from_schema import from_data

        return Tool(**from_data(data, handler))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


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
        from mcp_toolset.tools.input import require_own

        require_own(self, context)
        return await self.tool.answer(self.input, self.sent, self.binding.supplying(context))

    def parts(self) -> tuple[CallMetadata, dict[str, Any]]:
        """The metadata and the input."""
        return self.metadata, self.input

    async def hook(
        self, hooks: object, *, context: ToolContext = LOCAL_CONTEXT
    ) -> FunctionCall[P, R] | HandledInput[dict[str, Any], Any] | RejectedInput[dict[str, Any]]:
        """Run hooks on this call only; see `DecodedCall.hook`."""
        from mcp_toolset.tools.input import hooked

        is_unchanged = self.tool.reads(self.sent) == self.input
        arguments = self.sent.arguments if is_unchanged else arguments_of(self.input)
        return await hooked(self, hooks, arguments, self.tool.reads, context)

    def handled(self: Any, output: Any) -> HandledInput[dict[str, Any], Any]:
        """The call with an answer that replaces the tool's; raises like `complete`."""
        from mcp_toolset.tools.input import HandledInput

        return HandledInput(self.metadata, self.input, output, self.complete(output).result)

    def complete(self, output: Any) -> CompletedCall:
        """The call with its output, which fits the function's return type, for a round or a provider."""
        from mcp_toolset.tools.input import CompletedCall

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
        from mcp_toolset.tools.input import binding_of, metadata_of

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
        value = await anyio.to_thread.run_sync(partial(function, **keywords), abandon_on_cancel=True)
        return await value if inspect.isawaitable(value) else value

    def result_of(self, output: Any) -> ToolResult:
        from mcp_toolset.tools.input import fitting

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


_MAKING: Final = Lock()
"""Held while a worker makes a result of a value: a long one leaves the interpreter to nobody meanwhile."""


def runner(function: Callable[..., Any], signature: FunctionSignature) -> Executor:
    parse, to_result = signature.arguments.parse, signature.returned.to_result

    async def run(call: ToolCall, context: ToolContext) -> ToolResult:
        return to_result(await function(**parse(call, context)), call.name)

    async def run_in_thread(call: ToolCall, context: ToolContext) -> ToolResult:
        made = await anyio.to_thread.run_sync(work, parse(call, context), call.name, abandon_on_cancel=True)
        return made if isinstance(made, ToolResult) else to_result(await made, call.name)

    def work(arguments: dict[str, Any], name: str) -> ToolResult | Awaitable[Any]:
        value = function(**arguments)
        if inspect.isawaitable(value):
            return value
        with _MAKING:
            return to_result(value, name)

    return run if inspect.iscoroutinefunction(function) else run_in_thread


async def _unbound(call: ToolCall, context: ToolContext) -> ToolResult:
    raise _no_instance(call.name)


def _no_instance(name: str) -> StateError:
    return StateError(f"tool {name!r} is a method without an instance; use that of an instance")


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


T = TypeVar("T")

_ASKED = frozenset({"decode", "definitions", "execute", "find", "names", "view"})
"""Methods of toolsets that programs ask; servers list and call tools without them."""

_SAYING_RULES = frozenset({"rules", "hooks", "middleware", "guards", "policy", "permissions"})
"""Names of methods and properties that would say what protects the tools."""


class ClassMembers(Generic[T]):
    """Collects the tools and toolsets that classes below `base` declare."""

    def __init__(self, base: type[T], taken: frozenset[str]) -> None:
        self._base = base
        self._taken = taken

    def of(self, kind: type[T]) -> dict[str, Tool[..., Any] | T]:
        """The members of a class, inherited ones first; any other value than a tool removes one."""
        members: dict[str, Tool[..., Any] | T] = {}
        for declaring in reversed(kind.__mro__):
            is_toolset = declaring is not self._base and issubclass(declaring, self._base)
            for name, value in vars(declaring).items():
                if is_toolset and (member := self._member(name, value)) is not None:
                    members[name] = member
                else:
                    members.pop(name, None)
        return members

    def declares(self, kind: type[T], name: str) -> bool:
        return self._member(name, getattr(kind, name, None)) is not None

    def of_instance(self, instance: T) -> list[Tool[..., Any] | T]:
        found: list[Tool[..., Any] | T] = []
        for name, member in self.of(type(instance)).items():
            if isinstance(member, FunctionTool) and member.unbound:
                own = cast("FunctionTool[..., Any]", member).bound_to(instance)
                vars(instance)[name] = own
                found.append(own)
            else:
                found.append(cast("Tool[..., Any] | T", member))
        return found

    def adopt(self, kind: type[T]) -> None:
        for name, value in [*vars(kind).items()]:
            function: Any = cast("Any", value).__func__ if isinstance(value, staticmethod) else value
            if name.startswith("_") or not isinstance(cast("object", function), FunctionType | partial):
                continue
            if value is not function or not _is_plain_method(function, name, kind):
                setattr(kind, name, _made(function, f"{kind.__qualname__}.{name}"))

    def check(self, kind: type[T]) -> None:
        for name, value in vars(kind).items():
            where = f"{kind.__qualname__}.{name}"
            if self._member(name, value) is not None and (hasattr(self._base, name) or name in self._taken):
                made: Any = value
                is_own = isinstance(value, FunctionTool) and made.function.__name__ == name
                mend = f'@tool(name="{name}") above `def {name}_(…)`' if is_own else f"`{name}_ = …`"
                raise DefinitionError(
                    f"{where} would take the place of Toolset.{name}: write {mend}; the tool is called "
                    f"{getattr(made, 'name', name)!r} all the same"
                )
            is_class = isinstance(value, type) and not name.startswith("_")
            if is_class and not value.__qualname__.startswith(f"{kind.__qualname__}."):
                self._check_class(where, name, value)
            if not name.startswith("_") and self._member(name, value) is None:
                self._check_no_rule(kind, name, value)
        for where, own in self._own_tools(kind):
            if "self" in own.definition.input_schema.get("properties", {}):
                raise DefinitionError(
                    f"{where} takes self, which it would not get: leave it out, or write a bare self and no "
                    "@staticmethod, so that it is a method"
                )

    def _check_class(self, where: str, name: str, value: type) -> None:
        from pydantic import BaseModel

        if issubclass(value, self._base):
            raise DefinitionError(f"{where} is a class; write {name} = {value.__name__}()")
        if issubclass(value, BaseModel) and declared_tool(value) is None:
            raise DefinitionError(
                f"{where} is a model that is no tool: declare {value.__name__} with @tool_input, write "
                f"{name} = InputTool.of({value.__name__}), or _{name} if it is not a tool"
            )

    def _check_no_rule(self, kind: type[T], name: str, value: object) -> None:
        """Refuse what looks as if it protected the tools, and applies to nothing here."""
        where, made = f"{kind.__qualname__}.{name}", f"{kind.__name__}()"
        is_plain = not callable(value) and not hasattr(type(value), "__get__")
        is_asked = name in _ASKED and callable(value) and not is_ours(kind)
        if (is_plain or is_asked) and callable(getattr(self._base, name, None)):
            raise DefinitionError(
                f"{where} would take the place of Toolset.{name}, and has no effect: use {made}.{name}(…)"
            )
        rule = next(rules_among(value), "") or (type(value).__name__ if is_plain and name in SAYING else "")
        if rule:
            raise DefinitionError(
                f"{where} is a {rule}, which applies to no tool as an attribute of a class: give it to "
                f"serve(…) or ToolsetServer(…), or use {made}.carrying(…); name it _{name} if you do so"
            )
        is_method = isinstance(value, FunctionType | property) and self._member(name, value) is None
        if (is_method and name in _SAYING_RULES) or (
            isinstance(value, FunctionType) and (name.endswith("_hook") or "next" in _parameters(value))
        ):
            raise DefinitionError(
                f"{where} is never asked, as methods of a toolset are no rules: put it into a class of its "
                f"own, say Guarding, and use {made}.carrying(Guarding())"
            )

    def _own_tools(self, kind: type[T]) -> Iterator[tuple[str, Tool[..., Any]]]:
        for name, value in vars(kind).items():
            if isinstance(member := self._member(name, value), Tool):
                yield f"{kind.__qualname__}.{name}", member

    def _member(self, name: str, value: object) -> Tool[..., Any] | T | None:
        if name.startswith("_"):
            return None
        if isinstance(value, staticmethod):
            value = cast("object", value.__func__)
        member = declared_tool(value) or value
        if not isinstance(member, Tool | self._base):
            return None
        return cast("Tool[..., Any] | T", member)


def _is_plain_method(function: object, name: str, kind: type) -> bool:
    if not isinstance(function, FunctionType):
        return False
    first = _parameters(function)[:1]
    is_own = function.__qualname__ == f"{kind.__qualname__}.{name}"
    return is_method(function) or (is_own and bool(first) and first[0] not in function.__annotations__)


def _parameters(function: FunctionType) -> tuple[str, ...]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]


def _made(function: Any, where: str) -> Tool[..., Any]:
    try:
        return tool(function)
    except DefinitionError as fault:
        raise DefinitionError(
            f"{where} cannot be a tool: {fault}. If it is not a tool, give it a name like _helper"
        ) from None


def check_calls(kind: type, bindings: Iterable[ToolBinding]) -> None:
    """Refuse a class whose `Toolset[…]` lacks calls of its tools, so that a `match` would not be complete."""
    said = [call for base in getattr(kind, "__orig_bases__", ()) for call in _union(get_args(base))]
    kinds: list[Any] = [get_origin(call) or call for call in said]
    # Calls are told by name: importing `DecodedCall` brings pydantic's models, which take long to import.
    if not said or not {getattr(one, "__name__", "") for one in kinds} <= {"DecodedCall", "FunctionCall"}:
        return
    inputs = {get_args(call)[0]: get_args(call)[-1] for call in said if get_args(call)}
    for binding in bindings:
        tool: Any = binding.origin
        if isinstance(tool, FunctionTool):
            known, made = FunctionCall in kinds, "FunctionCall"
        else:
            declared: Any = tool.declared
            output, written = getattr(tool, "output", None), inputs.get(declared)
            if isinstance(output, type) and isinstance(written, type) and not issubclass(output, written):
                raise DefinitionError(
                    f"{kind.__qualname__}: the output of {binding.name!r} is {output.__name__}, not "
                    f"{written.__name__}: write DecodedCall[{declared.__name__}, {output.__name__}]"
                )
            known, made = declared in inputs, f"DecodedCall[{getattr(declared, '__name__', declared)}, …]"
        if not known:
            raise DefinitionError(
                f"{kind.__qualname__} does not say that it decodes calls of {binding.name!r}: add {made} to "
                "the union in Toolset[…]"
            )


def _union(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    first = arguments[0] if arguments else None
    return get_args(first) if get_origin(first) in (Union, UnionType) else arguments
