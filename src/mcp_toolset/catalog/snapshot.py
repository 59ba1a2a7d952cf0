"""`Snapshot`: an upstream's list of tools at one moment, each tool checked by itself.

A malformed tool is set aside with its reason, and so is a second tool of the same name; nothing is dropped
silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from pydantic_core import to_json

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import encodable
from mcp_toolset.tools.source import ToolChange
from mcp_toolset.tools.validation import MAX_SCHEMA_DEPTH, SchemaCheck, checks_of, depth_exceeds

LOST_CHARACTER: Final = "\ufdd0"
"""Replaces half of a character (a lone surrogate), which JSON cannot have. Unicode reserves this code point
for programs, so that no text has it."""

MAX_DEFINITION: Final = 512 * 1024  # bytes of JSON of one tool; larger schemas are not compiled


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One usable tool of an upstream, with its schemas compiled."""

    definition: ToolDefinition
    arguments: SchemaCheck
    output: SchemaCheck | None


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """The list of an upstream."""

    tools: Mapping[str, ListedTool]  # the usable tools by name, in the upstream's order
    set_aside: tuple[tuple[str, str], ...] = ()  # `(name, reason)` of the unusable tools
    complete: bool = True  # `False` when a cap ended the listing early
    changes: tuple[ToolChange, ...] = ()  # quarantined ones are set aside too
    flagged: tuple[tuple[str, str], ...] = ()  # `(name, what)` of tools with hidden text


EMPTY_SNAPSHOT = CatalogSnapshot({})

_DEEPEST: Final = MAX_SCHEMA_DEPTH + 2


def take_snapshot(
    listed: Iterable[Any], *, previous: CatalogSnapshot = EMPTY_SNAPSHOT, complete: bool = True
) -> CatalogSnapshot:
    """Check each entry of a `tools/list` answer by itself; unchanged tools keep their compiled schemas."""
    tools: dict[str, ListedTool] = {}
    set_aside: list[tuple[str, str]] = []
    for entry in listed:
        try:
            tool = _listed(entry, previous)
        except DefinitionError as fault:
            set_aside.append((_shown_name(entry), str(fault)))
            continue
        if tool.definition.name in tools:
            set_aside.append(
                (tool.definition.name, "the server lists this name twice; the first one is used")
            )
            continue
        tools[tool.definition.name] = tool
    return CatalogSnapshot(tools, tuple(set_aside), complete)


def _listed(entry: Any, previous: CatalogSnapshot) -> ListedTool:
    if not isinstance(entry, dict):
        raise DefinitionError(f"an entry of the list is not an object but {type(entry).__name__}")
    wire = cast("dict[str, Any]", entry)
    try:
        text = to_json(wire)
    except ValueError as fault:
        _check_depth(wire)
        raise DefinitionError(f"the definition cannot be passed on: {fault}") from None
    # Each level opens a bracket.
    if text.count(b"{") + text.count(b"[") > _DEEPEST:
        _check_depth(wire)
    if LOST_CHARACTER.encode() in text:
        raise DefinitionError("the definition cannot be passed on: a text in it has half of a surrogate pair")
    size = len(text)
    if size > MAX_DEFINITION:
        raise DefinitionError(f"the definition has {size} bytes, more than {MAX_DEFINITION}")
    definition = ToolDefinition.from_wire(wire)
    known = previous.tools.get(definition.name)
    if known is not None and known.definition.digest == definition.digest:
        return known
    return ListedTool(definition, *checks_of(definition))


def _check_depth(wire: Mapping[str, Any]) -> None:
    if depth_exceeds(wire, _DEEPEST):
        raise DefinitionError(f"the definition is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def _shown_name(entry: Any) -> str:
    name: Any = cast("dict[str, Any]", entry).get("name") if isinstance(entry, dict) else None
    return encodable(name) if isinstance(name, str) and name else "(no name)"
