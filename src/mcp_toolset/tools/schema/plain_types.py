"""Schemas of plain types, such as `str` or `list[int] | None`, without pydantic's generators.

pydantic's core checks and writes values of all types. The generators of its schemas take a fifth of a start
to import, and a millisecond for each function, so they are asked about other types only. For plain types they
make the same schemas; a test compares both.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from inspect import Parameter
from math import isfinite
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from pydantic_core import core_schema as core

PlainType: TypeAlias = tuple[core.CoreSchema, dict[str, Any]]
"""What checks and writes the values of a type, and its JSON Schema."""

_PLAIN: Final[dict[Any, tuple[Callable[[], core.CoreSchema], str]]] = {
    str: (core.str_schema, "string"),
    int: (core.int_schema, "integer"),
    float: (core.float_schema, "number"),
    bool: (core.bool_schema, "boolean"),
}


def plain_type(annotation: Any) -> PlainType | None:
    """The schemas of a plain type; `None` if it is none."""
    if type(annotation) is type and (made := _PLAIN.get(annotation)) is not None:
        return made[0](), {"type": made[1]}
    if annotation is Any:
        return core.any_schema(), {}
    inner = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is list and len(inner) == 1:
            return _list_of(inner[0])
        case origin if origin is dict and len(inner) == 2 and inner[0] is str:
            return _object_of(inner[1])
        case origin if origin is Literal and all(type(value) is str for value in inner):
            return _one_of(list(inner))
        case origin if origin in (Union, types.UnionType) and len(inner) == 2 and inner[1] is type(None):
            return _optional(inner[0])
        case _:
            return None


def _list_of(annotation: Any) -> PlainType | None:
    if (item := plain_type(annotation)) is None:
        return None
    return core.list_schema(item[0]), {"items": item[1], "type": "array"}


def _object_of(annotation: Any) -> PlainType | None:
    if (value := plain_type(annotation)) is None:
        return None
    schema = {"additionalProperties": value[1] or True, "type": "object"}
    return core.dict_schema(core.str_schema(), value[0]), schema


def _one_of(values: list[str]) -> PlainType:
    chosen: dict[str, Any] = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return core.literal_schema(values), {**chosen, "type": "string"}


def _optional(annotation: Any) -> PlainType | None:
    made = None if annotation is Any else plain_type(annotation)
    if made is None:
        return None
    return core.nullable_schema(made[0]), {"anyOf": [made[1], {"type": "null"}]}


def plain_arguments(parameters: Iterable[Parameter]) -> PlainType | None:
    """The schemas of the keyword arguments of a function; `None` unless all its parameters are plain."""
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
    """The schemas of a plain type, or of one with its description: `Annotated[int, "How many"]`."""
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
