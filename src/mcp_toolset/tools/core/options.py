"""`ToolOptions`: the options of a tool beyond its name and schemas; every way to define a tool takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict

from mcp_toolset.tools.core.tags import checked_tags

_HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


class ToolOptions(TypedDict, total=False):
    """Keyword arguments that every way to define a tool takes.

    Attributes:
        title: A name for people.
        description: What the tool does, for the model.
        meta: The definition's `_meta`.
        manual: Whether the application answers its calls, even if it has a handler.
        timeout: Seconds that one call may take.
        id: The stable id of the tool, independent of its name.
        tags: The application's words for selectors and policies; clients do not see them.
        metadata: The application's notes about it, JSON data; clients do not see them.
        read_only: The behaviour annotation `readOnlyHint`.
        destructive: The behaviour annotation `destructiveHint`.
        idempotent: The behaviour annotation `idempotentHint`.
        open_world: The behaviour annotation `openWorldHint`.
    """

    title: str | None
    description: str | None
    meta: Mapping[str, Any] | None
    manual: bool
    timeout: float | None
    id: str
    tags: Iterable[str]
    metadata: Mapping[str, Any]
    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None


def checked(maker: str, options: ToolOptions) -> ToolOptions:
    """The options, if there are no others among them; `TypeError` of `maker` if there are."""
    unknown = sorted(options.keys() - ToolOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"{maker} got an unexpected keyword argument {unknown[0]!r}")
    return options


def annotations_of(options: ToolOptions) -> dict[str, Any] | None:
    """The behaviour annotations in wire form."""
    return {wire: options[key] for key, wire in _HINTS.items() if options.get(key) is not None} or None


class Private(TypedDict):
    """What is never sent to a client."""

    tags: frozenset[str]
    metadata: Mapping[str, Any]


def private(options: ToolOptions) -> Private:
    """The tags and the metadata among the options."""
    return {
        "tags": checked_tags(options.get("tags", ()), "tool"),
        "metadata": options.get("metadata") or {},
    }
