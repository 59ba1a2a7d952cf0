"""Common mistakes of models in calls of the fixed tools, and their repairs.

Functions of the sent arguments alone: other names for keys, a value for a list, JSON in a text, arguments
beside the grant, marks around a name. What can be read in two ways is left to the caller of these functions.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.tools.schema.argument_repair import json_in_text

Sent = Mapping[str, Any]

_NOT_IN_KEYS: Final = re.compile(r"[\s_\-`'\"]")
_AROUND: Final = " \t\r\n`'\"“”‘’„«»<>"
_FENCE: Final = "```"
_LANGUAGE: Final = re.compile(r"\w*")
_DEEPEST: Final = 3
"""Texts within texts, and objects within objects, that are opened."""
_MOST: Final = 1_000
"""Hits and lists in what is sent for a list of names; a model's slips are few."""

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
    """A name without the blanks, ticks and quotes around it."""
    return text.strip(_AROUND)


def spellings(text: str) -> Iterator[str]:
    """What a text may name, the likeliest first: itself, without marks, without what follows a name."""
    yield text
    yield (clean := plain(text))
    # A signature that was copied from a hit, or a handle in place of an id.
    yield plain(clean.partition("(")[0])
    head, dot, tail = clean.rpartition(".")
    if dot and len(tail) == _RANDOM:
        yield head


_RANDOM: Final = 16
"""The length of the random part of a handle."""


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
    """What is in a code fence; a text without one as it is."""
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    inner = text[len(_FENCE) : -len(_FENCE)]
    return inner[_LANGUAGE.match(inner).end() :].strip()  # pyright: ignore[reportOptionalMemberAccess]


def unwrapped(tool: str, sent: Sent) -> dict[str, Any]:
    """The arguments themselves, where a model has put them into another object (`{"arguments": {…}}`)."""
    found = dict(sent)
    for _ in range(_DEEPEST):
        rest = {key: value for key, value in found.items() if not _names(tool, key, value)}
        if len(rest) != 1:
            return found
        ((key, value),) = rest.items()
        inner = opened(value)
        if not isinstance(inner, dict) or not (key_of(key) in HOLDERS or key_of(key) == key_of(tool)):
            return found
        found = cast("dict[str, Any]", inner)
    return found


def _names(tool: str, key: str, value: object) -> bool:
    return key_of(key) in NAMERS and isinstance(value, str) and plain(value) == tool


def renamed(tool: str, sent: Sent, done: list[str]) -> dict[str, Any]:
    """The arguments of `search_tools` or `resolve_tools` under the names of the parameters."""
    known, found, given = KEYS[tool], dict[str, Any](), unwrapped(tool, sent)
    if given != sent:
        done.append("the arguments were in another object")
    parameters = frozenset(known.values())
    for key, value in given.items():
        name = key if key in parameters else known.get(key_of(key), key)
        if name in found and found[name] != value:
            others = [{**found, name: one} for one in (found[name], value)]
            raise TwoReadings(f"{name} is given twice", others)
        found[name] = value
        if name != key:
            done.append(f"{key} is read as {name}")
    return found


def names_in(value: object, depth: int = 0, room: Iterator[int] | None = None) -> list[str] | None:
    """The names in what was sent for a list of them; `None` if it is none that can be read.

    A name may be a text, a whole hit, or a list of these, also as JSON in a text.
    """
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
class Reading:
    """One way to read what was sent to `call_tool`.

    Attributes:
        reference: The grant, or what stands for it.
        arguments: The arguments of the tool.
        done: What was repaired, in words.
        beside: Values that are left out because they name the tool again.
        doubtful: Keys among the arguments that may have been meant to name a tool.
    """

    reference: str
    arguments: dict[str, Any]
    done: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    doubtful: frozenset[str] = frozenset()


def readings_of(sent: Sent) -> list[Reading]:
    """The ways to read what was sent to a calling tool, the most literal first."""
    sent = _unpacked(sent)
    named = _namers(sent)
    chosen = [key for key in named if key == "grant"] or named
    return [reading for key in chosen for reading in _of_key(sent, key)]


def _unpacked(sent: Sent) -> Sent:
    """What was sent, without another object around it that has the grant inside."""
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


def _of_key(sent: Sent, key: str) -> Iterator[Reading]:
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


def _beside(reference: str, inner: Sent, others: Sent, done: tuple[str, ...]) -> Iterator[Reading]:
    """The readings of what stands beside a grant: arguments of the tool, or its name once more."""
    again = {one: value for one, value in others.items() if _is_name(one, value)}
    for left in ({}, again) if again else ({},):
        kept = {one: value for one, value in others.items() if one not in left}
        if any(one in inner and inner[one] != value for one, value in kept.items()):
            continue
        out = tuple(f"{one} is left out" for one in left)
        moved = tuple(f"{one} is moved into arguments" for one in kept)
        doubtful = frozenset(kept.keys() & again.keys())
        named_again = tuple(map(str, left.values()))
        yield Reading(reference, {**inner, **kept}, (*done, *out, *moved), named_again, doubtful)


def _is_name(key: str, value: object) -> bool:
    """Whether a key and its value may only say again which tool is called."""
    return isinstance(value, str) and (key_of(key) in NAMERS or key_of(key) in ("server", "servername"))


def _held(value: object) -> dict[str, Any] | None:
    """The arguments that a value holds; `None` if it holds none."""
    value = opened(value)
    if value is None or value == "":
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def inner_readings(reference: str, arguments: Sent, names: Container[str]) -> Iterator[Reading]:
    """Other ways to read the arguments of a tool that do not fit it: they may be wrapped once more.

    Args:
        reference: The grant.
        arguments: The arguments that do not fit.
        names: What names the tool, and may stand beside its arguments once more.
    """
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
        yield Reading(reference, dict(table), ("arguments were in another object",))
