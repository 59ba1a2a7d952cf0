"""OpenAI's chat completions and Responses: the calls of a message in, one item with a result for each out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from mcp_toolset.calls.pipeline.decision import rejection_reason
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.forms.openai import TOOL_SEARCH
from mcp_toolset.extensions.model_loop.turns.turn import (
    IMAGES,
    PDF,
    AssistantCall,
    AssistantTurn,
    attachment,
    flagged_text,
    found,
    json_of,
    parsed,
    plain,
    said,
    sendable,
    shown,
)
from mcp_toolset.tools.core.result import Block, ToolResult


def turn_from_openai(message: object) -> AssistantTurn:
    """Parse the message of a chat completion: a `ChatCompletionMessage` or the same as a dictionary."""
    found = said(message, "choices[0].message")
    # Responses contain empty fields, some of which requests refuse; content may be null.
    found = {key: value for key, value in sendable(found).items() if value is not None or key == "content"}
    calls = cast("list[Any]", found.get("tool_calls") or [])
    if calls:
        found["tool_calls"] = [_sent_call(call) for call in calls]
    return AssistantTurn(found, tuple(_call(place, call) for place, call in enumerate(calls)), "openai")


def _sent_call(call: Any) -> Any:
    """A call of a message as it is sent back; a streamed one has its place in the stream."""
    if not isinstance(call, Mapping):
        return call
    sent = sendable(cast("Mapping[str, Any]", call), "index")
    if isinstance(made := sent.get("function"), Mapping):
        sent["function"] = sendable(cast("Mapping[str, Any]", made))
    return sent


def _call(place: int, call: Any) -> AssistantCall:
    try:
        if call.get("type") == "custom":
            return AssistantCall(call["id"], call["custom"]["name"], call["custom"]["input"])
        function = call["function"]
        return AssistantCall(call["id"], function["name"], parsed(function["arguments"]))
    except (KeyError, TypeError, AttributeError) as fault:
        raise RoundError(
            f"tool_calls[{place}] of the assistant message is not a function call: {fault!r}"
        ) from None


def openai_message(calls: Iterable[AssistantCall]) -> dict[str, Any]:
    """An assistant message that makes `calls`, for turns that did not come from the provider."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json_of(call.arguments)},
            }
            for call in calls
        ],
    }


def openai_result(id: str, result: ToolResult) -> dict[str, Any]:
    """A result as the `role: tool` message that answers the call `id`."""
    return {"role": "tool", "tool_call_id": id, "content": flagged_text(result)}


_SEARCH: Final = "tool_search_call"
_CALLS: Final = ("function_call", "custom_tool_call", _SEARCH)


def turn_from_responses(response: object) -> AssistantTurn:
    """Parse a `Response`, the same as a dictionary, or the list of its output items."""
    found = plain(response)
    output = cast("Mapping[str, Any]", found).get("output") if isinstance(found, Mapping) else found
    if not isinstance(output, list):
        raise RoundError(f"a round is made of a response or of its output items, not {response!r:.80}")
    items = [_item(place, item) for place, item in enumerate(cast("list[object]", output))]
    calls = (_function_call(place, item) for place, item in enumerate(items) if _is_call(item))
    return AssistantTurn({"output": items}, tuple(calls), "openai_responses")


def _item(place: int, item: object) -> dict[str, Any]:
    """An output item as it is sent back; responses contain empty fields, which requests refuse."""
    fields = plain(item)
    if not isinstance(fields, Mapping):
        raise RoundError(f"output[{place}] of the response is not an item: {item!r:.80}")
    kept = sendable(cast("Mapping[str, Any]", fields))
    if isinstance(parts := kept.get("content"), list):
        kept["content"] = [
            sendable(cast("Mapping[str, Any]", part)) if isinstance(part, Mapping) else part
            for part in cast("list[object]", parts)
        ]
    return {key: value for key, value in kept.items() if value is not None}


def _is_call(item: Mapping[str, Any]) -> bool:
    """Whether the application has to answer an item; a search may have run at the provider."""
    if item.get("type") == _SEARCH:
        return item.get("execution") == "client"
    return item.get("type") in _CALLS


def _function_call(place: int, item: Mapping[str, Any]) -> AssistantCall:
    try:
        if item["type"] == _SEARCH:
            given = item["arguments"]
            return AssistantCall(
                item["call_id"], TOOL_SEARCH, parsed(given) if isinstance(given, str) else given
            )
        if item["type"] == "custom_tool_call":
            return AssistantCall(item["call_id"], item["name"], item["input"])
        return AssistantCall(item["call_id"], item["name"], parsed(item["arguments"]))
    except (KeyError, TypeError, AttributeError) as fault:
        raise RoundError(f"output[{place}] of the response is not a function call: {fault!r}") from None


def responses_message(calls: Iterable[AssistantCall]) -> dict[str, Any]:
    """Output items that make `calls`, for turns that did not come from the provider."""
    items = [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": json_of(call.arguments)}
        for call in calls
    ]
    return {"output": items}


def responses_result(items: Iterable[Mapping[str, Any]], id: str, result: ToolResult) -> dict[str, Any]:
    """A result as the output item that answers the call `id` among `items`."""
    kinds = {item.get("call_id"): item["type"] for item in items if item.get("type") in _CALLS}
    kind = kinds.get(id, "function_call")
    if kind == _SEARCH:
        loaded = list(found(result).get("tools", ()))
        output = {"type": "tool_search_output", "call_id": id, "execution": "client"}
        return {**output, "status": "completed", "tools": loaded}
    parts = [_part(place, block) for place, block in enumerate(result.content)]
    if all(part["type"] == "input_text" for part in parts):
        return {"type": f"{kind}_output", "call_id": id, "output": flagged_text(result)}
    if result.is_error and rejection_reason(result) is None:
        parts.insert(0, {"type": "input_text", "text": "Error:"})
    output = [part for part in parts if part.get("text") != ""]
    return {"type": f"{kind}_output", "call_id": id, "output": output}


def _part(place: int, block: Block) -> dict[str, Any]:
    """A content block as a part of an output: images and PDF files unchanged, the rest as text."""
    found = attachment(block)
    if found is not None and found.kind in IMAGES:
        return {"type": "input_image", "image_url": f"data:{found.kind};base64,{found.data}"}
    if found is not None and found.kind == PDF:
        name = found.name or f"file-{place + 1}.pdf"
        return {"type": "input_file", "filename": name, "file_data": f"data:{PDF};base64,{found.data}"}
    return {"type": "input_text", "text": shown(block)}
