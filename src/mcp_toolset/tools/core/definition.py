"""`ToolDefinition`: the name, description and schemas of a tool, as plain data; and where two of them differ.

A definition has no handler and no connection. Its digest identifies what a model was shown, so that a grant
can be refused once the definition has changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any, Final, Self, TypeGuard, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.core.frozen import frozen, thawed

_WIRE_KEYS = frozenset(
    {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta"}
)

_SAID = ("input_schema", "output_schema", "annotations", "icons", "meta", "extra")


@dataclass(frozen=True)
class ToolDefinition:
    """The definition of one tool. It copies its arguments and cannot be changed in place.

    Attributes:
        name: The tool's own name, before any prefix (specification, server/tools, "Tool Names").
        description: What the tool does, for the model; may be absent.
        input_schema: JSON Schema of the arguments; always an object schema.
        output_schema: JSON Schema of the structured result, if the tool promises one.
        title: A name for people.
        annotations: Behaviour hints in wire form (`readOnlyHint`, `destructiveHint`, …).
        icons: Icons in wire form.
        meta: The `_meta` of the definition in wire form.
        extra: Keys of later protocol revisions, kept unread.
    """

    name: str
    description: str | None = None
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: Mapping[str, Any] | None = None
    title: str | None = None
    annotations: Mapping[str, Any] | None = None
    icons: tuple[Mapping[str, Any], ...] | None = None
    meta: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        """Check the name, and freeze all fields."""
        if not isinstance(self.name, str) or not self.name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(
                f"ToolDefinition({self.name!r}): a tool has a name, a text that is not empty"
            )
        for part in _SAID:
            if (said := getattr(self, part)) is not None:
                object.__setattr__(self, part, frozen(said))

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Build a definition from an entry of a `tools/list` answer.

        Raises:
            DefinitionError: a required key is missing or has the wrong type; the message names the
                tool, the key and the value found.
        """
        name = wire.get("name")
        if not isinstance(name, str) or not name:
            raise DefinitionError(
                f"a tool without a usable name: {name!r}; every tool needs a non-empty string"
            )
        _expect(name, wire, "inputSchema", Mapping, required=True)
        _expect(name, wire, "outputSchema", Mapping)
        _expect(name, wire, "description", str)
        _expect(name, wire, "title", str)
        _expect(name, wire, "annotations", Mapping)
        _expect(name, wire, "icons", list)
        _expect(name, wire, "_meta", Mapping)
        if not all(isinstance(icon, Mapping) for icon in wire.get("icons") or ()):
            raise DefinitionError(f"tool {name!r}: icons must be a list of objects (server/tools)")
        if wire["inputSchema"].get("type") != "object":
            raise DefinitionError(f'tool {name!r}: inputSchema must have "type": "object" (server/tools)')
        icons = wire.get("icons")
        return cls(
            name=name,
            description=wire.get("description"),
            input_schema=wire["inputSchema"],
            output_schema=wire.get("outputSchema"),
            title=wire.get("title"),
            annotations=wire.get("annotations"),
            icons=None if icons is None else tuple(icons),
            meta=wire.get("_meta"),
            extra={key: value for key, value in wire.items() if key not in _WIRE_KEYS},
        )

    @property
    def read_only(self) -> bool:
        """Whether the tool is annotated as read-only; without the hint it may change things."""
        return self.annotations is not None and self.annotations.get("readOnlyHint") is True

    @property
    def repeatable(self) -> bool:
        """Whether the tool is annotated so that a second run does no more than the first."""
        hints = self.annotations or {}
        return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the whole definition in canonical JSON; equal exactly if the definitions are equal."""
        canonical = json.dumps(self.to_wire(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()

    def to_wire(self, name: str | None = None) -> dict[str, Any]:
        """The definition as a `tools/list` entry, under `name` if given: a plain copy."""
        wire: dict[str, Any] = {"name": name or self.name}
        if self.title is not None:
            wire["title"] = self.title
        if self.description is not None:
            wire["description"] = self.description
        wire["inputSchema"] = thawed(self.input_schema)
        if self.output_schema is not None:
            wire["outputSchema"] = thawed(self.output_schema)
        if self.annotations:
            wire["annotations"] = thawed(self.annotations)
        if self.icons:
            wire["icons"] = [thawed(icon) for icon in self.icons]
        if self.meta:
            wire["_meta"] = thawed(self.meta)
        return {**thawed(self.extra), **wire} if self.extra else wire

    def __hash__(self) -> int:
        """By the name only: mappings cannot be hashed, and equal definitions have equal names."""
        return hash(self.name)

    def described(self, description: str | None) -> Self:
        """A copy with another description."""
        return replace(self, description=description)


def task_support(definition: ToolDefinition) -> str:
    """Whether a tool runs as a task: `optional`, `required`, or empty (`execution.taskSupport`)."""
    execution: object = definition.extra.get("execution") if definition.extra else None
    found = (
        cast("Mapping[str, Any]", execution).get("taskSupport") if isinstance(execution, Mapping) else None
    )
    return found if found in ("optional", "required") else ""


def _expect(tool: str, wire: Mapping[str, Any], key: str, kind: type, *, required: bool = False) -> None:
    value = wire.get(key)
    if value is None and not required:
        return
    if not isinstance(value, kind):
        found = "nothing" if value is None else type(value).__name__
        wanted = {"Mapping": "an object", "str": "a string", "list": "a list"}[kind.__name__]
        raise DefinitionError(f"tool {tool!r}: {key} must be {wanted}, found {found}")


MAX_LINES: Final = 8
"""The number of differences that are listed; the rest are counted."""

MAX_VALUE: Final = 100
"""The number of characters shown of one value."""

_ABSENT: Final = object()
_Wire = Mapping[str, Any]


def difference(old: _Wire, new: _Wire) -> list[str]:
    """The parts of a definition in wire form that differ, each as `path: before → after`.

    Texts of a definition come from strangers: each is shown as JSON and cut, so that none can be
    mistaken for a line of the list.
    """
    lines: list[str] = []
    found = _walk(old, new, "")
    for line in found:
        if len(lines) == MAX_LINES:
            lines.append(f"and {1 + sum(1 for _ in found)} more")
            break
        lines.append(line)
    return lines


def _walk(old: object, new: object, path: str) -> Iterator[str]:
    if _is_object(old) and _is_object(new):
        for key in dict.fromkeys([*old, *new]):
            inner = f"{path}.{key}" if path else str(key)
            yield from _walk(old.get(key, _ABSENT), new.get(key, _ABSENT), inner)
    elif old is _ABSENT or new is _ABSENT or json.dumps(old) != json.dumps(new):
        yield f"{_cut(json.dumps(path)[1:-1])}: {_shown(old)} → {_shown(new)}"


def _is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _shown(value: object) -> str:
    return "absent" if value is _ABSENT else _cut(json.dumps(value, ensure_ascii=True))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"
