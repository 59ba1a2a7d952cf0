"""A part of a kept result: by path, by what is looked for, by range; and the shape of the whole.

A path leads into JSON: `rows.0.name`, with `*` for each entry of a list (`rows.*.name`); a path that begins
with `/` is a JSON Pointer (RFC 6901), for keys that have dots in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, cast

from pydantic_core import to_json

from mcp_toolset._records import dataclass
from mcp_toolset.errors import CallError

MAX_MATCHES: Final = 50
"""Matches of one search that are shown unless a limit says otherwise."""

_AROUND: Final = 100
_DEEPEST: Final = 3
_KEYS: Final = 12
_DEEPEST_SEARCH: Final = 100
_DIGITS: Final = 20
"""More digits than the number of an entry has."""


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a value: as text, what it is a part of, and where the next part begins."""

    text: str
    note: str
    next: int | None = None


def value_at(value: Any, path: str) -> Any:
    steps = _steps(path)
    return _followed(value, steps, 0)


def _steps(path: str) -> list[str]:
    if path.startswith("/"):
        return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]
    return [step for step in path.removeprefix("$").replace("[", ".").replace("]", "").split(".") if step]


def _followed(value: Any, steps: Sequence[str], at: int) -> Any:
    for place in range(at, len(steps)):
        step = steps[place]
        if isinstance(value, list):
            entries = cast("list[Any]", value)
            if step == "*":
                return [_followed(entry, steps, place + 1) for entry in entries]
            if step.isascii() and step.isdigit() and len(step) < _DIGITS and int(step) < len(entries):
                value = entries[int(step)]
                continue
        elif isinstance(value, dict) and step in value:
            value = cast("dict[str, Any]", value)[step]
            continue
        so_far = ".".join(steps[:place])
        there = f"at {so_far!r} there is" if so_far else "the result is"
        raise CallError(f"the result has no such path: there is no {step!r}; {there} {shape_of(value)}")
    return value


def shape_of(value: Any, depth: int = _DEEPEST) -> str:
    """What a value is, in short: `{rows: [5000 × {id: number, name: text}], next: null}`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            entries = cast("list[Any]", value)
            if not entries:
                return "[]"
            return f"[{len(entries)} × {shape_of(entries[0], depth - 1) if depth else '…'}]"
        case _:
            return _shape_of_object(cast("dict[str, Any]", value), depth)


def _shape_of_object(value: dict[str, Any], depth: int) -> str:
    if not depth:
        return "{…}"
    shown = [f"{key[:_AROUND]}: {shape_of(entry, depth - 1)}" for key, entry in list(value.items())[:_KEYS]]
    more = [f"{len(value) - _KEYS} more"] if len(value) > _KEYS else []
    return f"{{{', '.join([*shown, *more])}}}"


def part_of(value: Any, *, find: str, offset: int, limit: int | None, most: int) -> ResultPart:
    """A part of a value, in at most `most` characters.

    Args:
        value: A text, or a value of JSON.
        find: What an entry, a line or a leaf must contain; case does not count; empty for everything.
        offset: Where to begin: the number of an entry of a list, of a match, else of a character.
        limit: Entries, matches or characters at most.
        most: Characters at most.
    """
    if find:
        return _matches(value, find.casefold(), offset, limit or MAX_MATCHES, most)
    if isinstance(value, list):
        return _entries(cast("list[Any]", value), offset, limit, most)
    text = value if isinstance(value, str) else _json(value)
    offset = min(offset, len(text))
    end = min(len(text), offset + min(limit or most, most))
    note = f"characters {offset} to {end} of {len(text)}"
    if isinstance(value, dict) and (offset or end < len(text)):
        note += f"; a path gives a whole part of {shape_of(value)}"
    return ResultPart(text[offset:end], note, _next(end, len(text)))


def _entries(entries: list[Any], offset: int, limit: int | None, most: int) -> ResultPart:
    taken: list[str] = []
    # Each entry has a comma or a bracket after it, and the list a bracket before it.
    room = most - 1
    for entry in entries[offset : offset + limit if limit else None]:
        text = _json(entry)
        if len(text) >= room and taken:
            break
        taken.append(text)
        room -= len(text) + 1
    if len(taken) == 1 and room < 0:
        note = f"entry {offset} of {len(entries)} alone has {len(taken[0])} characters; give a path into it"
        return ResultPart(taken[0][:most], note, _next(offset + 1, len(entries)))
    end = offset + len(taken)
    told = f"entries {offset} to {end - 1}" if taken else f"no entry {offset}"
    note = f"{told} of {len(entries)}"
    return ResultPart(f"[{','.join(taken)}]", note, _next(end, len(entries)))


def _matches(value: Any, find: str, offset: int, limit: int, most: int) -> ResultPart:
    taken: list[str] = []
    found, room, end = 0, most, None
    for match in _found(value, find):
        found += 1
        if found <= offset or end is not None:
            continue
        if len(taken) == limit or (taken and len(match) > room):
            end = found - 1
            continue
        taken.append(match[:most])
        room -= len(match) + 1
    told = f"matches {offset + 1} to {offset + len(taken)} of {found}" if found else "no match"
    return ResultPart("\n".join(taken), told, end)


def _found(value: Any, find: str) -> Iterator[str]:
    """A line for each entry, line or leaf that contains a text, with where it is."""
    if isinstance(value, str):
        for number, line in enumerate(value.splitlines()):
            if (at := line.casefold().find(find)) >= 0:
                yield f"line {number + 1}: {_around(line, at, len(find))}"
    elif isinstance(value, list):
        for number, entry in enumerate(cast("list[Any]", value)):
            text = _json(entry)
            if (at := text.casefold().find(find)) >= 0:
                yield f"{number}: {text if len(text) <= 10 * _AROUND else _around(text, at, len(find))}"
    else:
        yield from _leaves(value, find, "", _DEEPEST_SEARCH)


def _leaves(value: Any, find: str, path: str, depth: int) -> Iterator[str]:
    if isinstance(value, dict | list) and depth:
        table = cast("dict[str, Any]", value)
        entries = enumerate(cast("list[Any]", value)) if isinstance(value, list) else table.items()
        for key, entry in entries:
            yield from _leaves(entry, find, f"{path}.{key}" if path else str(key), depth - 1)
        return
    text = value if isinstance(value, str) else _json(value)
    at = text.casefold().find(find)
    if at >= 0 or find in path.rpartition(".")[2].casefold():
        yield f"{path}: {_around(text, max(at, 0), len(find))}"


def _around(text: str, at: int, length: int) -> str:
    """The text about a place that was found in its case-folded form, where "ß" is "ss"."""
    at = _unfolded(text, at)
    start, end = max(0, at - _AROUND), at + length + _AROUND
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _unfolded(text: str, at: int) -> int:
    if text.isascii():
        return at
    folded = accumulate(len(character.casefold()) for character in text)
    return next((place for place, end in enumerate(folded) if end > at), 0)


def _json(value: Any) -> str:
    return to_json(value).decode()


def _next(end: int, size: int) -> int | None:
    return end if end < size else None
