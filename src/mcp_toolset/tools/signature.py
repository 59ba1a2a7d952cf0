"""A function's signature as schemas, a parser for its arguments and a converter of its result.

pydantic makes the schemas, unless all visible parameters have plain types (`plain_arguments`).
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from inspect import Parameter
from math import isfinite
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic_core import SchemaSerializer, SchemaValidator, ValidationError, to_json, to_jsonable_python
from pydantic_core import core_schema as core

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, InvalidOutputError, StateError
from mcp_toolset.tools.binding import Supplies, ToolBinding
from mcp_toolset.tools.call import InjectingContext, ToolCall, ToolContext
from mcp_toolset.tools.definition import check_name
from mcp_toolset.tools.result import AskUser, Halt, ToolResult, checked_result, encodable

if TYPE_CHECKING:
    from docstring_parser import Docstring


PlainType: TypeAlias = tuple[core.CoreSchema, dict[str, Any]]  # Checks and writes values; JSON Schema.

_PLAIN: Final[dict[Any, tuple[Callable[[], core.CoreSchema], str]]] = {
    str: (core.str_schema, "string"),
    int: (core.int_schema, "integer"),
    float: (core.float_schema, "number"),
    bool: (core.bool_schema, "boolean"),
}


def plain_type(annotation: Any) -> PlainType | None:
    if type(annotation) is type and (made := _PLAIN.get(annotation)) is not None:
        return made[0](), {"type": made[1]}
    if annotation is Any:
        return core.any_schema(), {}
    inner = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is list and len(inner) == 1:
            if (item := plain_type(inner[0])) is not None:
                return core.list_schema(item[0]), {"items": item[1], "type": "array"}
        case origin if origin is dict and len(inner) == 2 and inner[0] is str:
            if (item := plain_type(inner[1])) is not None:
                schema = {"additionalProperties": item[1] or True, "type": "object"}
                return core.dict_schema(core.str_schema(), item[0]), schema
        case origin if origin is Literal and all(type(value) is str for value in inner):
            chosen: dict[str, Any] = {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
            return core.literal_schema(list(inner)), {**chosen, "type": "string"}
        case origin if origin in (Union, types.UnionType) and len(inner) == 2 and inner[1] is type(None):
            if inner[0] is not Any and (item := plain_type(inner[0])) is not None:
                return core.nullable_schema(item[0]), {"anyOf": [item[1], {"type": "null"}]}
        case _:
            pass
    return None


def plain_arguments(parameters: Iterable[Parameter]) -> PlainType | None:
    accepted: list[core.ArgumentsParameter] = []
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in parameters:
        made = _described_type(parameter.annotation)
        if made is None or not _is_plain_default(parameter.default):
            return None
        checked, schema = made
        if parameter.default is Parameter.empty:
            required.append(parameter.name)
        else:
            checked = core.with_default_schema(checked, default=parameter.default)
            schema = dict(sorted([*schema.items(), ("default", parameter.default)]))
        accepted.append(core.arguments_parameter(parameter.name, checked, mode="keyword_only"))
        properties[parameter.name] = schema
    whole: dict[str, Any] = {"additionalProperties": False, "properties": properties}
    whole |= {"required": required} if required else {}
    return core.call_schema(core.arguments_schema(accepted), dict), {**whole, "type": "object"}


def _described_type(annotation: Any) -> PlainType | None:
    if get_origin(annotation) is not Annotated:
        return plain_type(annotation)
    inner, *notes = get_args(annotation)
    if (made := plain_type(inner)) is None or len(notes) != 1 or type(notes[0]) is not str:
        return None
    return made[0], dict(sorted([*made[1].items(), ("description", notes[0])]))


def _is_plain_default(value: Any) -> bool:
    if type(value) is float:
        return isfinite(value)
    return value is Parameter.empty or type(value) in (str, int, bool, type(None))


_MARKS: Final = (
    (re.compile(r"^\s*:", re.MULTILINE), "rest"),
    (re.compile(r"^\s*[A-Z]\w*:\s*$", re.MULTILINE), "google"),
    (re.compile(r"^\s*-{2,}\s*$|^\s*\.\. ", re.MULTILINE), "numpydoc"),
)


def described_by(docstring: str) -> tuple[str | None, Mapping[str, str]]:
    """A docstring's text outside of its sections, and the description of each parameter that has one."""
    forms = [form for marks, form in _MARKS if marks.search(docstring)]
    read = [parsed for form in forms if (parsed := _parsed(docstring, form)) is not None]
    if not read:
        return _plain(docstring), {}
    best = max(read, key=lambda parsed: len(parsed.meta))
    texts = (best.short_description, best.long_description)
    parameters = {item.arg_name: item.description for item in best.params if item.description}
    return "\n\n".join(filter(None, texts)) or None, parameters


def _parsed(docstring: str, form: str) -> Docstring | None:
    # Most docstrings have no form, and most programs then never import the parser.
    from docstring_parser import ParseError

    try:
        return import_module(f"docstring_parser.{form}").parse(docstring)
    except ParseError:
        return None


def _plain(docstring: str) -> str | None:
    """The text in the layout that the parser expects: its first line, and the rest after an empty line."""
    first, _, rest_of_it = docstring.partition("\n")
    return "\n\n".join(filter(None, (first, rest_of_it.strip()))) or None


class Injected:
    """Marks a parameter that the application supplies: `database: Annotated[Database, Injected]`."""


@dataclass(frozen=True, slots=True)
class InjectedParameter:
    """One injected parameter; its value is looked up by name, then by `kinds`; `shown` is for messages."""

    name: str
    kinds: tuple[Any, ...]
    shown: str
    optional: bool

    def supply(self, keywords: dict[str, Any], call: ToolCall, context: ToolContext) -> None:
        supplied = context.injected
        for key in (self.name, *self.kinds):
            if key in supplied:
                keywords[self.name] = supplied[key]
                return
        if not self.optional:
            raise StateError(
                f"tool {call.name!r} needs {self.name!r} ({self.shown}), which was not supplied; give the "
                f"toolset or the tool .injecting({{{self.name!r}: …}}), or run it with context.injecting(…)"
            )


def check_supplied(binding: ToolBinding) -> None:
    """Raise `DefinitionError` if nothing supplies what a local tool needs; a function may supply anything."""
    signature: Any = getattr(binding.origin, "signature", None)
    needed: tuple[InjectedParameter, ...] = () if signature is None else signature.arguments.injected
    tables = [supply for supply in binding.supplies if not callable(supply)]
    if binding.source or len(tables) < len(binding.supplies):
        return
    for one in needed:
        if not one.optional and not any(key in table for table in tables for key in (one.name, *one.kinds)):
            raise DefinitionError(
                f"tool {binding.name!r} needs {one.name!r} ({one.shown}), which nothing supplies, so calls "
                f"would fail; give the toolset or the tool .injecting({{{one.name!r}: …}})"
            )


def injected_parameter(parameter: inspect.Parameter, annotation: Any) -> InjectedParameter | None:
    if get_origin(annotation) is not Annotated:
        return None
    kind, *notes = get_args(annotation)
    if not any(note is Injected or isinstance(note, Injected) for note in notes):
        return None
    union = get_origin(kind) in (Union, types.UnionType)
    kinds = tuple(item for item in get_args(kind) if item is not type(None)) if union else (kind,)
    shown = inspect.formatannotation(kind)
    return InjectedParameter(parameter.name, kinds, shown, parameter.default is not parameter.empty)


def with_injected(binding: ToolBinding, supplies: Supplies) -> ToolBinding:
    """The binding with values for its handler's injected parameters; a mounted tool ignores them."""
    if binding.source:
        return binding
    run = binding.execute

    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        values = supplies(context) if callable(supplies) else supplies
        return await run(call, InjectingContext(context, values))

    return replace(binding, execute=execute, supplies=(*binding.supplies, supplies))


_CONTENT: Final = ("TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource")
_UNTYPED: Final = (Any, str, None, type(None), ToolResult, inspect.Signature.empty)


def _content() -> tuple[type[Any], ...]:
    """The models of content blocks; none until some module imports them, which takes long."""
    models = sys.modules.get("mcp_types")
    kinds = (getattr(models, name, None) for name in _CONTENT)
    return tuple(model for model in kinds if model is not None)


@dataclass(frozen=True, slots=True)
class Returned:
    """The return type of a function: a schema if it is typed, and the conversion of values to results."""

    schema: Mapping[str, Any] | None = None
    serializer: SchemaSerializer | None = None
    wrapped: bool = False  # True if the value is not an object, and is sent in one as `result`.
    plain: bool = False  # True if an untyped mapping is structured content too, for handlers of JSON.

    def to_result(self, value: Any, tool: str) -> ToolResult:
        """The returned value as a result; `InvalidOutputError` if it has no JSON form clients could read."""
        if isinstance(value, ToolResult):
            return checked_result(value, tool)
        if isinstance(value, AskUser):
            return ToolResult({"content": [{"type": "text", "text": value.question}]}, ask=value)
        if isinstance(value, Halt):
            ended = _untyped(None) if value.result is None else self.to_result(value.result, tool)
            return replace(ended, halt=value)
        try:
            if self.serializer is not None:
                plain = self.serializer.to_python(value, mode="json", by_alias=True, warnings=False)
                if isinstance(plain, str):
                    plain = text = encodable(plain)
                else:
                    text = to_json(plain, inf_nan_mode="null").decode()
                return ToolResult.of_structured({"result": plain} if self.wrapped else plain, text=text)
            given: object = value
            is_plain = self.plain and isinstance(given, Mapping)
            return ToolResult.of_structured(value) if is_plain else _untyped(value)
        except ValueError as fault:
            raise InvalidOutputError(
                f"{tool} returned a value that has no JSON form: {fault}{_mend(value)}"
            ) from None


def _mend(value: object) -> str:
    if not isinstance(value, bytes | bytearray):
        return ""
    return (
        "; return bytes as content, such as ToolResult.of_content([{'type': 'image', "
        "'mimeType': 'image/png', 'data': base64.b64encode(…).decode()}])"
    )


UNTYPED: Final = Returned()  # Without a schema: any value is shown as text or content.

JSON: Final = Returned(plain=True)
"""Without a schema, for a handler of JSON: a mapping is structured content, the rest is shown as text."""


def returned_as(annotation: Any, place: str) -> Returned:
    """The promise of a return annotation; a question and a halt are no part of it."""
    annotation = _value_type(annotation)
    if _is_untyped(annotation):
        return UNTYPED
    if (plain := plain_type(annotation)) is not None:
        return _returned(SchemaSerializer(plain[0]), plain[1])
    from mcp_toolset.tools.json_schema import UNUSABLE, reason_of

    try:
        return _promise(annotation)
    except UNUSABLE as fault:
        raise DefinitionError(
            f"{place}: the return type has no JSON Schema: {reason_of(fault)}; "
            "return what JSON can carry, or annotate it as Any"
        ) from None


def _promise(annotation: Any) -> Returned:
    try:
        hash(annotation)
    except TypeError:
        return _read(annotation)
    return _remembered(annotation, repr(annotation))


@lru_cache(maxsize=256)
def _remembered(annotation: Any, shown: str) -> Returned:
    """As `_read`: many tools return the same type. `shown` tells equal unions of another order apart."""
    return _read(annotation)


def _read(annotation: Any) -> Returned:
    # pydantic's models take long to import; they are needed when a tool is declared.
    from pydantic import TypeAdapter

    from mcp_toolset.tools.json_schema import PlainSchema

    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    schema = adapter.json_schema(mode="serialization", schema_generator=PlainSchema)
    return _returned(adapter.serializer, schema)


def _returned(serializer: SchemaSerializer, schema: dict[str, Any]) -> Returned:
    if schema.get("type") == "object" or "$ref" in schema:
        return Returned({"type": "object", **schema}, serializer, False)
    definitions = schema.pop("$defs", None)
    wrapper: dict[str, Any] = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return Returned(wrapper | ({"$defs": definitions} if definitions else {}), serializer, True)


def _value_type(annotation: Any) -> Any:
    if annotation in (AskUser, Halt):
        return None
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    values = tuple(item for item in get_args(annotation) if item not in (AskUser, Halt))
    return Union[values] if values else None  # noqa: UP007 - made of a tuple


def _is_untyped(annotation: Any) -> bool:
    if annotation in _UNTYPED or annotation in _content():
        return True
    origin, items = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_untyped(items[0])
    if origin in (Union, types.UnionType):
        return any(map(_is_content, items)) or all(map(_is_untyped, items))
    return origin in (list, tuple, Sequence) and any(map(_is_content, items))


def _is_content(annotation: Any) -> bool:
    nests = get_origin(annotation) in (Annotated, Union, types.UnionType, list, tuple, Sequence)
    inner = get_args(annotation) if nests else ()
    return annotation in (*_content(), ToolResult) or any(map(_is_content, inner))


def _untyped(value: Any) -> ToolResult:
    if value is None:
        return ToolResult.of_content([])
    items: list[Any] = list(cast("list[Any]", value)) if isinstance(value, list | tuple) else [value]
    models = () if isinstance(value, str) else _content()
    # Most of a long list is of one type.
    if models and any(issubclass(kind, models) for kind in set(map(type, items))):
        return ToolResult.of_content([_block(item, models) for item in items])
    return ToolResult.of_text(_shown(value))


def _block(item: Any, models: tuple[type[Any], ...]) -> dict[str, Any]:
    if isinstance(item, models):
        return item.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {"type": "text", "text": _shown(item)}


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return encodable(value)
    return to_json(to_jsonable_python(value, inf_nan_mode="null")).decode()


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parameters that a model sees: their schema, and the parser from JSON to keyword arguments."""

    schema: Mapping[str, Any]
    validator: SchemaValidator
    context: tuple[str, ...]
    injected: tuple[InjectedParameter, ...] = ()

    def parse(self, call: ToolCall, context: ToolContext) -> dict[str, Any]:
        """Keyword arguments for the function; `InvalidArgumentsError` names each fault with its place."""
        try:
            keywords = self.validator.validate_python(call.arguments)
        except ValidationError as fault:
            keywords = self._from_json(call, fault)
        return self.supplied(keywords, call, context) if self.context or self.injected else keywords

    def read(self, call: ToolCall) -> dict[str, Any]:
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
    if not isinstance(function, types.FunctionType):
        return False
    scope, _, _ = function.__qualname__.rpartition(".")
    is_inside_a_class = scope != "" and not scope.endswith("<locals>")
    first = function.__code__.co_varnames[: function.__code__.co_argcount][:1]
    return is_inside_a_class and first == ("self",) and "self" not in function.__annotations__


def read_signature(
    function: Callable[..., Any], name: str | None = None, *, without_self: bool = False
) -> FunctionSignature:
    target = _innermost(function)
    place = place_of(target)
    own = getattr(target, "__name__", "<lambda>") if name is None else name
    if own == "<lambda>":
        raise DefinitionError(f"{place} has no name; define a function or give tool(name=…)")
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise DefinitionError(f"{place} is a generator, and a call has one result; return a list instead")
    check_name(own, place)
    hints = resolved_hints(target, place)
    text, described = described_by(inspect.getdoc(target) or "")
    parameters = _parameters(function, place)[1 if without_self else 0 :]
    arguments = _arguments(parameters, place, hints, described)
    returned = returned_as(hints.get("return", inspect.Signature.empty), place)
    return FunctionSignature(own, text, place, arguments, returned)


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(function, type):
        raise DefinitionError(f"a class cannot be a tool: {function!r}; use a function that makes one")
    inner: Callable[..., Any] = inspect.unwrap(function)
    return _innermost(cast("partial[Any]", inner).func) if isinstance(inner, partial) else inner


def resolved_hints(function: Callable[..., Any], place: str) -> dict[str, Any]:
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
            visible.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation))
    validator, schema = _made(place, visible)
    _check_defaults(validator, visible, place)
    for name, shown in schema["properties"].items():
        if name in described and "description" not in shown:
            schema["properties"][name] = dict(sorted([*shown.items(), ("description", described[name])]))
    return Arguments(schema, validator, tuple(context), tuple(injected))


def _check_defaults(validator: SchemaValidator, parameters: Iterable[inspect.Parameter], place: str) -> None:
    plain = (str, int, float, bool, bytes, list, dict, tuple)
    given = {
        parameter.name: parameter.default for parameter in parameters if type(parameter.default) in plain
    }
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
    if (plain := plain_arguments(parameters)) is not None:
        return SchemaValidator(plain[0]), plain[1]
    # pydantic's models take long to import; they are needed when a tool of other types is declared.
    from mcp_toolset.tools.json_schema import UNUSABLE

    try:
        return _validator_and_schema(parameters)
    except UNUSABLE as fault:
        raise _unusable(place, parameters, fault) from None


def _validator_and_schema(parameters: Sequence[inspect.Parameter]) -> tuple[SchemaValidator, dict[str, Any]]:
    from pydantic import TypeAdapter

    from mcp_toolset.tools.json_schema import PlainSchema

    def keywords(**parsed: Any) -> dict[str, Any]:
        return parsed

    visible = [_visible(parameter) for parameter in parameters]
    keywords.__annotations__ = {parameter.name: parameter.annotation for parameter in visible}
    cast("Any", keywords).__signature__ = inspect.Signature(visible)
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(cast("Any", keywords))
    schema = adapter.json_schema(schema_generator=PlainSchema)
    return cast("SchemaValidator", adapter.validator), schema


def _unusable(place: str, parameters: Sequence[inspect.Parameter], fault: Exception) -> DefinitionError:
    from mcp_toolset.tools.json_schema import UNUSABLE, reason_of

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
    lines = [
        f"{'.'.join(map(str, error['loc']))}: {_MISFITS.get(error['type'], error['msg'])}"
        for error in fault.errors(include_url=False)
    ]
    return f"Invalid arguments for {tool}: {'; '.join(lines[:5])}"


def place_of(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if code is None:
        return f"function {name}"
    return f"function {name} ({code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno})"
