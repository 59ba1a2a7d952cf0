"""Check the shape of a tool's result: the fields that clients require (specification, server/tools)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic_core import to_json

from mcp_toolset.errors import InvalidOutputError
from mcp_toolset.tools.core.result import ToolResult

_MEDIA: Final = ("data", "mimeType")
_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": _MEDIA,
    "audio": _MEDIA,
    "resource_link": ("uri", "name"),
}
"""The text field of each kind of block; clients fail the whole result if it is missing."""


def fault_of_result(wire: Mapping[str, Any]) -> str | None:
    """What is wrong with a result in wire form, or `None`."""
    if not isinstance(wire.get("isError", False), bool):
        return "isError is no boolean"
    if not isinstance(wire.get("_meta", {}), Mapping):
        return "_meta is no object"
    complete = wire.get("resultType", "complete") == "complete"
    if complete and "content" not in wire and "structuredContent" not in wire:
        return "it has neither content nor structuredContent"
    content: object = wire.get("content", [])
    if not isinstance(content, list):
        return "content is no list"
    return next(filter(None, map(_fault_of_block, cast("list[object]", content))), None)


def _fault_of_block(block: object) -> str | None:
    wire = _mapping(block)
    kind = wire.get("type")
    if not isinstance(kind, str):
        return "content has a block without a type"
    for key in _TEXTS.get(kind, ()):
        if not isinstance(wire.get(key), str):
            return f"content has a block of type {kind!r} without a {key}"
    if kind == "resource":
        held = _mapping(wire.get("resource"))
        if not isinstance(held.get("uri"), str):
            return "content has a block of type 'resource' without a resource that has a uri"
        if not isinstance(held.get("text"), str) and not isinstance(held.get("blob"), str):
            return "content has a resource with neither a text nor a blob"
    return None


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def checked_result(result: ToolResult, origin: str) -> ToolResult:
    """The result, if clients can read it.

    Args:
        result: A result that the application's code has made.
        origin: The code that made it, for the message.

    Raises:
        InvalidOutputError: it does not follow the protocol.
    """
    wire = cast("object", result.wire)
    fault = fault_of_result(result.wire) if isinstance(wire, Mapping) else "it is no object"
    if fault is not None:
        raise InvalidOutputError(f"{origin} returned a ToolResult that does not follow the protocol: {fault}")
    try:
        to_json(wire)
    except ValueError as fault:
        raise InvalidOutputError(f"{origin} returned a ToolResult that has no JSON form: {fault}") from None
    return result
