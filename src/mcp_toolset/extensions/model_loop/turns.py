"""`AssistantTurn`: one message of a model with its calls, in the same form for every provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, Final, Literal, Protocol, cast, runtime_checkable

from pydantic_core import from_json, to_json

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.decision import rejection_reason
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.forms.offering import FOUND_META_KEY, TOOL_SEARCH
from mcp_toolset.tools.export import Export
from mcp_toolset.tools.result import Block, ToolResult

Arguments = Mapping[str, Any] | str  # An object, or the text if it is not one.

Origin = Literal["openai", "openai_responses", "anthropic", "calls"]
"""The provider of a turn; `calls` means none, and fits every provider."""

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image types that providers accept."""

PDF: Final = "application/pdf"


@dataclass(frozen=True, slots=True)
class AssistantCall:
    """One call in the assistant's turn; its tool has not been looked up."""

    id: str
    name: str
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """An assistant's message, as it is sent back, and its calls in order, each with an id of its own."""

    message: Mapping[str, Any]
    calls: tuple[AssistantCall, ...]
    origin: Origin = "calls"

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for place, call in enumerate(self.calls):
            if fault := _fault(call, seen):
                raise RoundError(f"call {place} ({call.name}) {fault}; give every call of a turn its own id")
            seen.add(call.id)

    def decoded(self, export: Export | None) -> AssistantTurn:
        """The same turn with its exported calls under the tools' own names and arguments."""
        if export is None:
            return self
        return replace(self, calls=tuple(_decoded(call, export) for call in self.calls))


def _decoded(call: AssistantCall, export: Export) -> AssistantCall:
    if call.name not in export.names:
        return call
    arguments = call.arguments
    if not isinstance(arguments, str):
        arguments = export.decode_arguments(call.name, arguments)
    return replace(call, name=export.decode(call.name), arguments=arguments)


@runtime_checkable
class _Model(Protocol):
    def model_dump(self, *, mode: str, by_alias: bool, exclude_unset: bool) -> dict[str, Any]: ...


CLIENT_ONLY: Final = frozenset({"parsed", "parsed_arguments", "parsed_output"})
"""Fields that client libraries add to replies when they stream or parse them; no API takes them back."""


def plain(value: object) -> object:
    if isinstance(value, _Model):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return deepcopy(value)


def sendable(fields: Mapping[str, Any], *also: str) -> dict[str, Any]:
    """A part of a reply as it is sent back: without fields of the client library, and without `also`."""
    return {key: value for key, value in fields.items() if key not in CLIENT_ONLY and key not in also}


def said(message: object, example: str) -> dict[str, Any]:
    found = plain(message)
    if not isinstance(found, Mapping):
        raise RoundError(f"a round is made of an assistant message, such as {example}, not {message!r:.80}")
    fields = dict(cast("Mapping[str, Any]", found))
    if fields.get("role") != "assistant":
        role = fields.get("role")
        raise RoundError(f"a round is made of an assistant message, such as {example}; found role {role!r}")
    return fields


def parsed(text: str) -> Arguments:
    """The arguments in a call's text, empty for an empty text; the text itself if it is no JSON object."""
    try:
        value: Any = from_json(text, allow_inf_nan=False) if text.strip() else {}
    except ValueError:
        return text
    return cast("dict[str, Any]", value) if isinstance(value, dict) else text


def json_of(arguments: Arguments) -> str:
    return arguments if isinstance(arguments, str) else to_json(arguments).decode()


def shown(block: Block) -> str:
    """A content block as text; for a block without text its type is named, so that the model knows of it."""
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource_link":
        return _link(block)
    if kind == "resource" and "text" in block.get("resource", {}):
        return str(block["resource"]["text"])
    return f"[{block.get('mimeType') or kind or 'content'}: not shown here]"


def _link(block: Block) -> str:
    said = ": ".join(str(block[key]) for key in ("title", "description") if block.get(key))
    return f"{said} <{block.get('uri', '')}>" if said else str(block.get("uri", ""))


def found(result: ToolResult) -> Mapping[str, Any]:
    """The data of a search for tools for the provider; empty for other results."""
    meta: Mapping[str, Any] = result.wire.get("_meta") or {}
    return meta.get(FOUND_META_KEY) or {}


@dataclass(frozen=True, slots=True)
class MediaAttachment:
    """An image or a file in a result: media type, base64, and the last part of its address, if it has one."""

    kind: str
    data: str
    name: str = ""


def attachment(block: Block) -> MediaAttachment | None:
    if block.get("type") == "image":
        return MediaAttachment(str(block.get("mimeType", "")), str(block.get("data", "")))
    embedded: Mapping[str, Any] = block.get("resource", {}) if block.get("type") == "resource" else {}
    if "blob" not in embedded:
        return None
    name = str(embedded.get("uri", "")).rstrip("/").rsplit("/", 1)[-1]
    return MediaAttachment(str(embedded.get("mimeType", "")), str(embedded["blob"]), name)


def flagged_text(result: ToolResult) -> str:
    """A result as the text of a message without an error flag: an error starts with that word."""
    text = "\n".join(shown(block) for block in result.content) if result.content else result.text
    if result.is_error and rejection_reason(result) is None:
        return f"Error: {text}"
    return text


def _fault(call: AssistantCall, seen: set[str]) -> str | None:
    id, name = cast("object", call.id), cast("object", call.name)
    if not isinstance(id, str) or not isinstance(name, str):
        return f"has the id {id!r} and the name {name!r}, which are no texts"
    if id in seen:
        return f"repeats the id {id!r}"
    return None if id else "has no id"


def turn_from_openai(message: object) -> AssistantTurn:
    found = said(message, "choices[0].message")
    # Responses contain empty fields, some of which requests refuse; content may be null.
    found = {key: value for key, value in sendable(found).items() if value is not None or key == "content"}
    calls = cast("list[Any]", found.get("tool_calls") or [])
    if calls:
        found["tool_calls"] = [_sent_call(call) for call in calls]
    return AssistantTurn(found, tuple(_call(place, call) for place, call in enumerate(calls)), "openai")


def _sent_call(call: Any) -> Any:
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
    return {"role": "tool", "tool_call_id": id, "content": flagged_text(result)}


_SEARCH: Final = "tool_search_call"
_CALLS: Final = ("function_call", "custom_tool_call", _SEARCH)


def turn_from_responses(response: object) -> AssistantTurn:
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
    """True if the application has to answer an item; a search may have run at the provider."""
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
    items = [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": json_of(call.arguments)}
        for call in calls
    ]
    return {"output": items}


def responses_result(items: Iterable[Mapping[str, Any]], id: str, result: ToolResult) -> dict[str, Any]:
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
    found = attachment(block)
    if found is not None and found.kind in IMAGES:
        return {"type": "input_image", "image_url": f"data:{found.kind};base64,{found.data}"}
    if found is not None and found.kind == PDF:
        name = found.name or f"file-{place + 1}.pdf"
        return {"type": "input_file", "filename": name, "file_data": f"data:{PDF};base64,{found.data}"}
    return {"type": "input_text", "text": shown(block)}


def turn_from_anthropic(message: object) -> AssistantTurn:
    content = said(message, "the answer of messages.create").get("content")
    if isinstance(content, str):
        return AssistantTurn({"role": "assistant", "content": content}, (), "anthropic")
    if not isinstance(content, list):
        raise RoundError(f"the content of the assistant message is not a list of blocks: {content!r:.80}")
    blocks = [_block(place, block) for place, block in enumerate(cast("list[object]", content))]
    calls = (_tool_use(place, block) for place, block in enumerate(blocks) if block.get("type") == "tool_use")
    return AssistantTurn({"role": "assistant", "content": blocks}, tuple(calls), "anthropic")


def _block(place: int, block: object) -> dict[str, Any]:
    """A block as it is sent back; responses contain empty fields, some of which requests refuse."""
    fields = plain(block)
    if not isinstance(fields, Mapping):
        raise RoundError(f"content[{place}] of the assistant message is not a block: {block!r:.80}")
    kept = sendable(cast("Mapping[str, Any]", fields))
    return {key: value for key, value in kept.items() if value is not None}


def _tool_use(place: int, block: Mapping[str, Any]) -> AssistantCall:
    try:
        id, name, given = block["id"], block["name"], block["input"]
    except KeyError as fault:
        raise RoundError(f"content[{place}] of the assistant message is not a tool use: {fault!r}") from None
    if not isinstance(given, Mapping):
        return AssistantCall(id, name, json_of({"input": given}))
    return AssistantCall(id, name, dict(cast("Mapping[str, Any]", given)))


def anthropic_message(calls: Iterable[AssistantCall]) -> dict[str, Any]:
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
