"""A function's signature as schemas, a parser for its arguments and a writer of its result.

pydantic makes the schemas; docstrings in Google, NumPy and Sphinx form are read by
`docstring_parser` (L4).
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin, get_type_hints

import docstring_parser
import mcp_types
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError, to_json, to_jsonable_python

from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, InvalidOutputError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.names import check_name
from mcp_toolset.tools.outcome import AskUser, Halt
from mcp_toolset.tools.result import ToolResult, encodable

_CONTENT: Final = (
    mcp_types.TextContent,
    mcp_types.ImageContent,
    mcp_types.AudioContent,
    mcp_types.ResourceLink,
    mcp_types.EmbeddedResource,
)
_UNUSABLE: Final = (
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
    SchemaError,
    TypeError,
)
"""What pydantic raises for a type, or a constraint on it, that it cannot make a schema of."""

_UNTYPED: Final = (Any, str, None, type(None), ToolResult, inspect.Signature.empty, *_CONTENT)


class _Plain(GenerateJsonSchema):
    """JSON Schema without the titles that pydantic derives from field names: a model pays for each.

    A default that JSON cannot say, such as a sentinel, is left out of the schema in silence; it is
    still what the function gets.
    """

    ignored_warning_kinds = {*GenerateJsonSchema.ignored_warning_kinds, "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class _ArgumentsBase(BaseModel):
    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The model-facing parameters of a function: their schema, and the way from JSON to keywords."""

    schema: Mapping[str, Any]
    model: type[BaseModel]
    fields: Mapping[str, str]
    context: tuple[str, ...]

    def parse(self, call: ToolCall, context: ToolContext) -> dict[str, Any]:
        """Keyword arguments for the function.

        Raises:
            InvalidArgumentsError: a value does not fit its type; each fault with its place.
        """
        try:
            parsed = self.model.model_validate(call.arguments).__dict__
        except ValidationError as fault:
            parsed = self._from_json(call, fault).__dict__
        keywords = {parameter: parsed[field] for field, parameter in self.fields.items()}
        for parameter in self.context:
            keywords[parameter] = context
        return keywords

    def _from_json(self, call: ToolCall, fault: ValidationError) -> BaseModel:
        """Read the arguments as the JSON that they are: to a strict type, a date is a string there."""
        try:
            return self.model.model_validate_json(to_json(call.arguments))
        except ValueError:
            raise InvalidArgumentsError(_invalid(call.name, fault)) from None


@dataclass(frozen=True, slots=True)
class Returned:
    """What a function promises to return: a schema when it is typed, and the way to a result."""

    schema: Mapping[str, Any] | None
    adapter: TypeAdapter[Any] | None
    wrapped: bool

    def to_result(self, value: Any, tool: str) -> ToolResult:
        """The function's value as a result.

        Raises:
            InvalidOutputError: the value has no JSON form.
        """
        if isinstance(value, ToolResult):
            return value
        if isinstance(value, AskUser):
            return ToolResult({"content": [{"type": "text", "text": value.question}]}, ask=value)
        if isinstance(value, Halt):
            return replace(self.to_result(value.result, tool), halt=value)
        try:
            return self._typed(value) if self.adapter is not None else _untyped(value)
        except ValueError as fault:
            raise InvalidOutputError(f"{tool} returned a value that has no JSON form: {fault}") from None

    def _typed(self, value: Any) -> ToolResult:
        assert self.adapter is not None
        plain = self.adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        if isinstance(plain, str):
            plain = text = encodable(plain)
        else:
            text = to_json(plain).decode()
        return ToolResult.of_structured({"result": plain} if self.wrapped else plain, text=text)


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """Everything that a function says about itself as a tool."""

    name: str
    description: str | None
    place: str
    arguments: Arguments
    returned: Returned


def read_signature(function: Callable[..., Any], name: str | None = None) -> FunctionSignature:
    """Read a function as a tool.

    Raises:
        DefinitionError: see `tool`.
    """
    target = _innermost(function)
    place = _place(target)
    own = getattr(target, "__name__", "<lambda>") if name is None else name
    if own == "<lambda>":
        raise DefinitionError(f"{place} has no name of its own; define a function or give tool(name=…)")
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise DefinitionError(f"{place} is a generator, and a call has one result; return a list instead")
    check_name(own, place)
    hints = resolved_hints(target, place)
    doc = docstring_parser.parse(inspect.getdoc(target) or "")
    described = {parameter.arg_name: parameter.description or "" for parameter in doc.params}
    arguments = _arguments(function, own, place, hints, described)
    returned = _returned(hints.get("return", inspect.Signature.empty), place)
    description = "\n\n".join(part for part in (doc.short_description, doc.long_description) if part) or None
    return FunctionSignature(own, description, place, arguments, returned)


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that has the annotations and the docstring: inside wrappers and partials."""
    if isinstance(function, type):
        raise DefinitionError(f"a class cannot be a tool: {function!r}; use a function that makes one")
    inner: Callable[..., Any] = inspect.unwrap(function)
    return _innermost(cast("partial[Any]", inner).func) if isinstance(inner, partial) else inner


def resolved_hints(function: Callable[..., Any], place: str) -> dict[str, Any]:
    """The annotations of a function as types, those that are strings included.

    Raises:
        DefinitionError: one of them names nothing; the message starts with `place`.
    """
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        try:
            return get_type_hints(target, include_extras=True)
        except NameError:
            return get_type_hints(target, localns=_locals_around(target), include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as fault:
        raise DefinitionError(
            f"{place}: an annotation cannot be resolved: {fault}; import it at module level"
        ) from None


def _locals_around(function: Callable[..., Any]) -> dict[str, Any]:
    """The local names that a nested function sees, from the frames that define it and still run."""
    qualname, names = getattr(function, "__qualname__", ""), dict[str, Any]()
    frame = inspect.currentframe()
    while frame is not None:
        if qualname.startswith(f"{frame.f_code.co_qualname}.<locals>."):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _arguments(
    function: Callable[..., Any],
    name: str,
    place: str,
    hints: Mapping[str, Any],
    described: Mapping[str, str],
) -> Arguments:
    definitions: dict[str, Any] = {}
    fields: dict[str, str] = {}
    context: list[str] = []
    for index, parameter in enumerate(_parameters(function, place)):
        annotation = _annotation(parameter, hints, place)
        if _is_context(annotation):
            context.append(parameter.name)
            continue
        fields[f"p{index}"] = parameter.name
        definitions[f"p{index}"] = _field(parameter, annotation, described.get(parameter.name))
    model = _model(name, place, definitions)
    return Arguments(_schema(model, place), model, fields, tuple(context))


def _parameters(function: Callable[..., Any], place: str) -> list[inspect.Parameter]:
    """The parameters that are still open: what a partial has bound is no longer anybody's to give."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise DefinitionError(f"{place} has no signature that can be read; wrap it in a function") from None
    bound = cast("partial[Any]", function).keywords if isinstance(function, partial) else {}
    return [parameter for parameter in signature.parameters.values() if parameter.name not in bound]


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        return any(_is_context(item) for item in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, ToolContext)


def _annotation(parameter: inspect.Parameter, hints: Mapping[str, Any], place: str) -> Any:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise DefinitionError(
            f"{place}: parameter {str(parameter)!r} cannot be passed by name; give it a plain name"
        )
    if parameter.name not in hints and parameter.name == "self":
        raise DefinitionError(f"{place} is a method; bind it first, as in tool(instance.method)")
    if parameter.name not in hints:
        raise DefinitionError(
            f"{place}: parameter {parameter.name!r} has no type annotation; write {parameter.name}: str, say"
        )
    return hints[parameter.name]


def _field(parameter: inspect.Parameter, annotation: Any, description: str | None) -> tuple[Any, Any]:
    """A model field under an inner name; the parameter's own name is its alias, so that any name will do."""
    default: Any = parameter.default
    if isinstance(default, FieldInfo):
        annotation = Annotated[annotation, default]
    known = [item for item in get_args(annotation)[1:] if isinstance(item, FieldInfo)]
    shown = next((info.description for info in known if info.description), description)
    if default is parameter.empty or isinstance(default, FieldInfo):
        return annotation, Field(alias=parameter.name, description=shown)
    return annotation, Field(default, alias=parameter.name, description=shown)


def _model(name: str, place: str, definitions: dict[str, Any]) -> type[BaseModel]:
    try:
        return create_model(name, __base__=_ArgumentsBase, **definitions)
    except _UNUSABLE as fault:
        reason = str(fault).splitlines()[0]
        raise DefinitionError(f"{place}: a parameter's type has no JSON Schema: {reason}") from None


def _schema(model: type[BaseModel], place: str) -> dict[str, Any]:
    try:
        schema = model.model_json_schema(schema_generator=_Plain)
    except _UNUSABLE as fault:
        reason = str(fault).splitlines()[0]
        raise DefinitionError(f"{place}: a parameter's type has no JSON Schema: {reason}") from None
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema


def _returned(annotation: Any, place: str) -> Returned:
    if _is_untyped(annotation):
        return Returned(None, None, False)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        schema = adapter.json_schema(mode="serialization", schema_generator=_Plain)
    except _UNUSABLE as fault:
        reason = str(fault).splitlines()[0]
        raise DefinitionError(f"{place}: the return type has no JSON Schema: {reason}") from None
    if schema.get("type") == "object" or "$ref" in schema:
        return Returned({"type": "object", **schema}, adapter, False)
    definitions = schema.pop("$defs", None)
    wrapper: dict[str, Any] = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return Returned(wrapper | ({"$defs": definitions} if definitions else {}), adapter, True)


def _is_untyped(annotation: Any) -> bool:
    if annotation in _UNTYPED:
        return True
    origin, items = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_untyped(items[0])
    if origin in (Union, types.UnionType):
        return any(map(_is_content, items)) or all(map(_is_untyped, items))
    return origin in (list, tuple, Sequence) and any(map(_is_content, items))


def _is_content(annotation: Any) -> bool:
    """Whether it is content that goes into a result as it is, or a choice or a list of such."""
    nests = get_origin(annotation) in (Annotated, Union, types.UnionType, list, tuple, Sequence)
    inner = get_args(annotation) if nests else ()
    return annotation in (*_CONTENT, ToolResult) or any(map(_is_content, inner))


def _untyped(value: Any) -> ToolResult:
    if value is None:
        return ToolResult.of_content([])
    items: list[Any] = list(cast("list[Any]", value)) if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, _CONTENT) for item in items):
        return ToolResult.of_content([_block(item) for item in items])
    return ToolResult.of_text(_shown(value))


def _block(item: Any) -> dict[str, Any]:
    if isinstance(item, _CONTENT):
        return item.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {"type": "text", "text": _shown(item)}


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return encodable(value)
    return to_json(to_jsonable_python(value, inf_nan_mode="null")).decode()


def _invalid(tool: str, fault: ValidationError) -> str:
    lines = [
        f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in fault.errors(include_url=False)
    ]
    return f"Invalid arguments for {tool}: {'; '.join(lines[:5])}"


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if code is None:
        return f"function {name}"
    return f"function {name} ({code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno})"
