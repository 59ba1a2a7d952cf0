"""Model providers' messages: an assistant's turn into plain calls, and results back into messages.

OpenAI's chat completions so far. The objects of the provider's library and plain dictionaries are
read alike, so that no provider's library is needed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from pydantic_core import from_json, to_json

from mcp_toolset.calls.rejection import rejection_reason
from mcp_toolset.errors import RoundError
from mcp_toolset.tools.result import Block, ToolResult

Arguments = Mapping[str, Any] | str
"""A call's arguments as the assistant's turn has them: an object, or the text when it is none."""


@dataclass(frozen=True, slots=True)
class AssistantCall:
    """One call as it stands in the assistant's turn; nothing is known yet about its tool."""

    id: str
    name: str
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """An assistant's message, as it goes back to the provider, and the calls in it, in order.

    Raises:
        RoundError: two calls have one id, or a call has none, so that results could not be told apart.
    """

    message: Mapping[str, Any]
    calls: tuple[AssistantCall, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for place, call in enumerate(self.calls):
            if not call.id or call.id in seen:
                fault = f"repeats the id {call.id!r}" if call.id else "has no id"
                raise RoundError(
                    f"call {place} ({call.name}) {fault}; give every call of a turn an id of its own"
                )
            seen.add(call.id)


@runtime_checkable
class _Model(Protocol):
    def model_dump(self, *, mode: str, by_alias: bool, exclude_unset: bool) -> dict[str, Any]: ...


def turn_from_openai(message: object) -> AssistantTurn:
    """Read the message of a chat completion: a `ChatCompletionMessage` or the same as a dictionary.

    Raises:
        RoundError: it is no assistant message, or a call in it has not the shape of one.
    """
    if isinstance(message, _Model):
        message = message.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if not isinstance(message, Mapping):
        raise RoundError(
            f"a round is made of an assistant message, such as choices[0].message, not {message!r:.80}"
        )
    said = deepcopy(dict(cast("Mapping[str, Any]", message)))
    if said.get("role") != "assistant":
        found = said.get("role")
        raise RoundError(
            f"a round is made of an assistant message, such as choices[0].message; found role {found!r}"
        )
    # A response spells out what it has not, and requests refuse some of these; content may be null.
    said = {key: value for key, value in said.items() if value is not None or key == "content"}
    calls = cast("list[Any]", said.get("tool_calls") or [])
    return AssistantTurn(said, tuple(_openai_call(place, call) for place, call in enumerate(calls)))


def _openai_call(place: int, call: Any) -> AssistantCall:
    try:
        if call.get("type") == "custom":
            return AssistantCall(call["id"], call["custom"]["name"], call["custom"]["input"])
        function = call["function"]
        return AssistantCall(call["id"], function["name"], _parsed(function["arguments"]))
    except (KeyError, TypeError, AttributeError) as fault:
        raise RoundError(
            f"tool_calls[{place}] of the assistant message is no function call: {fault!r}"
        ) from None


def _parsed(text: str) -> Arguments:
    """The arguments in a call's text, or the text itself when it is not the JSON of an object.

    Some models send an empty text for a tool without parameters. The parser bounds depth and digits.
    """
    try:
        value: Any = from_json(text, allow_inf_nan=False) if text.strip() else {}
    except ValueError:
        return text
    return cast("dict[str, Any]", value) if isinstance(value, dict) else text


def openai_message(calls: Iterable[AssistantCall]) -> dict[str, Any]:
    """An assistant message that makes `calls`, for turns that did not come from the provider."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _json(call.arguments)},
            }
            for call in calls
        ],
    }


def _json(arguments: Arguments) -> str:
    return arguments if isinstance(arguments, str) else to_json(arguments).decode()


def openai_result(id: str, result: ToolResult) -> dict[str, Any]:
    """A result as the `role: tool` message that answers the call `id`.

    Such a message is text and has no error flag: an error says so in its first word, and content of
    another kind is named, so that the model knows that there was some.
    """
    text = "\n".join(_shown(block) for block in result.content) if result.content else result.text
    if result.is_error and rejection_reason(result) is None:
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": id, "content": text}


def _shown(block: Block) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource_link":
        return str(block.get("uri", ""))
    if kind == "resource" and "text" in block.get("resource", {}):
        return str(block["resource"]["text"])
    return f"[{block.get('mimeType') or kind or 'content'}: not shown here]"
