"""A function's signature as schemas, a parser for its arguments and a converter of its result.

pydantic makes the schemas, from a function that has the visible parameters only. If all of them have plain
types, `plain_types` makes the same schemas without pydantic's generators.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin, get_type_hints

from pydantic_core import SchemaValidator, ValidationError, to_json, to_jsonable_python

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.names import check_name
from mcp_toolset.tools.declare.docstring import described_by
from mcp_toolset.tools.declare.injected import InjectedParameter, injected_parameter
from mcp_toolset.tools.declare.returned import Returned, returned_as
from mcp_toolset.tools.schema.plain_types import plain_arguments


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parameters that a model sees: their schema, and the parser from JSON to keyword arguments."""

    schema: Mapping[str, Any]
    validator: SchemaValidator
    context: tuple[str, ...]
    injected: tuple[InjectedParameter, ...] = ()

    def parse(self, call: ToolCall, context: ToolContext) -> dict[str, Any]:
        """Keyword arguments for the function.

        Raises:
            InvalidArgumentsError: a value does not fit its type; each fault with its place.
        """
        try:
            keywords = self.validator.validate_python(call.arguments)
        except ValidationError as fault:
            keywords = self._from_json(call, fault)
        return self.supplied(keywords, call, context)

    def read(self, call: ToolCall) -> dict[str, Any]:
        """The keyword arguments from the model, without the injected ones."""
        try:
            return self.validator.validate_python(call.arguments)
        except ValidationError as fault:
            return self._from_json(call, fault)

    def supplied(self, keywords: dict[str, Any], call: ToolCall, context: ToolContext) -> dict[str, Any]:
        for parameter in self.context:
            keywords[parameter] = context
        for parameter in self.injected:
            parameter.supply(keywords, call, context)
        return keywords

    def _from_json(self, call: ToolCall, fault: ValidationError) -> dict[str, Any]:
        """Parse the arguments as JSON: in pydantic's strict mode, a date is a string in JSON."""
        try:
            return self.validator.validate_json(to_json(call.arguments))
        except ValueError:
            raise InvalidArgumentsError(invalid_arguments(call.name, fault)) from None


def arguments_of(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in JSON form that parse to these keywords."""
    try:
        return to_jsonable_python(dict(keywords))
    except ValueError as fault:
        raise InvalidArgumentsError(f"the input {keywords!r} has no JSON form: {fault}") from None


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """The schemas, the parser and the converter of one function."""

    name: str
    description: str | None
    place: str
    arguments: Arguments
    returned: Returned


def is_method(function: object) -> bool:
    """Whether a function is defined in a class and takes a bare `self` first."""
    if not isinstance(function, types.FunctionType):
        return False
    scope, _, _ = function.__qualname__.rpartition(".")
    is_inside_a_class = scope != "" and not scope.endswith("<locals>")
    first = function.__code__.co_varnames[: function.__code__.co_argcount][:1]
    return is_inside_a_class and first == ("self",) and "self" not in function.__annotations__


def read_signature(
    function: Callable[..., Any], name: str | None = None, *, without_self: bool = False
) -> FunctionSignature:
    """Inspect a function as a tool; for a method, `without_self`. Raises `DefinitionError`: see `tool`."""
    target = _innermost(function)
    place = place_of(target)
    own = getattr(target, "__name__", "<lambda>") if name is None else name
    if own == "<lambda>":
        raise DefinitionError(f"{place} has no name; define a function or give tool(name=…)")
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise DefinitionError(f"{place} is a generator, and a call has one result; return a list instead")
    check_name(own, place)
    hints = resolved_hints(target, place)
    doc = described_by(inspect.getdoc(target) or "")
    parameters = _parameters(function, place)[1 if without_self else 0 :]
    arguments = _arguments(parameters, place, hints, doc.parameters)
    returned = returned_as(hints.get("return", inspect.Signature.empty), place)
    return FunctionSignature(own, doc.text, place, arguments, returned)


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that has the annotations and the docstring, inside wrappers and partials."""
    if isinstance(function, type):
        raise DefinitionError(f"a class cannot be a tool: {function!r}; use a function that makes one")
    inner: Callable[..., Any] = inspect.unwrap(function)
    return _innermost(cast("partial[Any]", inner).func) if isinstance(inner, partial) else inner


def resolved_hints(function: Callable[..., Any], place: str) -> dict[str, Any]:
    """The annotations of a function as types, string annotations included."""
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
    """The local names that a nested function sees, from the frames that define it and are still running."""
    qualname, names = getattr(function, "__qualname__", ""), dict[str, Any]()
    frame = inspect.currentframe()
    while frame is not None:
        if qualname.startswith(f"{frame.f_code.co_qualname}.<locals>."):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _arguments(
    parameters: Iterable[inspect.Parameter],
    place: str,
    hints: Mapping[str, Any],
    described: Mapping[str, str],
) -> Arguments:
    visible: list[inspect.Parameter] = []
    context: list[str] = []
    injected: list[InjectedParameter] = []
    for parameter in parameters:
        annotation = _annotation(parameter, hints, place)
        if _is_context(annotation):
            context.append(parameter.name)
        elif hidden := injected_parameter(parameter, annotation):
            injected.append(hidden)
        else:
            visible.append(_shown(parameter, annotation))
    validator, schema = _made(place, visible)
    _check_defaults(validator, visible, place)
    for name, shown in schema["properties"].items():
        if name in described and "description" not in shown:
            schema["properties"][name] = dict(sorted([*shown.items(), ("description", described[name])]))
    return Arguments(schema, validator, tuple(context), tuple(injected))


def _check_defaults(validator: SchemaValidator, parameters: Iterable[inspect.Parameter], place: str) -> None:
    """Check that a default is of its parameter's type; `None` may stand for any absent value.

    Raises:
        DefinitionError: it is of another type.
    """
    plain = (str, int, float, bool, bytes, list, dict, tuple)
    given = {one.name: one.default for one in parameters if type(one.default) in plain}
    if not given:
        return
    try:
        validator.validate_python(given)
    except ValidationError as fault:
        for error in fault.errors(include_url=False):
            if (name := str(error["loc"][0])) in given:
                raise DefinitionError(
                    f"{place}: the default of parameter {name!r} does not fit its type: {error['msg']}"
                ) from None


def _parameters(function: Callable[..., Any], place: str) -> list[inspect.Parameter]:
    """The parameters that callers give: those that a partial has bound are left out."""
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


def _shown(parameter: inspect.Parameter, annotation: Any) -> inspect.Parameter:
    """The parameter with its annotation as a type, to be given by name only."""
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


def _visible(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter for pydantic: by its own name, whatever alias a `Field` gives."""
    from pydantic import Field
    from pydantic.fields import FieldInfo

    annotation: Any = parameter.annotation
    default: Any = parameter.default
    if isinstance(default, FieldInfo):
        annotation, default = Annotated[annotation, default], parameter.empty
    if texts := [note for note in _notes(annotation) if isinstance(note, str)]:
        # A bare text is the parameter's description, as in other frameworks; a `Field` wins over it.
        annotation = Annotated[get_args(annotation)[0], Field(description=texts[0]), *_notes(annotation)]
    if any(isinstance(item, FieldInfo) and item.validation_alias for item in get_args(annotation)[1:]):
        annotation = Annotated[annotation, Field(alias=parameter.name)]
    return parameter.replace(default=default, annotation=annotation)


def _notes(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def _made(place: str, parameters: Sequence[inspect.Parameter]) -> tuple[SchemaValidator, dict[str, Any]]:
    """What checks the arguments, and their JSON Schema."""
    if (plain := plain_arguments(parameters)) is not None:
        return SchemaValidator(plain[0]), plain[1]
    # pydantic's models take long to import; they are needed when a tool of other types is declared.
    from mcp_toolset.tools.schema.json_schema import UNUSABLE

    try:
        return _validator_and_schema(parameters)
    except UNUSABLE as fault:
        raise _unusable(place, parameters, fault) from None


def _validator_and_schema(
    parameters: Sequence[inspect.Parameter],
) -> tuple[SchemaValidator, dict[str, Any]]:
    from pydantic import TypeAdapter

    from mcp_toolset.tools.schema.json_schema import PlainSchema

    def keywords(**parsed: Any) -> dict[str, Any]:
        return parsed

    visible = [_visible(parameter) for parameter in parameters]
    keywords.__annotations__ = {parameter.name: parameter.annotation for parameter in visible}
    cast("Any", keywords).__signature__ = inspect.Signature(visible)
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(cast("Any", keywords))
    schema = adapter.json_schema(schema_generator=PlainSchema)
    return cast("SchemaValidator", adapter.validator), schema


def _unusable(place: str, parameters: Sequence[inspect.Parameter], fault: Exception) -> DefinitionError:
    """The first parameter whose type has no schema."""
    from mcp_toolset.tools.schema.json_schema import UNUSABLE, reason_of

    for parameter in parameters:
        try:
            _validator_and_schema([parameter])
        except UNUSABLE as own:
            return DefinitionError(
                f"{place}: the type of parameter {parameter.name!r} has no JSON Schema: {reason_of(own)}; "
                "use one that JSON can carry, or supply it yourself with Annotated[…, Injected]"
            )
    return DefinitionError(f"{place}: the parameters have no JSON Schema together: {reason_of(fault)}")


_MISFITS: Final = {
    "missing_keyword_only_argument": "Field required",
    "unexpected_keyword_argument": "Extra inputs are not permitted",
}
"""pydantic's messages about keyword arguments, worded like those about a model's fields."""


def invalid_arguments(tool: str, fault: ValidationError) -> str:
    """What is wrong with the arguments of a call; each fault with its place."""
    lines = [
        f"{'.'.join(map(str, error['loc']))}: {_MISFITS.get(error['type'], error['msg'])}"
        for error in fault.errors(include_url=False)
    ]
    return f"Invalid arguments for {tool}: {'; '.join(lines[:5])}"


def place_of(function: Callable[..., Any]) -> str:
    """Where a function is defined, for messages: its name, file and line."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if code is None:
        return f"function {name}"
    return f"function {name} ({code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno})"
