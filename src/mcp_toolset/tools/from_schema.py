"""Tools from hand-written schemas: the three notations, what they define, and `ToolBuilder`."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final, Unpack, cast

from mcp_toolset._records import replace
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.definition import (
    ToolDefinition,
    ToolOptions,
    check_name,
    checked,
    definition_of,
    fields_of,
)
from mcp_toolset.tools.signature import JSON, Returned, place_of, returned_as
from mcp_toolset.tools.tool import Handler, HandlerCall, Tool, arguments_reader
from mcp_toolset.tools.validation import MAX_SCHEMA_DEPTH, SchemaCheck, depth_exceeds

_JSON_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_ALIASES: Final = {
    "string": ("str", "text", "char"),
    "integer": (
        *("int", "long", "short", "byte", "i8", "i16", "i32", "i64", "i128", "isize"),
        *("u8", "u16", "u32", "u64", "u128", "usize"),
    ),
    "number": ("float", "double", "decimal", "f32", "f64"),
    "boolean": ("bool",),
    "array": ("list", "tuple", "vec", "sequence"),
    "object": ("dict", "map", "mapping", "hash"),
    "null": ("none", "nil"),
}
TYPE_NAMES: Final[Mapping[str, str]] = {
    **{alias: name for name, aliases in _ALIASES.items() for alias in aliases},
    **{name: name for name in _JSON_TYPES},
}
"""Every name for a type, in lower case, and its name in JSON Schema."""

_ANY: Final = "any"
_MARKERS: Final = ("optional", "required")
_SAYS_A_TYPE: Final = ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref")
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES: Final = (
    *("items", "additionalProperties", "additionalItems", "contains", "propertyNames"),
    *("not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"),
)
_ROOT_WORDS: Final = frozenset(
    {
        *_MAPS,
        *_LISTS,
        *_SINGLES,
        *_SAYS_A_TYPE,
        *("$schema", "$id", "$anchor", "$comment", "$vocabulary", "$dynamicRef", "$dynamicAnchor"),
        *("required", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("minProperties", "maxProperties", "dependentRequired", "dependencies", "format", "pattern"),
        *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("multipleOf", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains"),
    }
)


def schema_from(notation: Mapping[str, Any], *, tool: str = "tool") -> dict[str, Any]:
    """The JSON Schema of a notation, a copy that shares nothing with it; `tool` is for messages."""
    where = f"tool {tool!r}"
    if not isinstance(notation, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"{where}: a schema is a mapping, as {{'city': 'string'}}, not {notation!r}")
    if depth_exceeds(notation, MAX_SCHEMA_DEPTH):
        raise DefinitionError(f"{where}: the schema is nested more than {MAX_SCHEMA_DEPTH} deep; flatten it")
    if _is_full(notation, where):
        return deepcopy(dict(notation))
    return _from_parameters(notation, tool, where)


def type_name(name: object, where: str) -> str:
    known = TYPE_NAMES.get(name.lower()) if isinstance(name, str) else None
    if known is None:
        raise DefinitionError(
            f"{where}: unknown type {name!r}; use {', '.join(_JSON_TYPES)}, any, or an alias such as int"
        )
    return known


def _is_full(notation: Mapping[str, Any], where: str) -> bool:
    kind = notation.get("type")
    if isinstance(kind, list) or (isinstance(kind, str) and kind.lower() in TYPE_NAMES):
        return _is_object(notation, cast("str | list[Any]", kind), where)
    words = [word for word in ("$schema", "$ref") if _is_reference(notation.get(word))]
    words += [word for word in (*_LISTS, "enum", "required") if isinstance(notation.get(word), list)]
    words += [word for word in ("$defs", "properties") if _is_properties(notation.get(word))]
    if words:
        raise DefinitionError(
            f"{where}: the schema has {words[0]!r} and does not say that it is an object; "
            "add 'type': 'object'"
        )
    return False


def _is_object(notation: Mapping[str, Any], kind: str | list[Any], where: str) -> bool:
    parameters = sorted(key for key in map(str, notation) if key not in _ROOT_WORDS and key[:2] != "x-")
    if kind == "object" and (not parameters or _is_properties(notation.get("properties"))):
        return True
    plainly = f"for a parameter that is called 'type', write 'type': {{'type': {kind!r}}}"
    if parameters:
        raise DefinitionError(
            f"{where}: 'type': {kind!r} beside {parameters[0]!r} could be a schema or a parameter; {plainly}"
        )
    raise DefinitionError(
        f"{where}: the arguments of a tool are an object, and this schema is of type {kind!r}; "
        f"make it a property of one, or {plainly}"
    )


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and value.lower() not in TYPE_NAMES and ("#" in value or "/" in value)


def _is_properties(value: object) -> bool:
    """True if the notation maps names to schemas, and is not one parameter with the name `properties`."""
    if not isinstance(value, Mapping):
        return False
    named = cast("Mapping[str, Any]", value)
    return not isinstance(named.get("type"), str | list)


def _from_parameters(notation: Mapping[str, Any], tool: str, where: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, written in notation.items():
        place = f"{where}: parameter {name!r}"
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"{place}: a parameter's name is a non-empty string")
        properties[name], needed = _parameter(written, place)
        if needed:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    _check_defaults(schema, tool, where)
    return schema


def _parameter(written: object, place: str) -> tuple[dict[str, Any], bool]:
    if isinstance(written, str):
        return _named(written, place), True
    if not isinstance(written, Mapping):
        raise DefinitionError(
            f"{place}: write a type, as 'string', or a mapping, as {{'type': 'string'}}, not {written!r}"
        )
    parameter = dict(cast("Mapping[str, Any]", written))
    needed = _is_required(parameter, place)
    for marker in _MARKERS:
        if isinstance(parameter.get(marker), bool):
            del parameter[marker]
    if not any(word in parameter for word in _SAYS_A_TYPE):
        raise DefinitionError(f"{place} has no type; add 'type', with 'any' if any value will do")
    return _subschema(parameter, place), needed


def _is_required(parameter: Mapping[str, Any], place: str) -> bool:
    optional, required = (parameter.get(marker) for marker in _MARKERS)
    if "optional" in parameter and not isinstance(optional, bool):
        raise DefinitionError(f"{place}: 'optional' is true or false, not {optional!r}")
    if "required" in parameter and not isinstance(required, bool | list):
        raise DefinitionError(f"{place}: 'required' is true or false, not {required!r}")
    if isinstance(required, bool):
        return required
    return not optional and "default" not in parameter


def _named(name: object, place: str) -> dict[str, Any]:
    if isinstance(name, str) and name.lower() == _ANY:
        return {}
    return {"type": type_name(name, place)}


def _subschema(schema: Any, place: str) -> Any:
    if isinstance(schema, str):
        return _named(schema, place)
    if not isinstance(schema, Mapping):
        return deepcopy(schema)
    done: dict[str, Any] = {}
    for word, value in cast("Mapping[str, Any]", schema).items():
        done |= _types(value, place) if word == "type" else {word: _inner(word, value, place)}
    return done


def _types(kind: object, place: str) -> dict[str, Any]:
    if not isinstance(kind, list):
        return _named(kind, place)
    return {"type": [type_name(item, place) for item in cast("list[object]", kind)]}


def _inner(word: str, value: Any, place: str) -> Any:
    if word in _MAPS and isinstance(value, Mapping):
        named = cast("Mapping[str, Any]", value).items()
        return {name: _nested(item, f"{place}, in {word}: {name!r}") for name, item in named}
    if word in _LISTS and isinstance(value, list):
        return [_subschema(item, f"{place}, in {word}") for item in cast("list[Any]", value)]
    if word in _SINGLES:
        return _subschema(value, f"{place}, in {word}")
    return deepcopy(value)


def _nested(schema: object, place: str) -> Any:
    if isinstance(schema, Mapping):
        marked = [word for word in _MARKERS if isinstance(cast("Mapping[str, Any]", schema).get(word), bool)]
        if marked:
            raise DefinitionError(
                f"{place}: {marked[0]!r} marks parameters only; list what is required in 'required': […]"
            )
    return _subschema(schema, place)


def _check_defaults(schema: Mapping[str, Any], tool: str, where: str) -> None:
    properties: Mapping[str, Any] = schema["properties"]
    defaults = {name: item["default"] for name, item in properties.items() if "default" in item}
    if not defaults:
        return
    optional: dict[str, Any] = {**schema, "required": []}
    faults = SchemaCheck(optional, tool=tool, part="inputSchema").problems(defaults)
    if faults:
        raise DefinitionError(f"{where}: a default does not fit its parameter: {faults[0]}; correct either")


_DATA_KEYS = frozenset({"id", "definition", "handler", "manual", "timeout", "tags", "metadata"})


def define(
    name: str,
    schema: Mapping[str, Any],
    handler: Handler | None = None,
    *,
    output: Any = None,
    **options: Unpack[ToolOptions],
) -> dict[str, Any]:
    checked("Tool.from_schema()", options)
    returned = promised(output, name)
    own = check_name(name, f"tool {name!r}")
    definition = definition_of(own, None, schema_from(schema, tool=name), returned.schema, options)
    return _fields(definition, handler, options, returned)


def from_data(data: Mapping[str, Any], handler: Handler | None = None) -> dict[str, Any]:
    wire = data.get("definition")
    if not isinstance(wire, Mapping):
        raise DefinitionError(
            "a stored tool has a 'definition' that is an object; write it with Tool.to_data()"
        )
    unknown = sorted(data.keys() - _DATA_KEYS)
    if unknown:
        raise DefinitionError(f"a stored tool has no {unknown[0]!r}; write it with Tool.to_data()")
    definition = ToolDefinition.from_wire(cast("Mapping[str, Any]", wire))
    check_name(definition.name, f"tool {definition.name!r}")
    named: object = data.get("handler")
    if named is not None and not isinstance(named, str):
        raise DefinitionError(
            f"tool {definition.name!r}: a stored handler is 'module:function', not {named!r}"
        )
    return _fields(definition, handler or named, cast("ToolOptions", data))


def _fields(
    definition: ToolDefinition, handler: Handler | None, options: ToolOptions, returned: Returned = JSON
) -> dict[str, Any]:
    calling = HandlerCall(arguments_reader(definition.input_schema), returned)
    place = f"schema {definition.name!r}" if handler is None else f"handler {handler}"
    return {
        **fields_of(options),
        "definition": definition,
        "function": None if isinstance(handler, str) else handler,
        "place": place if handler is None or isinstance(handler, str) else place_of(handler),
        "id": options.get("id") or f"tool:{definition.name}",
        "handler": handler,
        "calling": calling,
        "run": None if handler is None else calling.executor(handler, definition.name),
    }


def promised(output: Any, tool: str) -> Returned:
    if output is None:
        return JSON
    if isinstance(output, Mapping):
        notation = cast("Mapping[str, Any]", output)
        return replace(JSON, schema=schema_from(notation, tool=f"{tool} (output)"))
    return returned_as(output, f"tool {tool!r}: output")


_UNSET: Final[Any] = object()


class ToolBuilder:
    """The parts of a tool; each step returns a new builder, so that several tools can share first steps.

    ```python
    search = (
        ToolBuilder("search", "Search the shop.")
        .param("query", "string", "What to look for.")
        .param("limit", "integer", default=10)
        .build(run_search)
    )
    ```
    """

    __slots__ = ("_handler", "_name", "_options", "_output", "_params", "_schema")

    def __init__(self, name: str, description: str | None = None) -> None:
        self._name = name
        self._params: Mapping[str, Any] = {}
        self._schema: Mapping[str, Any] | None = None
        self._handler: Handler | None = None
        self._output: Any = None
        self._options: ToolOptions = {"description": description}

    def param(
        self,
        name: str,
        type: str | Mapping[str, Any],
        description: str | None = None,
        *,
        optional: bool = False,
        default: Any = _UNSET,
    ) -> ToolBuilder:
        """Add a parameter; `DefinitionError` if there is one of this name, or a whole schema.

        Args:
            name: The parameter's name.
            type: A type's name, or a schema in extended notation, such as `{"enum": ["a", "b"]}`.
            description: Its meaning, for the model.
            optional: True if it may be left out.
            default: Its value when it is left out; makes it optional.
        """
        if name in self._params:
            raise DefinitionError(f"{self}: there is a parameter {name!r} already; rename one of them")
        if self._schema is not None:
            raise DefinitionError(f"{self}: a builder takes parameters or a whole schema, not both")
        written: dict[str, Any] = {"type": type} if isinstance(type, str) else dict(type)
        if description is not None:
            written["description"] = description
        if optional:
            written["optional"] = True
        if default is not _UNSET:
            written["default"] = default
        return self._with("_params", {**self._params, name: written})

    def schema(self, schema: Mapping[str, Any]) -> ToolBuilder:
        """Set the whole schema, in loose, extended or full notation, instead of single parameters."""
        if self._params:
            raise DefinitionError(f"{self}: a builder takes parameters or a whole schema, not both")
        return self._with("_schema", schema)

    def output(self, output: Any) -> ToolBuilder:
        """Set the type of the result, or its schema in any of the notations."""
        return self._with("_output", output)

    def handler(self, handler: Handler) -> ToolBuilder:
        """Set the handler: a function of `(arguments)` or `(arguments, context)`, or `module:function`."""
        return self._with("_handler", handler)

    def options(self, **options: Unpack[ToolOptions]) -> ToolBuilder:
        """Set more options; see `ToolOptions`. Options that were set before and are not given now stay."""
        return self._with("_options", {**self._options, **checked("ToolBuilder.options()", options)})

    def manual(self, manual: bool = True) -> ToolBuilder:
        """Leave the calls to the application."""
        return self.options(manual=manual)

    def build(self, handler: Handler | None = None) -> Tool[..., Any]:
        """The tool, run by `handler` if given. Raises `DefinitionError`: see `Tool.from_schema`."""
        schema = self._params if self._schema is None else self._schema
        chosen = self._handler if handler is None else handler
        return Tool.from_schema(self._name, schema, chosen, output=self._output, **self._options)

    def __repr__(self) -> str:
        return f"ToolBuilder({self._name!r}{''.join(f', {name}' for name in self._params)})"

    def _with(self, part: str, value: Any) -> ToolBuilder:
        other = ToolBuilder(self._name)
        for slot in self.__slots__:
            setattr(other, slot, getattr(self, slot))
        setattr(other, part, value)
        return other
