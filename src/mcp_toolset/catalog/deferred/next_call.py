"""The end of an error for a model: what it may have meant, the tool's signature, and the next call.

The next call is one line, `Next: name {JSON}`, with what the model sent where that fits. What only the model
can know is a placeholder such as `<string>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, Final, cast

from mcp_toolset.catalog.search.entry import CatalogEntry, type_name
from mcp_toolset.tools.argument_repair import repairs_of
from mcp_toolset.tools.call import ToolCall
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import encodable
from mcp_toolset.tools.validation import SchemaCheck, resolved

_MOST_NAMES: Final = 200
"""Names in an object up to which the next call repeats them."""

_LONGEST_VALUE: Final = 200  # the length of a value, as JSON, from which the next call does not repeat it
_LEVELS: Final = 2  # levels of objects whose values are shortened one by one
_LIKE: Final = 0.6  # the least likeness, from 0 to 1, of a wrong name to a parameter that is then suggested

_MOST_WRONG: Final = 8
_MOST_COMPARED: Final = 40  # the number of wrong names, and of parameters, that are compared
_LONGEST_NAME: Final = 32  # the number of characters of a name that are compared

_PLACE: Final = re.compile(r"[.\[:]")
_WORDS: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def next_call(name: str, arguments: Mapping[str, Any]) -> str:
    shown = {key: _short(value, 0) for key, value in islice(arguments.items(), _MOST_NAMES)}
    return f"Next: {name} {encodable(json.dumps(shown, ensure_ascii=False))}"


def _short(value: Any, depth: int) -> Any:
    if isinstance(value, dict) and depth < _LEVELS and len(cast("dict[str, Any]", value)) <= _MOST_NAMES:
        return {key: _short(each, depth + 1) for key, each in cast("dict[str, Any]", value).items()}
    long = len(json.dumps(value, default=str)) > _LONGEST_VALUE
    return "<as you sent it>" if long else cast("object", value)


def query_of(name: str) -> str:
    return " ".join(_WORDS.findall(name[:_LONGEST_VALUE])).lower() or "<what the tool should do>"


def how_to_find(name: str) -> str:
    return f"; find tools with search_tools\n{next_call('search_tools', {'query': name[:_LONGEST_VALUE]})}"


def signature_of(definition: ToolDefinition, name: str) -> str:
    """`Signature: convert_time(time: string, timezone?: string)`."""
    return f"Signature: {CatalogEntry(definition, name).signature}"


def mended(
    schema: Mapping[str, Any],
    check: SchemaCheck,
    sent: Mapping[str, Any],
    known: Mapping[str, Any] | None = None,
) -> tuple[str, dict[str, Any]]:
    """What may have been meant by wrong names, in words, and arguments that fit but for placeholders."""
    properties = _properties(schema)
    required = [str(name) for name in cast("Sequence[object]", schema.get("required") or ())]
    strict = schema.get("additionalProperties") is False
    meant = dict(_meant(properties, required, sent)) if strict or not set(required) <= sent.keys() else {}
    kept = {meant.get(key, key): value for key, value in sent.items()}
    if strict:
        kept = {key: value for key, value in kept.items() if key in properties}
    kept, _ = repairs_of(schema, kept)
    wrong = {_PLACE.split(line)[0] for line in check.problems(kept)}
    told = {
        **{name: _placeholder(properties.get(name), schema) for name in [*properties, *required]},
        **(known or {}),
    }
    arguments = {key: told.get(key, value) if key in wrong else value for key, value in kept.items()}
    arguments |= {name: told[name] for name in required if name not in arguments}
    named = ", ".join(f"{right} for {wrong}" for wrong, right in meant.items())
    return (f"; did you mean {named}?" if named else ""), arguments


def explained(
    definition: ToolDefinition,
    check: SchemaCheck,
    calls: str,
    call: ToolCall,
    handle: str = "",
    known: Mapping[str, Any] | None = None,
) -> str:
    """The end of an error about arguments: what was meant, the signature, the next call of `calls`."""
    meant, arguments = mended(definition.input_schema, check, call.arguments, known)
    following = {"grant": handle, "arguments": arguments} if handle else arguments
    return f"{meant}\n{signature_of(definition, call.name)}\n{next_call(calls, following)}"


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: object = schema.get("properties")
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def _placeholder(schema: object, root: Mapping[str, Any]) -> Any:
    """What stands for a value: `<string>`, and for an object its required fields."""
    made = _outlined(schema, root, _LEVELS)
    short = made is not None and len(json.dumps(made)) <= _LONGEST_VALUE
    return made if short else f"<{_type(schema)}>"


def _outlined(schema: object, root: Mapping[str, Any], levels: int) -> Any:
    known = _followed(schema, root)
    if known.get("type") == "array":
        each = _outlined(known.get("items"), root, levels - 1) if levels else None
        return None if each is None else [each]
    properties = _properties(known)
    if not levels or not properties:
        return None
    named = [str(name) for name in cast("Sequence[object]", known.get("required") or ())]
    parts = {name: _outlined(properties.get(name), root, levels - 1) for name in named}
    return {
        name: f"<{_type(properties.get(name))}>" if part is None else part for name, part in parts.items()
    }


def _followed(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or what it refers to; of alternatives, the only one besides `null`."""
    for _ in range(_LEVELS):
        if not isinstance(schema, Mapping):
            break
        known = cast("Mapping[str, Any]", schema)
        several: object = known.get("anyOf") or known.get("oneOf")
        options = [one for one in cast("list[object]", several or []) if one != {"type": "null"}]
        if "$ref" not in known and len(options) != 1:
            return known
        schema = resolved(root, str(known["$ref"])) if "$ref" in known else options[0]
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}


def _type(schema: object) -> str:
    return type_name(schema).replace('"', "")


def _meant(
    properties: Mapping[str, Any], required: Sequence[str], sent: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The parameter that each wrong name may stand for: the likeliest of those that were not sent."""
    wrong = [key for key in sent if key not in properties][:_MOST_WRONG]
    free = [name for name in properties if name not in sent][:_MOST_COMPARED]
    pairs = sorted(
        ((_likeness(key, name) + 0.05 * (name in required), key, name) for key in wrong for name in free),
        key=lambda pair: -pair[0],
    )
    missing = [name for name in required if name in free]
    taken: set[str] = set()
    for likeness, key, name in pairs:
        if likeness >= _LIKE and not {key, name} & taken:
            taken |= {key, name}
            yield key, name
    # One wrong name where one parameter is missing can only be that.
    if len(wrong) == len(missing) == 1 and not {*wrong, *missing} & taken:
        yield wrong[0], missing[0]


def _likeness(key: str, name: str) -> float:
    one, other = ("".join(_WORDS.findall(text[:_LONGEST_NAME])).lower() for text in (key, name))
    if not one or not other:
        return 0.0
    if one == other:
        return 1.0
    short, long = sorted((one, other), key=len)
    if len(short) > 2 and short in long:
        return 0.9
    letters = iter(long)
    if len(short) > 1 and short[0] == long[0] and all(letter in letters for letter in short):
        return 0.8
    alike = SequenceMatcher(a=one, b=other, autojunk=False)
    # The exact ratio takes a thousand times as long as its bounds, and the names come from anybody.
    return alike.ratio() if min(alike.real_quick_ratio(), alike.quick_ratio()) >= _LIKE else 0.0
