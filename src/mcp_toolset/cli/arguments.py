"""Arguments of a call on the command line: `key=value` words, one JSON object, or `-` for JSON on stdin.

A word's value is parsed by the tool's schema, so that `id=5` is a number where the tool takes a number
and text where it takes text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TextIO, cast

import click

from mcp_toolset._records import dataclass

__all__ = ["TypedArguments", "typed_arguments"]

_KINDS: Final = ("anyOf", "oneOf", "allOf")
_DEEPEST: Final = 8
_HOW: Final = "write key=value words, one JSON object, or - for JSON on stdin"


@dataclass(frozen=True, slots=True)
class TypedArguments:
    """The arguments after the tool's name: a whole object, or texts by key that a schema has yet to parse."""

    whole: dict[str, Any] | None
    texts: Mapping[str, Sequence[str]]

    def read(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments parsed for a tool with this input schema."""
        if self.whole is not None:
            return self.whole
        return {key: _value(key, texts, schema) for key, texts in self.texts.items()}

    def as_texts(self) -> dict[str, str]:
        """The arguments of a prompt, all of them texts."""
        if self.whole is not None:
            return {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in self.whole.items()
            }
        return {key: _single(key, texts) for key, texts in self.texts.items()}


def typed_arguments(words: Sequence[str], stdin: TextIO) -> TypedArguments:
    """Parse the words in one of the three forms; `-` reads from `stdin`."""
    if list(words) == ["-"]:
        return TypedArguments(_object(stdin.read(), "stdin"), {})
    if len(words) == 1 and words[0].lstrip().startswith(("{", "[")):
        return TypedArguments(_object(words[0], "the arguments"), {})
    texts: dict[str, list[str]] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise click.UsageError(f"{word!r} is not an argument; {_HOW}")
        texts.setdefault(key, []).append(value)
    return TypedArguments(None, texts)


def _object(text: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as fault:
        raise click.UsageError(
            f"{place}: line {fault.lineno} column {fault.colno}: not valid JSON: {fault.msg}; {_HOW}"
        ) from None
    except RecursionError:
        raise click.UsageError(f"{place}: nested too deeply; {_HOW}") from None
    if not isinstance(value, dict):
        raise click.UsageError(f"{place}: a JSON {_type_of(value)}, not an object; {_HOW}")
    return cast("dict[str, Any]", value)


def _value(key: str, texts: Sequence[str], schema: Mapping[str, Any]) -> Any:
    part = _mapping(_mapping(schema.get("properties")).get(key))
    types = _types(part, schema, _DEEPEST)
    if "array" in types and not (len(texts) == 1 and isinstance(_json(texts[0]), list)):
        items = _types(_mapping(part.get("items")), schema, _DEEPEST)
        return [_read(text, items) for text in texts]
    return _read(_single(key, texts), types)


def _single(key: str, texts: Sequence[str]) -> str:
    if len(texts) > 1:
        raise click.UsageError(f"{key} is given {len(texts)} times, and is not a list; give it once")
    return texts[0]


def _read(text: str, types: set[str]) -> Any:
    value = _json(text)
    if value is None and text != "null":
        return text
    found = _type_of(value)
    if not types:
        return value
    if found == "string" or (found not in types and not (found == "integer" and "number" in types)):
        # If no text is accepted either, the tool's own check gives the best message.
        return text if "string" in types or found == "string" else value
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _types(part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> set[str]:
    """The JSON types that a schema allows; empty if it does not say."""
    if depth == 0:
        return set()
    said = part.get("type", [])
    found = {said} if isinstance(said, str) else {item for item in said if isinstance(item, str)}
    found |= {_type_of(choice) for choice in _list(part.get("enum"))}
    if "const" in part:
        found.add(_type_of(part["const"]))
    for branch in [_target(part, root), *(branch for kind in _KINDS for branch in _list(part.get(kind)))]:
        found |= _types(_mapping(branch), root, depth - 1)
    return found


def _target(part: Mapping[str, Any], root: Mapping[str, Any]) -> object:
    pointer = part.get("$ref")
    if not isinstance(pointer, str) or not pointer.startswith("#/"):
        return None
    found: object = root
    for step in pointer[2:].split("/"):
        found = _mapping(found).get(step.replace("~1", "/").replace("~0", "~"))
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
