"""`ToolResult`: the result of a call in wire form, so that a bridge can forward it unread; and its check."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self, cast

from pydantic_core import to_json, to_jsonable_python

from mcp_toolset._records import dataclass
from mcp_toolset.errors import InvalidOutputError
from mcp_toolset.tools.core.asking import AskUser, Halt

Block = Mapping[str, Any]
"""One content block in wire form (`{"type": "text", "text": …}`)."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call in wire form (specification, server/tools, "Tool Result").

    Treat `wire` as read-only; code that reads or makes results uses the properties and
    constructors.

    Attributes:
        wire: The result in wire form.
        ask: The question that the call waits for; it is then not complete.
        halt: Whether the loop should end after this call.
        unstructured: Whether it has no structured content, although its tool's output schema requires some,
            because the client's protocol revision cannot carry it.
        stopped: Whether its tool was stopped before its end, so that it is not known what the call has done.
    """

    wire: Mapping[str, Any]
    ask: AskUser | None = None
    halt: Halt | None = None
    unstructured: bool = False
    stopped: bool = False

    @classmethod
    def of_text(cls, text: str, *, is_error: bool = False) -> Self:
        """A result of one text block."""
        wire: dict[str, Any] = {"content": [{"type": "text", "text": encodable(text)}]}
        if is_error:
            wire["isError"] = True
        return cls(wire)

    @classmethod
    def of_error(cls, message: str) -> Self:
        """An error that the model can read and act on."""
        return cls.of_text(message, is_error=True)

    @classmethod
    def of_structured(cls, value: Any, *, text: str | None = None) -> Self:
        """A structured result, with its JSON as a text block for clients that read only text.

        `value` may be a model, a dataclass or anything else with a JSON form. JSON has no NaN and no
        infinities; they become `null`.

        Raises:
            ValueError: the value has no JSON form.
        """
        plain = to_jsonable_python(value, inf_nan_mode="null")
        shown = encodable(text) if text is not None else to_json(plain).decode()
        return cls({"content": [{"type": "text", "text": shown}], "structuredContent": plain})

    @classmethod
    def of_content(cls, content: Sequence[Block], *, is_error: bool = False) -> Self:
        """A result of content blocks in wire form."""
        wire: dict[str, Any] = {"content": list(content)}
        if is_error:
            wire["isError"] = True
        return cls(wire)

    @property
    def content(self) -> Sequence[Block]:
        """The content blocks; empty if there are none."""
        return cast("Sequence[Block]", self.wire.get("content") or ())

    @property
    def structured(self) -> Any:
        """The structured content, or `None`."""
        return self.wire.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether the call failed in a way that the model should see."""
        return self.wire.get("isError") is True

    @property
    def is_complete(self) -> bool:
        """Whether the call has ended; `False` while input is required from the client (2026-07-28)."""
        return self.ask is None and self.wire.get("resultType", "complete") == "complete"

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines; the structured content as JSON if there is no text."""
        texts = [str(block.get("text", "")) for block in self.content if block.get("type") == "text"]
        if texts or "structuredContent" not in self.wire:
            return "\n".join(texts)
        return json.dumps(self.structured, ensure_ascii=False)

    def value(self) -> Any:
        """The plainest form: structured content, else the text of a single text block, else the blocks."""
        if "structuredContent" in self.wire:
            return self.structured
        content = self.content
        if len(content) == 1 and content[0].get("type") == "text":
            return self.text
        return list(content)


def encodable(text: str) -> str:
    """The text with `?` for each lone surrogate, which JSON cannot carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


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
    """A result that the code `origin` of the application has made, if clients can read it.

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
