"""`shared`: the lists of one server for several callers, joined to one list for names and rules.

A server may describe the same tool to each caller otherwise, with the names of that caller's projects for
instance. The shared definition of such a tool has what all definitions have in common, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from mcp_toolset.catalog.snapshot import ListedTool
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.schema.validation import checks_of

_T = TypeVar("_T")
Merged = Mapping[tuple[str, ...], ListedTool]
"""Shared definitions, by the digests of those that they are of."""

_ANYTHING: Final[Mapping[str, Any]] = {"type": "object"}
_NOTHING: Final[Mapping[str, Any]] = {}


def shared(
    lists: Sequence[Mapping[str, ListedTool]], known: Merged
) -> tuple[dict[str, ListedTool], dict[tuple[str, ...], ListedTool]]:
    """The tools of several lists, by name, and the definitions made for that; `known` are reused."""
    found: dict[str, dict[str, ListedTool]] = {}
    for tools in lists:
        for name, tool in tools.items():
            found.setdefault(name, {}).setdefault(tool.definition.digest, tool)
    made: dict[tuple[str, ...], ListedTool] = {}
    whole: dict[str, ListedTool] = {}
    for name, several in found.items():
        if len(several) == 1:
            whole[name] = next(iter(several.values()))
            continue
        digests = tuple(sorted(several))
        made[digests] = whole[name] = known.get(digests) or _merged([several[one] for one in digests])
    return whole, made


def _merged(tools: Sequence[ListedTool]) -> ListedTool:
    all_of = [tool.definition for tool in tools]
    definition = ToolDefinition(
        all_of[0].name,
        _common(one.description for one in all_of),
        _common(one.input_schema for one in all_of) or _ANYTHING,
        _common(one.output_schema for one in all_of),
        title=_common(one.title for one in all_of),
        annotations=_careful([one.annotations or _NOTHING for one in all_of]),
    )
    return ListedTool(definition, *checks_of(definition))


def _common(values: Iterable[_T | None]) -> _T | None:
    several = list(values)
    return several[0] if all(one == several[0] for one in several) else None


def _careful(hints: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The hints of a tool that may be each of several: it is as dangerous as any of them."""

    def said(key: str, default: bool) -> list[bool]:
        return [one.get(key, default) is True for one in hints]

    reads = all(said("readOnlyHint", False))
    return {
        "readOnlyHint": reads,
        "destructiveHint": any(
            one.get("destructiveHint", not one.get("readOnlyHint", False)) is not False for one in hints
        ),
        "idempotentHint": all(said("idempotentHint", False)),
        "openWorldHint": any(one.get("openWorldHint", True) is not False for one in hints),
    }
