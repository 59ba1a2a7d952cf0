"""Anthropic's Messages: `tool_use` blocks in, one user message with a `tool_result` for each out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.turns.turn import (
    IMAGES,
    PDF,
    AssistantCall,
    AssistantTurn,
    attachment,
    found,
    json_of,
    plain,
    said,
    sendable,
    shown,
)
from mcp_toolset.tools.core.result import Block, ToolResult


def turn_from_anthropic(message: object) -> AssistantTurn:
    """Parse a `Message`, or the same as a dictionary; only its role and content are sent back."""
    content = said(message, "the answer of messages.create").get("content")
    if isinstance(content, str):
        return AssistantTurn({"role": "assistant", "content": content}, (), "anthropic")
    if not isinstance(content, list):
        raise RoundError(f"the content of the assistant message is not a list of blocks: {content!r:.80}")
    blocks = [_block(place, block) for place, block in enumerate(cast("list[object]", content))]
    calls = (_call(place, block) for place, block in enumerate(blocks) if block.get("type") == "tool_use")
    return AssistantTurn({"role": "assistant", "content": blocks}, tuple(calls), "anthropic")


def _block(place: int, block: object) -> dict[str, Any]:
    """A block as it is sent back; responses contain empty fields, some of which requests refuse."""
    fields = plain(block)
    if not isinstance(fields, Mapping):
        raise RoundError(f"content[{place}] of the assistant message is not a block: {block!r:.80}")
    kept = sendable(cast("Mapping[str, Any]", fields))
    return {key: value for key, value in kept.items() if value is not None}


def _call(place: int, block: Mapping[str, Any]) -> AssistantCall:
    try:
        id, name, given = block["id"], block["name"], block["input"]
    except KeyError as fault:
        raise RoundError(f"content[{place}] of the assistant message is not a tool use: {fault!r}") from None
    if not isinstance(given, Mapping):
        return AssistantCall(id, name, json_of({"input": given}))
    return AssistantCall(id, name, dict(cast("Mapping[str, Any]", given)))


def anthropic_message(calls: Iterable[AssistantCall]) -> dict[str, Any]:
    """An assistant message that makes `calls`, for turns that did not come from the provider."""
    blocks = [
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": {"input": call.arguments} if isinstance(call.arguments, str) else dict(call.arguments),
        }
        for call in calls
    ]
    return {"role": "assistant", "content": blocks}


def anthropic_results(results: Iterable[tuple[str, ToolResult]]) -> list[dict[str, Any]]:
    """The one user message that answers every call of a turn; no message without calls."""
    blocks = [_result(id, result) for id, result in results]
    return [{"role": "user", "content": blocks}] if blocks else []


def _result(id: str, result: ToolResult) -> dict[str, Any]:
    content = (
        _references(result)
        or [_shown(block) for block in result.content]
        or [{"type": "text", "text": result.text}]
    )
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": id}
    # The API refuses a text block without text.
    if kept := [inner for inner in content if inner.get("text") != ""]:
        block["content"] = kept
    if result.is_error:
        block["is_error"] = True
    return block


def _references(result: ToolResult) -> list[dict[str, Any]]:
    """The tools that a search has found, as references by which the API loads their definitions."""
    return [{"type": "tool_reference", "tool_name": name} for name in found(result).get("names", ())]


def _shown(block: Block) -> dict[str, Any]:
    found = attachment(block)
    if found is not None and (found.kind in IMAGES or found.kind == PDF):
        source = {"type": "base64", "media_type": found.kind, "data": found.data}
        if found.kind != PDF:
            return {"type": "image", "source": source}
        return {"type": "document", "source": source, **({"title": found.name} if found.name else {})}
    return {"type": "text", "text": shown(block)}
