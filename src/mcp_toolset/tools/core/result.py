"""`ToolResult`: the result of a tool call, kept in wire form so that a bridge can forward it unread."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from pydantic_core import to_json, to_jsonable_python

from mcp_toolset.tools.core.outcome import AskUser, Halt

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
    """

    wire: Mapping[str, Any]
    ask: AskUser | None = None
    halt: Halt | None = None
    unstructured: bool = False

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
