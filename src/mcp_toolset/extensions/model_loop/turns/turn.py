"""`AssistantTurn`: one message of a model with its calls, in the same form for every provider."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast, runtime_checkable

from pydantic_core import from_json, to_json

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.pipeline.decision import rejection_reason
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.forms.form import FOUND_META_KEY
from mcp_toolset.tools.core.result import Block, ToolResult

if TYPE_CHECKING:
    from mcp_toolset.tools.export.table import Export

Arguments = Mapping[str, Any] | str
"""A call's arguments in the assistant's turn: an object, or the text if it is not one."""

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
    """An assistant's message, as it is sent back to the provider, and its calls in order.

    Raises:
        RoundError: two calls have the same id, or a call has no id, so that results could not be matched;
            or a call has no name.
    """

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
        """The same turn with its calls under the tools' own names and arguments.

        The message stays unchanged. A call of a tool that was not exported keeps its name.
        """
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
    """An object of a provider's library as a plain copy; other values are copied."""
    if isinstance(value, _Model):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return deepcopy(value)


def sendable(fields: Mapping[str, Any], *also: str) -> dict[str, Any]:
    """A part of a reply as it is sent back: without fields of the client library, and without `also`."""
    return {key: value for key, value in fields.items() if key not in CLIENT_ONLY and key not in also}


def said(message: object, example: str) -> dict[str, Any]:
    """An assistant's message as a dictionary."""
    found = plain(message)
    if not isinstance(found, Mapping):
        raise RoundError(f"a round is made of an assistant message, such as {example}, not {message!r:.80}")
    fields = dict(cast("Mapping[str, Any]", found))
    if fields.get("role") != "assistant":
        role = fields.get("role")
        raise RoundError(f"a round is made of an assistant message, such as {example}; found role {role!r}")
    return fields


def parsed(text: str) -> Arguments:
    """The arguments in a call's text, or the text itself if it is not a JSON object.

    Some models send an empty text for a tool without parameters. The parser limits depth and digits.
    """
    try:
        value: Any = from_json(text, allow_inf_nan=False) if text.strip() else {}
    except ValueError:
        return text
    return cast("dict[str, Any]", value) if isinstance(value, dict) else text


def json_of(arguments: Arguments) -> str:
    """Arguments as the text of a call."""
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
    """A link with the description of its target: `Title: description`, and the address."""
    said = ": ".join(str(block[key]) for key in ("title", "description") if block.get(key))
    return f"{said} <{block.get('uri', '')}>" if said else str(block.get("uri", ""))


def found(result: ToolResult) -> Mapping[str, Any]:
    """What a search for tools has put into its result for the provider; empty for other results."""
    meta: Mapping[str, Any] = result.wire.get("_meta") or {}
    return meta.get(FOUND_META_KEY) or {}


@dataclass(frozen=True, slots=True)
class Attachment:
    """An image or a file in a result, as base64.

    Attributes:
        kind: Its media type.
        data: The bytes in base64.
        name: The last part of its address, if it has one.
    """

    kind: str
    data: str
    name: str = ""


def attachment(block: Block) -> Attachment | None:
    """The image or the embedded file in a content block, if it has one."""
    if block.get("type") == "image":
        return Attachment(str(block.get("mimeType", "")), str(block.get("data", "")))
    embedded: Mapping[str, Any] = block.get("resource", {}) if block.get("type") == "resource" else {}
    if "blob" not in embedded:
        return None
    name = str(embedded.get("uri", "")).rstrip("/").rsplit("/", 1)[-1]
    return Attachment(str(embedded.get("mimeType", "")), str(embedded["blob"]), name)


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
