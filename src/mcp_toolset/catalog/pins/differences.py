"""`compared`: the differences of two canonical definitions, for people and for rules."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self, cast

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.pins.canonical import VALUES, parts, plain_json
from mcp_toolset.tools.definition import texts_in
from mcp_toolset.tools.hidden_text import visible

_MAX_ALIGNED: Final = 500
"""The number of lines that are compared line by line; longer texts are shown whole, old and new."""

_MAX_SHOWN: Final = 5
_LONGEST: Final = 160  # characters of a value in `in_one_line`

_READ_BY_MODELS: Final = ("title", "description", "annotations", "outputSchema")
"""The texts that a model reads and that do not restrict its calls."""

_PROPOSED: Final = tuple(f".{key}" for key in VALUES)  # ends of paths to values that a schema proposes
_TYPES: Final = ("null", "boolean", "object", "array", "number", "integer", "string")
_NARROWING: Final = tuple(
    (
        "type enum required additionalProperties minimum maximum exclusiveMinimum exclusiveMaximum minLength "
        "maxLength minItems maxItems uniqueItems multipleOf"
    ).split()
)
"""Keywords that add no words to a schema."""


ABSENT: Final = object()  # the value of a missing member; `null` is a value


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two canonical definitions differ."""

    path: str  # the keys that lead to it, joined by dots, as `visible` writes them
    before: Any  # the accepted value, or `ABSENT`
    after: Any  # the new value, or `ABSENT`

    def lines(self) -> Iterator[str]:
        """The difference as `-` and `+` lines, with nothing hidden and nothing left out."""
        before, after = _lines(self.before), _lines(self.after)
        if _look_alike(before, after):
            before, after = ([ascii(line)[1:-1] for line in side] for side in (before, after))
        if len(before) + len(after) > _MAX_ALIGNED:
            yield from (f"- {line}" for line in before)
            yield from (f"+ {line}" for line in after)
            return
        for line in difflib.ndiff(before, after):
            if line[0] in "-+":
                yield line.rstrip("\n")

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["path"], data.get("before", ABSENT), data.get("after", ABSENT))

    def to_json(self) -> dict[str, Any]:
        sides = {"before": self.before, "after": self.after}
        return {"path": self.path, **{key: side for key, side in sides.items() if side is not ABSENT}}


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    return [*_differences("", old, new)]


def in_one_line(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    differences = compared(old, new)
    shown = [
        f"{each.path}: {_brief(each.before)} → {_brief(each.after)}" for each in differences[:_MAX_SHOWN]
    ]
    return "; ".join(shown) + (
        f" and {len(differences) - _MAX_SHOWN} more" if len(differences) > _MAX_SHOWN else ""
    )


def _brief(value: Any) -> str:
    text = "absent" if value is ABSENT else visible(plain_json(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def has_new_text(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """True if a model would read text that it did not read before."""
    # Of the arguments' schema only additions and rewritten texts count, names and values of `enum` included:
    # a removal adds no words to a model's context.
    if any(plain_json(old.get(key)) != plain_json(new.get(key)) for key in _READ_BY_MODELS):
        return True
    before, after = old.get("inputSchema"), new.get("inputSchema")
    if not _texts_by_path(after).items() <= _texts_by_path(before).items():
        return True
    return not set(texts_in(after)) <= {*texts_in(before), *_TYPES, *_NARROWING}


def _differences(path: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        before, after = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
        for key in sorted(before.keys() | after.keys()):
            step = f"{path}.{visible(key)}" if path else visible(key)
            yield from _differences(step, before.get(key, ABSENT), after.get(key, ABSENT))
    elif _is_aligned(old, new):
        for place, (before, after) in enumerate(
            zip(cast("list[Any]", old), cast("list[Any]", new), strict=True)
        ):
            yield from _differences(f"{path}[{place}]", before, after)
    elif old is ABSENT or new is ABSENT or plain_json(old) != plain_json(new):
        yield Difference(path, old, new)


def _is_aligned(old: Any, new: Any) -> bool:
    """True if two lists hold objects; lists of plain values are shown whole."""
    if not isinstance(old, list) or not isinstance(new, list):
        return False
    before, after = cast("list[Any]", old), cast("list[Any]", new)
    return len(before) == len(after) and any(isinstance(item, dict) for item in before)


def _texts_by_path(schema: Any) -> dict[str, str]:
    read = (part for part in parts(schema) if part.kind == "wording" or part.path.endswith(_PROPOSED))
    return {part.path: plain_json(part.value) for part in read if part.kind != "name"}


def _lines(value: Any) -> list[str]:
    if value is ABSENT:
        return []
    text = value if isinstance(value, str) else plain_json(value)
    return [visible(line) for line in text.split("\n")]


def _look_alike(before: list[str], after: list[str]) -> bool:
    """True if a reader could mistake two texts for each other: equal but for Unicode."""
    old, new = ("\n".join(side) for side in (before, after))
    if unicodedata.normalize("NFKC", old) == unicodedata.normalize("NFKC", new):
        return True
    if len(old) != len(new):
        return False
    changed = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    return all(not a.isascii() or not b.isascii() for a, b in changed)
