"""A function's signature as schemas, a parser for its arguments and a writer of its result.

pydantic makes the schemas; docstrings in Google, NumPy and Sphinx form are read by
`docstring_parser` (L4).
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from mcp_toolset.errors import DefinitionError, InvalidArgumentsError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.injected import InjectedParameter, injected_parameter
from mcp_toolset.tools.names import check_name
from mcp_toolset.tools.returned import Returned, returned_as
from mcp_toolset.tools.schema import UNUSABLE, PlainSchema, reason_of


class _ArgumentsBase(BaseModel):
    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The model-facing parameters of a function: their schema, and the way from JSON to keywords."""

    schema: Mapping[str, Any]
    model: type[BaseModel]
    fields: Mapping[str, str]
    context: tuple[str, ...]
    injected: tuple[InjectedParameter, ...] = ()

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
        for parameter in self.injected:
            parameter.supply(keywords, call, context)
        return keywords

    def _from_json(self, call: ToolCall, fault: ValidationError) -> BaseModel:
        """Read the arguments as the JSON that they are: to a strict type, a date is a string there."""
        try:
            return self.model.model_validate_json(to_json(call.arguments))
        except ValueError:
            raise InvalidArgumentsError(invalid_arguments(call.name, fault)) from None


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
    place = place_of(target)
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
    returned = returned_as(hints.get("return", inspect.Signature.empty), place)
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
    injected: list[InjectedParameter] = []
    for index, parameter in enumerate(_parameters(function, place)):
        annotation = _annotation(parameter, hints, place)
        if _is_context(annotation):
            context.append(parameter.name)
        elif hidden := injected_parameter(parameter, annotation):
            injected.append(hidden)
        else:
            fields[f"p{index}"] = parameter.name
            definitions[f"p{index}"] = _field(parameter, annotation, described.get(parameter.name))
    model, schema = _modelled(name, place, definitions, fields)
    return Arguments(schema, model, fields, tuple(context), tuple(injected))


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


def _modelled(
    name: str, place: str, definitions: dict[str, Any], fields: Mapping[str, str]
) -> tuple[type[BaseModel], dict[str, Any]]:
    try:
        return _model_and_schema(name, definitions)
    except UNUSABLE as fault:
        raise _unusable(name, place, definitions, fields, fault) from None


def _model_and_schema(name: str, definitions: dict[str, Any]) -> tuple[type[BaseModel], dict[str, Any]]:
    model = create_model(name, __base__=_ArgumentsBase, **definitions)
    schema = model.model_json_schema(schema_generator=PlainSchema)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return model, schema


def _unusable(
    name: str, place: str, definitions: dict[str, Any], fields: Mapping[str, str], fault: Exception
) -> DefinitionError:
    """Which parameter it is that has no schema: the first that has none by itself."""
    for field, definition in definitions.items():
        try:
            _model_and_schema(name, {field: definition})
        except UNUSABLE as own:
            parameter = fields[field]
            return DefinitionError(
                f"{place}: the type of parameter {parameter!r} has no JSON Schema: {reason_of(own)}; use "
                "one that JSON can carry, or supply it yourself with Annotated[…, Injected]"
            )
    return DefinitionError(f"{place}: the parameters have no JSON Schema together: {reason_of(fault)}")


def invalid_arguments(tool: str, fault: ValidationError) -> str:
    """What is wrong with the arguments of a call, each fault with its place."""
    lines = [
        f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in fault.errors(include_url=False)
    ]
    return f"Invalid arguments for {tool}: {'; '.join(lines[:5])}"


def place_of(function: Callable[..., Any]) -> str:
    """Where a function is defined, for messages: its name, file and line."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if code is None:
        return f"function {name}"
    return f"function {name} ({code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno})"
