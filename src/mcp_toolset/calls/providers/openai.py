"""OpenAI's chat completions: `tool_calls` in, one `role: tool` message for each out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from mcp_toolset.calls.providers.turn import AssistantCall, AssistantTurn, flagged_text, json_of, parsed, said
from mcp_toolset.errors import RoundError
from mcp_toolset.tools.core.result import ToolResult


def turn_from_openai(message: object) -> AssistantTurn:
    """Parse the message of a chat completion: a `ChatCompletionMessage` or the same as a dictionary.

    Raises:
        RoundError: it is not an assistant message, or a call in it is malformed.
    """
    found = said(message, "choices[0].message")
    # Responses contain empty fields, some of which requests refuse; content may be null.
    found = {key: value for key, value in found.items() if value is not None or key == "content"}
    calls = cast("list[Any]", found.get("tool_calls") or [])
    return AssistantTurn(found, tuple(_call(place, call) for place, call in enumerate(calls)), "openai")


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
