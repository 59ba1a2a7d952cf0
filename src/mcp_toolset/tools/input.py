"""`@tool_input` declares a model as the input of a tool without a handler; `InputTool` is that tool.

The model stays an ordinary class, for annotations of hooks for example. `InputTool.of(Model)` is the tool; a
toolset takes the class itself. The application answers the calls, unless `with_handler` adds a handler.
Typed calls have outcomes, which `DecodedCall` and `FunctionCall` share.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_origin,
    overload,
    runtime_checkable,
)

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from mcp_toolset._records import dataclass
from mcp_toolset.errors import (
    DefinitionError,
    InvalidArgumentsError,
    InvalidOutputError,
    StateError,
    ToolMismatchError,
)
from mcp_toolset.tools.binding import Reads, ToolBinding
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall, ToolContext, require_context
from mcp_toolset.tools.definition import (
    DECLARED,
    ToolOptions,
    check_name,
    checked,
    declared_tool,
    definition_of,
    fields_of,
)
from mcp_toolset.tools.from_schema import promised
from mcp_toolset.tools.json_schema import UNUSABLE, PlainSchema, reason_of
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.signature import described_by, invalid_arguments
from mcp_toolset.tools.tool import FunctionCall, HandlerCall, Tool, answering, resolve_handler
from mcp_toolset.tools.view import ToolView, rules_of

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import TypeIs


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
    binding = tool.bind() if view is None else view.get(call.name)
    is_own = binding is not None and (binding.origin is tool or binding.tool_id == tool.id)
    if binding is None or not is_own or binding.name != call.name:
        raise ToolMismatchError(
            f"the call {call.id or '-'} of {call.name!r} is not a call of tool {tool.name!r}; decode it with "
            "its own tool, and with the view that it was offered in if it has another name there"
        )
    return binding


def fitting(result: ToolResult, binding: ToolBinding) -> ToolResult:
    check = binding.output
    if check is None or result.is_error or not result.is_complete or check.is_valid(result.structured):
        return result
    faults = "; ".join(check.problems(result.structured))
    raise InvalidOutputError(f"the output for {binding.name} does not fit its schema: {faults}")


VALUE: Final = "value"  # The only parameter of an input that is not an object, such as an enum.


@dataclass(frozen=True, slots=True)
class InputReader:
    """Parses the typed input from a call's arguments."""

    adapter: TypeAdapter[Any]
    wrapped: bool

    def __call__(self, call: ToolCall) -> Any:
        try:
            given = call.arguments[VALUE] if self.wrapped else call.arguments
        except KeyError:
            raise InvalidArgumentsError(
                f"Invalid arguments for {call.name}: {VALUE}: Field required"
            ) from None
        try:
            return self.adapter.validate_python(given)
        except ValidationError as fault:
            return self._from_json(call, given, fault)

    def arguments_of(self, value: Any) -> dict[str, Any]:
        try:
            plain = self.adapter.dump_python(
                value, mode="json", by_alias=True, exclude_unset=True, warnings=False
            )
        except ValueError as fault:
            raise InvalidArgumentsError(f"the input {value!r} has no JSON form: {fault}") from None
        return {VALUE: plain} if self.wrapped else plain

    def _from_json(self, call: ToolCall, given: Any, fault: ValidationError) -> Any:
        """Parse the arguments as JSON: in pydantic's strict mode, a date is a string in JSON."""
        try:
            return self.adapter.validate_json(to_json(given))
        except ValueError:
            raise InvalidArgumentsError(invalid_arguments(call.name, fault)) from None


def read_input(model: Any, place: str) -> tuple[InputReader, dict[str, Any]]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(model)
        schema = adapter.json_schema(schema_generator=PlainSchema)
    except UNUSABLE as fault:
        raise DefinitionError(
            f"{place} has no JSON Schema: {reason_of(fault)}; use fields of types that JSON can carry"
        ) from None
    definitions = schema.pop("$defs", {})
    wrapped = not _is_object(schema, definitions)
    if wrapped:
        schema = {"properties": {VALUE: schema}, "required": [VALUE], "additionalProperties": False}
    schema.pop("title", None)
    shown: dict[str, Any] = {"type": "object", **schema}
    return InputReader(adapter, wrapped), shown | ({"$defs": definitions} if definitions else {})


def _is_object(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    """True if every value of the type is an object; a recursive type refers to itself by name."""
    reference: str | None = schema.get("$ref")
    if reference is not None:
        return _is_object(definitions[reference.rsplit("/", 1)[-1]], definitions)
    choices: list[Mapping[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or []
    if choices:
        return all(_is_object(choice, definitions) for choice in choices)
    return schema.get("type") == "object"


def described(schema: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    about, parameters = described_by(schema.pop("description", ""))
    properties: dict[str, Any] = schema.get("properties", {})
    for name, text in parameters.items():
        if name in properties:
            properties[name] = {"description": text, **properties[name]}
    return about, schema


A = TypeVar("A")
B = TypeVar("B")
M = TypeVar("M", bound=type)


@dataclass(slots=True)
class DecodedCall(Generic[I, O]):
    """A call of one `tool_input` tool with its typed `input`, which may be edited or replaced.

    Match it by its input: `case DecodedCall(WebSearch(query=query)) as call`. `metadata` is the call as it
    was sent; `is_replaced` if hooks have refused, answered or changed it, so that it must not run.
    """

    __match_args__: ClassVar = ("input",)

    metadata: CallMetadata
    input: I
    tool: InputTool[I, O]
    sent: ToolCall = field(repr=False)
    binding: ToolBinding = field(repr=False)
    is_replaced: bool = field(default=False, repr=False, compare=False)

    @property
    def selector(self) -> InputTool[I, O]:
        """The tool as a selector, for an availability, a requirement or a hook."""
        return self.tool

    def parts(self) -> tuple[CallMetadata, I]:
        """The metadata and the input."""
        return self.metadata, self.input

    async def hook(
        self, hooks: object, *, context: ToolContext = LOCAL_CONTEXT
    ) -> DecodedCall[I, O] | HandledInput[I, O] | RejectedInput[I]:
        """Run hooks on this call only, in order and with its present input.

        Args:
            hooks: A `HookSet`, a hook function, a policy object, or `Rules` that have hooks alone.
            context: The context of the call.

        Returns:
            The call after the hooks; or their answer or refusal, whose `completed` is committed in a round.

        Raises:
            DefinitionError: the value is not a rule, or has middleware, guards or observers.
            InvalidOutputError: a hook's answer does not fit the tool's output type.
        """
        reads = self.tool.reader
        unchanged = reads(self.sent) == self.input
        arguments = self.sent.arguments if unchanged else reads.arguments_of(self.input)
        return await hooked(self, hooks, arguments, reads, context)

    async def call(self, context: ToolContext = LOCAL_CONTEXT) -> O:
        """Run the tool's own handler with the present input; its exceptions propagate.

        Raises `StateError` if there is none, its toolset carries rules, or hooks have replaced the call.
        """
        require_own(self, context)
        return await self.tool.answer(self.input, self.binding.supplying(context))

    def complete(self, output: O) -> CompletedCall:
        """The call with its output as a result, for a round; `InvalidOutputError` if it does not fit."""
        return self.tool.complete(self, output)

    def handled(self, output: O) -> HandledInput[I, O]:
        """The call with an answer that replaces the tool's; raises like `complete`."""
        result = self.tool.complete(self, output).result
        return HandledInput(self.metadata, self.input, output, result)


@dataclass(frozen=True, repr=False, eq=False)
class InputTool(Tool[..., I], Generic[I, O]):
    """A tool declared by the type of its input; calling it makes an input. `output` is as it was declared."""

    __name__: ClassVar[str]
    __qualname__: ClassVar[str]

    reader: InputReader = field(kw_only=True)
    output: Any = field(default=None, kw_only=True)

    @overload
    @staticmethod
    def of(
        model: type[A], /, *, output: type[B], name: str | None = None, **options: Unpack[ToolOptions]
    ) -> InputTool[A, B]: ...
    @overload
    @staticmethod
    def of(
        model: type[A], /, *, output: Any = None, name: str | None = None, **options: Unpack[ToolOptions]
    ) -> InputTool[A, Any]: ...
    @overload
    @staticmethod
    def of(
        model: Any, /, *, output: Any = None, name: str | None = None, **options: Unpack[ToolOptions]
    ) -> InputTool[Any, Any]: ...
    @staticmethod
    def of(
        model: Any, /, *, output: Any = None, name: str | None = None, **options: Unpack[ToolOptions]
    ) -> InputTool[Any, Any]:
        """The tool of a class declared with `@tool_input`, or a tool made from any other type.

        Args:
            model: A declared class; or a model, a union of models, an enum or any type with a JSON form.
            output: The type of the result, or its schema in any of the notations. For a declared class it
                only tells the type checker the type: `InputTool[Input, Output]`.
            name: The tool's name; required for a type that is not a class.
            **options: See `ToolOptions`.
        """
        checked("InputTool.of()", options)
        declared: InputTool[Any, Any] | None = declared_tool(model)
        if declared is None:
            return _made(model, name, output, options)
        if output in (None, declared.output) and name is None and not options:
            return declared
        return _made(model, name or declared.name, output, options)

    @property
    def reads(self) -> Reads:
        return self.reader

    def decode(self, call: ToolCall, view: ToolView | None = None) -> DecodedCall[I, O]:
        """The call with its input typed; `view` has its public name, if the tool was prefixed or renamed.

        Raises:
            ToolMismatchError: the call is of another tool.
            InvalidArgumentsError: the arguments do not fit.
        """
        binding = binding_of(call, self, view)
        metadata, own = metadata_of(call, self.id)
        return DecodedCall(metadata, (binding.reads or self.reader)(own), self, own, binding)

    def is_call(self, call: object) -> TypeIs[DecodedCall[I, O]]:
        """True if a typed call is one of this tool; type checkers narrow its type by it."""
        return (
            isinstance(call, DecodedCall) and cast("DecodedCall[Any, Any]", call).metadata.tool_id == self.id
        )

    async def answer(self, input: I, context: ToolContext) -> O:
        """Call the tool's handler with an input; see `DecodedCall.call`."""
        if self.handler is None:
            raise StateError(f"tool {self.name!r} has no handler to call; give it one with .with_handler()")
        handler = resolve_handler(self.handler, self.name) if isinstance(self.handler, str) else self.handler
        return await answering(handler, self.name)(input, context)

    def complete(self, call: DecodedCall[I, O], output: O) -> CompletedCall:
        """See `DecodedCall.complete`."""
        metadata = call.metadata
        if metadata.tool_id != self.id:
            raise ToolMismatchError(
                f"the call {metadata.id or '-'} of {metadata.name!r} is not a call of tool {self.name!r}; "
                "complete it with the call that its own tool decoded"
            )
        result = cast("HandlerCall", self.calling).returned.to_result(output, self.name)
        return CompletedCall.of(metadata, fitting(result, self.bind()))


class ToolInput(Generic[O]):
    """A base of input classes that names the type of the result, for type checkers and for the schema.

    `class WebSearch(BaseModel, ToolInput[Snippets])`; `Toolset(WebSearch)` then infers the types of calls.
    """

    @classmethod
    def decode(cls, call: ToolCall, view: ToolView | None = None) -> DecodedCall[Self, O]:
        """The call with its input typed; see `InputTool.decode`."""
        return cls._tool().decode(call, view)

    @classmethod
    def is_call(cls, call: object) -> TypeIs[DecodedCall[Self, O]]:
        """True if a typed call is one of this tool; type checkers narrow its type by it."""
        return cls._tool().is_call(call)

    @classmethod
    def _tool(cls) -> InputTool[Self, O]:
        if (declared := declared_tool(cls)) is None:
            raise DefinitionError(f"{cls.__name__} is no tool: declare it with @tool_input")
        return declared


def _output_of(model: type) -> Any:
    for kind in model.__mro__:
        for base in vars(kind).get("__orig_bases__", ()):
            if get_origin(base) is ToolInput and not isinstance(output := get_args(base)[0], TypeVar):
                return output
    return None


@overload
def tool_input(model: M, /) -> M: ...
@overload
def tool_input(
    *, name: str | None = None, output: Any = None, **options: Unpack[ToolOptions]
) -> Callable[[M], M]: ...
def tool_input(
    model: Any = None, /, *, name: str | None = None, output: Any = None, **options: Unpack[ToolOptions]
) -> Any:
    """Declare a class as the input of a tool; the class is returned unchanged, and a toolset takes it.

    Its docstring is the tool's description. Parameters are described by their `Field`s, or in the
    docstring (Google, NumPy or Sphinx form).

    Args:
        model: The class, when used as a bare decorator: a pydantic model (a `RootModel` for a union),
            a dataclass, a TypedDict or an enum.
        name: The tool's name; by default the class's.
        output: The type of the result, or its schema in any of the notations; not needed with `ToolInput`.
        **options: See `ToolOptions`; the id is `module:class` unless given.
    """
    checked("tool_input()", options)

    def declare(model: Any) -> Any:
        if not isinstance(model, type):
            raise DefinitionError(f"@tool_input takes a class, not {model!r}; use InputTool.of(…, name=…)")
        promise = _output_of(model) if output is None else output
        made: InputTool[Any, Any] = _made(model, name, promise, options)
        setattr(model, DECLARED, made)
        return cast("Any", model)

    return declare if model is None else declare(model)


def _made(model: Any, name: str | None, output: Any, options: ToolOptions) -> InputTool[Any, Any]:
    own = name or (model.__name__ if isinstance(model, type) else "")
    place = f"input {inspect.formatannotation(model)}"
    if not own:
        raise DefinitionError(f"{place} has no name; give InputTool.of(…, name=…)")
    reader, schema = read_input(model, place)
    returned, (description, schema) = promised(output, own), described(schema)
    definition = definition_of(check_name(own, place), description, schema, returned.schema, options)
    return InputTool(
        definition,
        model if isinstance(model, type) else None,
        place,
        calling=HandlerCall(reader, returned),
        reader=reader,
        output=output,
        declared=model,
        **fields_of(options),
    )


AnyCall = DecodedCall[Any, Any] | FunctionCall[..., Any]
"""A decoded call of any tool."""
