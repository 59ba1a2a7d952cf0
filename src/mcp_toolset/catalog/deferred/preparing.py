"""Repairs the arguments of `search_tools` and `resolve_tools`, and tells a model its next call.

What fits is not touched, but for ids that are none: those are tried without the marks around them. The end
of an error for a model is the tool's signature, and the next call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.search.entry import CatalogEntry, type_name
from mcp_toolset.errors import InvalidArgumentsError
from mcp_toolset.tools.argument_repair import json_in_text, repairs_of, with_repairs
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import encodable
from mcp_toolset.tools.validation import SchemaCheck, is_wide, resolved

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
    """A guess at what wrong names mean, in words, and arguments that fit but for placeholders."""
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
    grant: str = "",
    known: Mapping[str, Any] | None = None,
) -> str:
    """The end of an error about arguments: what was meant, the signature, the next call of `calls`."""
    meant, arguments = mended(definition.input_schema, check, call.arguments, known)
    following = {"grant": grant, "arguments": arguments} if grant else arguments
    return f"{meant}\n{signature_of(definition, call.name)}\n{next_call(calls, following)}"


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties: object = schema.get("properties")
    return cast("Mapping[str, Any]", properties) if isinstance(properties, Mapping) else {}


def _placeholder(schema: object, root: Mapping[str, Any]) -> Any:
    """The placeholder of a value: `<string>`, and for an object its required fields."""
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


Sent = Mapping[str, Any]

_NOT_IN_KEYS: Final = re.compile(r"[\s_\-`'\"]")
_AROUND: Final = " \t\r\n`'\"“”‘’„«»<>"
_FENCE: Final = "```"
_LANGUAGE: Final = re.compile(r"\w*")
_DEEPEST: Final = 3  # texts within texts, and objects within objects, that are opened
_MOST: Final = 1_000  # hits and lists in what is sent for a list of names; a model's slips are few

HOLDERS: Final = frozenset(
    ("arguments", "args", "params", "parameters", "input", "inputs", "kwargs", "properties")
    + ("toolinput", "toolargs", "toolarguments", "toolparams", "toolparameters")
)
"""Keys, as `key_of` spells them, under which models put the arguments of a tool."""

NAMERS: Final = frozenset(
    ("grant", "handle", "grantid", "granthandle", "toolgrant", "id", "toolid", "name", "tool", "toolname")
    + ("function", "functionname")
)
"""Keys, as `key_of` spells them, under which models name the tool to call."""

_SEARCH: Final[Mapping[str, str]] = {
    **dict.fromkeys(("query", "q", "queries", "search", "searchquery", "text", "question"), "query"),
    **dict.fromkeys(("keyword", "keywords", "task", "prompt", "intent", "description"), "query"),
    **dict.fromkeys(("input", "name", "tool", "toolname"), "query"),
    **dict.fromkeys(("server", "servername", "serverid", "mcpserver", "source"), "server"),
    **dict.fromkeys(("limit", "k", "topk", "n", "max", "maxresults", "maxhits", "count", "size"), "limit"),
    **dict.fromkeys(("exclude", "excludes", "excluded", "excludeids", "except"), "exclude"),
    **dict.fromkeys(("resolve", "resolvefirst", "resolvetop", "resolven"), "resolve"),
    **dict.fromkeys(("page", "pagenumber"), "page"),
}
_RESOLVE: Final[Mapping[str, str]] = dict.fromkeys(
    ("ids", "id", "idlist", "tool", "tools", "toolid", "toolids", "toolname", "toolnames")
    + ("name", "names", "hit", "hits", "handle", "grant"),
    "ids",
)
KEYS: Final[Mapping[str, Mapping[str, str]]] = {"search_tools": _SEARCH, "resolve_tools": _RESOLVE}
"""Of each of these tools, the parameter that a key stands for."""


class TwoReadings(Exception):
    """Control flow: arguments that can be read in two ways, which are these."""

    def __init__(self, why: str, readings: Sequence[Sent]) -> None:
        super().__init__(why)
        self.readings = readings


def key_of(key: str) -> str:
    """A key without what separates its words, in one case: `toolName` and `tool_name` are one."""
    return _NOT_IN_KEYS.sub("", key).casefold()


def plain(text: str) -> str:
    return text.strip(_AROUND)


def spellings(text: str) -> Iterator[str]:
    """The names that a text may mean, the likeliest first: itself, without marks, without its end."""
    yield text
    yield (clean := plain(text))
    # A signature that was copied from a hit, or a grant string in place of an id.
    yield plain(clean.partition("(")[0])
    head, dot, tail = clean.rpartition(".")
    if dot and len(tail) == _RANDOM:
        yield head


_RANDOM: Final = 16  # the length of the random part of a grant string


def opened(value: object) -> object:
    """The object or list that a text holds as JSON, also within a code fence; else the value itself."""
    for _ in range(_DEEPEST):
        if not isinstance(value, str):
            return value
        text = _unfenced(value.strip())
        if text[:1] not in ("{", "[", '"'):
            return value
        try:
            value = json_in_text(text)
        except ValueError:
            return value
    return value


def _unfenced(text: str) -> str:
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    inner = text[len(_FENCE) : -len(_FENCE)]
    return inner[_LANGUAGE.match(inner).end() :].strip()  # pyright: ignore[reportOptionalMemberAccess]


def unwrapped(tool: str, sent: Sent) -> dict[str, Any]:
    """The arguments themselves, where a model has put them into another object (`{"arguments": {…}}`)."""
    arguments = dict(sent)
    for _ in range(_DEEPEST):
        rest = {key: value for key, value in arguments.items() if not _names(tool, key, value)}
        if len(rest) != 1:
            return arguments
        ((key, value),) = rest.items()
        inner = opened(value)
        if not isinstance(inner, dict) or not (key_of(key) in HOLDERS or key_of(key) == key_of(tool)):
            return arguments
        arguments = cast("dict[str, Any]", inner)
    return arguments


def _names(tool: str, key: str, value: object) -> bool:
    return key_of(key) in NAMERS and isinstance(value, str) and plain(value) == tool


def renamed(tool: str, sent: Sent, done: list[str]) -> dict[str, Any]:
    known, arguments, given = KEYS[tool], dict[str, Any](), unwrapped(tool, sent)
    if given != sent:
        done.append("the arguments were in another object")
    parameters = frozenset(known.values())
    for key, value in given.items():
        name = key if key in parameters else known.get(key_of(key), key)
        if name in arguments and arguments[name] != value:
            others = [{**arguments, name: one} for one in (arguments[name], value)]
            raise TwoReadings(f"{name} is given twice", others)
        arguments[name] = value
        if name != key:
            done.append(f"{key} is read as {name}")
    return arguments


def names_in(value: object, depth: int = 0, room: Iterator[int] | None = None) -> list[str] | None:
    """The names in what was sent for a list of them; `None` if it is none that can be read."""
    # A name may be a text, a whole hit, or a list of these, also as JSON in a text.
    value, room = opened(value), iter(range(_MOST)) if room is None else room
    if isinstance(value, str):
        return [value]
    if depth == _DEEPEST or next(room, None) is None:
        return None
    if isinstance(value, dict):
        hit = cast("dict[str, object]", value)
        key = next((key for key in ("id", "ids", "name", "tool", "hits", "tools") if key in hit), None)
        return None if key is None else names_in(hit[key], depth + 1, room)
    if not isinstance(value, list):
        return None
    found = list[str]()
    for one in cast("list[object]", value):
        names = names_in(one, depth + 1, room)
        if names is None:
            return None
        found += names
    return found


@dataclass(frozen=True, slots=True)
class CallReading:
    """One way to read what was sent to `call_tool`."""

    reference: str  # the grant, or what stands for it
    arguments: dict[str, Any]  # the arguments of the tool
    done: tuple[str, ...] = ()  # what was repaired, in words
    beside: tuple[str, ...] = ()  # values that are left out because they name the tool again
    doubtful: frozenset[str] = frozenset()  # keys among the arguments that may have been meant to name a tool


def readings_of(sent: Sent) -> list[CallReading]:
    sent = _unpacked(sent)
    named = _namers(sent)
    chosen = [key for key in named if key == "grant"] or named
    return [reading for key in chosen for reading in _of_key(sent, key)]


def _unpacked(sent: Sent) -> Sent:
    """The arguments as sent, without another object around them that has the grant inside."""
    for _ in range(_DEEPEST):
        inner = [value for key in sent if key_of(key) in HOLDERS and _holds_grant(value := opened(sent[key]))]
        if not inner or not all(plain(_reference(sent[key])) in _CALLING for key in _namers(sent)):
            return sent
        sent = cast("dict[str, Any]", inner[0])
    return sent


def _namers(sent: Sent) -> list[str]:
    return [key for key in sent if key_of(key) in NAMERS and _reference(sent[key])]


_CALLING: Final = frozenset(("call_tool", "call_read_only_tool"))


def _reference(value: object) -> str:
    """The grant, or name of a tool, in a value: a text, or a whole resolution; empty if it is none."""
    value = opened(value)
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        value = next((table[key] for key in ("grant", "handle", "id", "name") if key in table), None)
    return value if isinstance(value, str) and value.strip() else ""


def _holds_grant(value: object) -> bool:
    return isinstance(value, dict) and any(
        key_of(key) in ("grant", "handle") for key in cast("dict[str, object]", value)
    )


def _of_key(sent: Sent, key: str) -> Iterator[CallReading]:
    reference = _reference(sent[key])
    called = () if key == "grant" and reference == sent[key] else (f"{key} is read as grant",)
    rest = {one: value for one, value in sent.items() if one != key}
    for holder in [one for one in rest if key_of(one) in HOLDERS and _held(rest[one]) is not None]:
        inner = _held(rest[holder]) or {}
        done = called if holder == "arguments" else (*called, f"{holder} is read as arguments")
        if isinstance(rest[holder], str):
            done = (*done, "arguments is read as an object")
        others = {one: value for one, value in rest.items() if one != holder}
        yield from _beside(reference, inner, others, done)
    yield from _beside(reference, {}, rest, called)


def _beside(reference: str, inner: Sent, others: Sent, done: tuple[str, ...]) -> Iterator[CallReading]:
    again = {one: value for one, value in others.items() if _is_name(one, value)}
    for left in ({}, again) if again else ({},):
        kept = {one: value for one, value in others.items() if one not in left}
        if any(one in inner and inner[one] != value for one, value in kept.items()):
            continue
        out = tuple(f"{one} is left out" for one in left)
        moved = tuple(f"{one} is moved into arguments" for one in kept)
        doubtful = frozenset(kept.keys() & again.keys())
        named_again = tuple(map(str, left.values()))
        yield CallReading(reference, {**inner, **kept}, (*done, *out, *moved), named_again, doubtful)


def _is_name(key: str, value: object) -> bool:
    return isinstance(value, str) and (key_of(key) in NAMERS or key_of(key) in ("server", "servername"))


def _held(value: object) -> dict[str, Any] | None:
    value = opened(value)
    if value is None or value == "":
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def inner_readings(reference: str, arguments: Sent, names: Container[str]) -> Iterator[CallReading]:
    """Other ways to read arguments that do not fit: wrapped once more, or beside a name of the tool."""
    table = {
        key: value
        for key, value in arguments.items()
        if not (_is_name(key, value) and plain(str(value)) in names)
    }
    for _ in range(_DEEPEST):
        if len(table) != 1:
            break
        ((key, value),) = table.items()
        inner = opened(value)
        if key_of(key) not in HOLDERS or not isinstance(inner, dict):
            break
        table = cast("dict[str, Any]", inner)
    if table != arguments:
        yield CallReading(reference, dict(table), ("arguments were in another object",))


UNKNOWN: Final[Mapping[str, Any]] = {
    "query": "<what the tool should do>",
    "ids": ["<id of a hit>"],
    "grant": "<grant from resolve_tools>",
    "arguments": {},
    "limit": 10,
    "page": 1,
    "resolve": 1,
}
"""The placeholders in the next call for missing or wrong arguments."""

MAX_VALUES: Final = 10_000
"""Values in the arguments of a search, and in what is resolved at once."""

_BETWEEN: Final = re.compile(r"[,;\s]+")


def prepared_search(schema: Sent, check: SchemaCheck, call: ToolCall, context: ToolContext) -> ToolCall:
    _check_size(call)
    return call if check.is_valid(call.arguments) else _read(schema, check, call, _searched)


def prepared_resolve(
    known: Callable[[str, ToolContext], bool],
    schema: Sent,
    check: SchemaCheck,
    call: ToolCall,
    context: ToolContext,
) -> ToolCall:
    """The call with ids that are known, in place of those that have marks around them."""
    _check_size(call)
    if not check.is_valid(call.arguments):
        if (meant := _read(schema, check, call, _resolved)) is call:
            return call
        call = meant
    sent: list[str] = call.arguments["ids"]
    ids = [one for id in sent for one in _spelling(id, lambda one: known(one, context))]
    if ids == sent or not check.is_valid({"ids": ids}):
        return call
    return with_repairs(call, {"ids": ids}, ["ids are without the marks around them"])


def _spelling(id: str, known: Callable[[str], bool]) -> Sequence[str]:
    match = next((spelling for spelling in spellings(id) if spelling and known(spelling)), None)
    if match is not None:
        return [match]
    # Several ids in one text, if each of them is one.
    several = [
        next((one for one in spellings(part) if known(one)), "") for part in _BETWEEN.split(id) if part
    ]
    return several if len(several) > 1 and all(several) else [id]


def _check_size(call: ToolCall) -> None:
    if is_wide(call.arguments, MAX_VALUES):
        raise InvalidArgumentsError(
            f"Invalid arguments for {call.name}: they have more than {MAX_VALUES:,} values; send less at once"
        )


def _read(
    schema: Sent,
    check: SchemaCheck,
    call: ToolCall,
    meant: Callable[[Mapping[str, Any], list[str]], dict[str, Any]],
) -> ToolCall:
    done: list[str] = []
    try:
        arguments = meant(call.arguments, done)
    except TwoReadings as two:
        raise InvalidArgumentsError(two_readings(call.name, str(two), two.readings)) from None
    arguments, more = repairs_of(schema, arguments)
    done += more
    return with_repairs(call, arguments, done) if done and check.is_valid(arguments) else call


def two_readings(name: str, why: str, readings: Sequence[Sent]) -> str:
    calls = [next_call(name, each) for each in readings[:2]]
    return f"Invalid arguments for {name}: {why}; send the one you mean\n" + "\nor ".join(calls)


def _searched(sent: Sent, done: list[str]) -> dict[str, Any]:
    arguments = renamed("search_tools", sent, done)
    query = arguments.get("query")
    if isinstance(query, list):
        several = cast("list[object]", query)
        if len(several) > 1:
            each = [{**arguments, "query": one} for one in several]
            raise TwoReadings("a search has one query; search once for each step", each)
        arguments["query"] = several[0] if several else ""
        done.append("query is read as text")
    elif query is None:
        arguments["query"] = ""
        done.append("query is empty")
    if isinstance(arguments.get("exclude"), str | dict):
        arguments["exclude"] = names_in(arguments["exclude"])
        done.append("exclude is read as an array")
    return arguments


def _resolved(sent: Sent, done: list[str]) -> dict[str, Any]:
    arguments = renamed("resolve_tools", sent, done)
    ids = names_in(arguments.get("ids"))
    if ids is not None and ids != arguments["ids"]:
        arguments["ids"] = ids
        done.append("ids is read as an array")
    return arguments


def explained_fixed(definition: ToolDefinition, check: SchemaCheck, call: ToolCall) -> str:
    try:
        sent = _MEANT[call.name](call.arguments, []) if call.name in _MEANT else call.arguments
    except TwoReadings as two:
        sent = two.readings[0]
    given = call.with_arguments(dict(sent))
    if call.name not in _MEANT and not isinstance(sent.get("grant"), str):
        return f"; a grant comes from resolve_tools\n{next_call('resolve_tools', {'ids': UNKNOWN['ids']})}"
    return explained(definition, check, call.name, given, known=UNKNOWN)


_MEANT: Final = {"search_tools": _searched, "resolve_tools": _resolved}
