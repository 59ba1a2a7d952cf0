"""JSON with comments and trailing commas, as editors write it.

Both are replaced by spaces: the text keeps its length and its lines, so that positions in the plain JSON are
positions in the file.

`Place` says where in which file a problem is, so that every error says it in the same form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import ConfigError

_MARK = "\ufeff"
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_PLAIN_KEY = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A value inside a JSON file: `mcpServers.git.args[1]` in `source`."""

    source: str
    steps: tuple[str | int, ...] = ()

    def at(self, *steps: str | int) -> Place:
        """The place of a member or item below this one."""
        return Place(self.source, self.steps + steps)

    @property
    def path(self) -> str:
        """The path as a reader writes it; empty for the whole file."""
        return "".join(_written(step) for step in self.steps).removeprefix(".")

    def error(self, cause: str, mend: str, others: int = 0) -> ConfigError:
        """An error of one line: file, place, cause, number of others, remedy. The caller omits values."""
        where = f"{self.source}: {self.path}" if self.steps else self.source
        lines = (f"{where}: {cause}{more}; {mend}" for more in (f" (and {others} more)" * bool(others), ""))
        message, alone = (" ".join(line.splitlines()) for line in lines)
        return ConfigError(message, steps=self.steps, alone=alone)


def _written(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{json.dumps(step)}]"


# An unclosed string ends with its line, so that one forgotten quote does not hide the rest of the file.
_STRING = r'"(?:[^"\\\r\n]+|\\[^\r\n])*"?'
_COMMENT = re.compile(rf"{_STRING}|(?P<drop>//[^\r\n]*|/\*.*?\*/)", re.DOTALL)
# The middle branch matches commas that follow no value: those stay, and remain an error.
_TRAILING_COMMA = re.compile(rf"{_STRING}|[\[{{,:][ \t\r\n]*,|(?P<drop>,)(?=[ \t\r\n]*[}}\]])")
_NOT_A_BREAK = re.compile(r"[^\r\n]")


def blank_comments(text: str) -> str:
    """The text with every `//` and `/* */` comment outside strings replaced by spaces."""
    return _COMMENT.sub(_blanked, text)


def plain_json(text: str) -> str:
    """Strict JSON of the same length: comments and trailing commas are spaces."""
    return _TRAILING_COMMA.sub(_blanked, blank_comments(text))


def _blanked(match: re.Match[str]) -> str:
    return match[0] if match["drop"] is None else _NOT_A_BREAK.sub(" ", match[0])


def decode(text: str, source: str) -> object:
    """Decode JSON or JSONC."""
    doubled: list[tuple[dict[str, object], str]] = []

    def table(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) < len(pairs):
            keys = [key for key, _ in pairs]
            doubled.append((made, next(key for key in keys if keys.count(key) > 1)))
        return made

    if not text.strip():
        raise ConfigError(f"{source}: line 1 column 1: the file is empty; write JSON into it")
    try:
        data: object = json.loads(plain_json(text), object_pairs_hook=table)
    except json.JSONDecodeError as error:
        where, cause = f"line {error.lineno} column {error.colno}: ", error.msg
    except RecursionError:
        where, cause = "", "nested too deeply"
    except ValueError:
        where, cause = "", "a number has too many digits"
    else:
        if not doubled:
            return data
        # The first of the two would be ignored, and with it what it protects.
        steps = _steps_to(doubled[0][0], data, doubled[0][1])
        line, column = line_and_column(text, steps)
        place = Place(f"{source}: line {line} column {column}", steps)
        raise place.error("this key is written twice", "keep one of them")
    raise ConfigError(f"{source}: {where}not valid JSON: {cause}; correct the file there")


def _steps_to(table: object, here: object, key: str) -> tuple[str | int, ...]:
    """The way to the key of an object within decoded JSON."""
    ways: list[tuple[object, tuple[str | int, ...]]] = [(here, ())]
    for value, steps in ways:
        if value is table:
            return (*steps, key)
        ways += [(member, (*steps, name)) for name, member in object_of(value).items()]
        ways += [(item, (*steps, at)) for at, item in enumerate(list_of(value))]
    return (key,)


def line_and_column(text: str, steps: Iterable[str | int]) -> tuple[int, int]:
    """The place of a member or an item in valid JSON or JSONC; for a missing one, its nearest holder."""
    plain = plain_json(text)
    key = value = _next(plain, 0)
    for step in steps:
        if (child := _child(plain, value, step)) is None:
            break
        key, value = child
    return plain.count("\n", 0, key) + 1, key - plain.rfind("\n", 0, key)


def _child(text: str, at: int, step: str | int) -> tuple[int, int] | None:
    """The beginnings of a child and of its value; the last of those with one name."""
    is_table, child, index = text[at] == "{", None, 0
    if text[at] not in "{[":
        return None
    at = _next(text, at + 1)
    while text[at] not in "}]":
        start, name = at, index
        if is_table:
            name, at = _DECODER.raw_decode(text, at)
            at = _next(text, _next(text, at) + 1)
        if name == step:
            child = start, at
        at = _next(text, _DECODER.raw_decode(text, at)[1])
        at = _next(text, at + 1) if text[at] == "," else at
        index += 1
    return child


def _next(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return at if blank is None else blank.end()


def object_of(value: object) -> dict[str, Any]:
    """The value if it is an object of decoded JSON; otherwise an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """The value if it is a list of decoded JSON; otherwise an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def without_mark(text: str) -> str:
    return text.removeprefix(_MARK)


def marked_as(text: str, before: str | None) -> str:
    return _MARK + text if before is not None and before.startswith(_MARK) else text


def read_text(path: Path, source: str) -> str:
    """The text of a file, unchanged, with a byte order mark if the file has one."""
    place = Place(source)
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        problem = place.error(f"cannot be read ({error.strerror})", "check the path and its permissions")
    except UnicodeDecodeError as error:
        problem = place.error(f"not UTF-8 text (byte {error.start})", "save the file as UTF-8")
    raise problem
