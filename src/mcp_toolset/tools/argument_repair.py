"""`repaired`: fix arguments that do not fit a schema, where only one repair is possible.

Models write `null` for optional parameters, numbers and objects as text, and leave out parameters that have a
default. Only arguments that the schema refuses are repaired; those that still do not fit stay unchanged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, cast

from pydantic_core import from_json

from mcp_toolset._records import dataclass, replace
from mcp_toolset.tools.call import ToolCall
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.validation import SchemaCheck, TooMuchError, resolved

MAX_DEPTH: Final = 16  # The number of levels of arguments that are repaired.
MAX_STEPS: Final = 20_000  # Values and subschemas that one repair looks at; a model's slips are few.

MAX_READ: Final = 100_000
"""Values, about, of JSON in a text that is read as such."""

_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,17})")
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d{0,17})(\.\d{1,17})?([eE][+-]?\d{1,2})?")
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "True": True, "false": False, "False": False}
_ALL: Final = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_KINDS: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_log = logging.getLogger("mcp_toolset.calls")


def repaired(schema: Mapping[str, Any], check: SchemaCheck, call: ToolCall, _: object = None) -> ToolCall:
    if check.is_valid(call.arguments):
        return call
    arguments, done = repairs_of(schema, call.arguments)
    return with_repairs(call, arguments, done) if done and check.is_valid(arguments) else call


def repairs_of(schema: Mapping[str, Any], arguments: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    repair = _Repair(schema)
    try:
        return repair.value(schema, arguments, "", 0), repair.done
    except TooMuchError:
        return arguments, []


def with_repairs(call: ToolCall, arguments: dict[str, Any], done: Sequence[str]) -> ToolCall:
    """The call with repaired arguments: hooks and observers see what was done, and the log says it."""
    _log.info("%s: arguments were repaired: %s", in_log(call.name), in_log("; ".join(done)))
    return replace(call.with_arguments(arguments), repairs=(*call.repairs, *done))


@dataclass(slots=True)
class _Repair:
    """One pass over arguments; `done` lists the changes in words, without values."""

    root: Mapping[str, Any]
    done: list[str] = field(default_factory=list[str])
    steps: int = 0

    def _step(self, count: int = 1) -> None:
        self.steps += count
        if self.steps > MAX_STEPS:
            raise TooMuchError

    def value(self, schema: Mapping[str, Any], value: Any, place: str, depth: int) -> Any:
        """The value, changed to what its schema accepts if possible."""
        kinds = self._kinds(schema, 0)
        kind = _kind(value)
        if kind not in kinds and not (kind == "integer" and "number" in kinds):
            value = self._converted(value, kinds, place)
        if depth == MAX_DEPTH:
            return value
        if isinstance(value, dict):
            return self._object(schema, cast("dict[str, Any]", value), place, depth)
        if isinstance(value, list):
            items = self._part(schema, "items")
            return [
                self.value(items, item, f"{place}[{number}]", depth + 1)
                for number, item in enumerate(cast("list[Any]", value))
            ]
        return value

    def _object(self, schema: Mapping[str, Any], value: dict[str, Any], place: str, depth: int) -> Any:
        self._step(len(value))
        members = dict(value)
        required = {name for each in self._meanings(schema, 0) for name in each.get("required") or ()}
        for name, part in self._properties(schema).items():
            where = f"{place}.{name}".lstrip(".")
            unset = members.get(name) is None and (name not in members or "null" not in self._kinds(part, 0))
            if not unset:
                members[name] = self.value(part, members[name], where, depth + 1)
            elif name in required and "default" in part:
                members[name] = part["default"]
                self.done.append(f"{where} has its default")
            elif name in members and name not in required:
                del members[name]
                self.done.append(f"{where} was null and is left out")
        return members

    def _converted(self, value: Any, kinds: frozenset[str], place: str) -> Any:
        read = _read(value, kinds)
        if len(read) != 1:
            return value
        ((kind, converted),) = read.items()
        self.done.append(f"{place or 'the whole'} is read as {kind}")
        return converted

    def _properties(self, schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        self._step(sum(len(each.get("properties") or ()) for each in self._meanings(schema, 0)))
        return {
            name: cast("Mapping[str, Any]", part)
            for each in self._meanings(schema, 0)
            for name, part in cast("Mapping[str, object]", each.get("properties") or {}).items()
            if isinstance(part, Mapping)
        }

    def _part(self, schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
        for each in self._meanings(schema, 0):
            if isinstance(each.get(keyword), Mapping):
                return cast("Mapping[str, Any]", each[keyword])
        return {}

    def _meanings(self, schema: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
        yield schema
        if depth == MAX_DEPTH:
            return
        followed = resolved(self.root, str(schema["$ref"])) if "$ref" in schema else None
        others = [each for each in _alternatives(schema) if self._kinds(each, 0) != frozenset(("null",))]
        for each in (followed, others[0] if len(others) == 1 else None):
            if isinstance(each, Mapping):
                yield from self._meanings(cast("Mapping[str, Any]", each), depth + 1)

    def _kinds(self, schema: Mapping[str, Any], depth: int) -> frozenset[str]:
        self._step()
        if depth == MAX_DEPTH:
            return _ALL
        kinds = _ALL
        if "type" in schema:
            declared: object = schema["type"]
            kinds = frozenset(cast("list[str]", declared) if isinstance(declared, list) else [str(declared)])
        listed = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(listed, list):
            kinds &= {_kind(each) for each in cast("list[Any]", listed)}
        if "$ref" in schema:
            target = resolved(self.root, str(schema["$ref"]))
            if isinstance(target, Mapping):
                kinds &= self._kinds(cast("Mapping[str, Any]", target), depth + 1)
        if alternatives := _alternatives(schema):
            kinds &= frozenset[str]().union(*(self._kinds(each, depth + 1) for each in alternatives))
        return kinds


def json_in_text(text: str) -> Any:
    """The JSON value in a text; `ValueError` for none, and for one of more values than a slip has."""
    if sum(map(text.count, ",:[{")) > MAX_READ:
        raise ValueError
    return from_json(text)


def _kind(value: object) -> str:
    return next((name for kind, name in _KINDS.items() if type(value) is kind), "")


def _alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    alternatives: object = schema.get("anyOf") or schema.get("oneOf") or []
    listed = cast("list[object]", alternatives) if isinstance(alternatives, list) else []
    return [cast("Mapping[str, Any]", each) for each in listed if isinstance(each, Mapping)]


def _read(value: Any, kinds: frozenset[str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    if isinstance(value, int) and not isinstance(value, bool) and "string" in kinds:
        return {"text": str(value)}
    if not isinstance(value, str):
        return read
    if "integer" in kinds and _INTEGER.fullmatch(value):
        read["an integer"] = int(value)
    elif "number" in kinds and _NUMBER.fullmatch(value):
        read["a number"] = int(value) if _INTEGER.fullmatch(value) else float(value)
    if "boolean" in kinds and value in _BOOLEANS:
        read["a boolean"] = _BOOLEANS[value]
    for kind, made, start in (("object", dict, "{"), ("array", list, "[")):
        if kind in kinds and value.lstrip().startswith(start):
            try:
                parsed: object = json_in_text(value)
            except ValueError:
                continue
            if isinstance(parsed, made):
                read[f"an {kind}"] = parsed
    return read
