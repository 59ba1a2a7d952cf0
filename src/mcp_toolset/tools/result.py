"""`ToolResult`: the result of a call in wire form; and what a tool asks for, in its call or by its result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeVar, cast

from pydantic_core import to_json, to_jsonable_python

from mcp_toolset._records import dataclass, replace
from mcp_toolset._rule import require_given
from mcp_toolset.errors import CallError, DefinitionError, InvalidOutputError

ELICITATION: Final = "elicitation/create"
SAMPLING: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"

ANSWERABLE: Final = ("elicitation", "roots", "sampling")
"""The client capabilities that let a tool send requests to the client."""

CALL_META_KEY: Final = "mcp-toolset/call"  # In the `_meta` of a sampling request: its call and tool.
REPLAY_META_KEY: Final = "mcp-toolset/replay-key"  # In the same: its number among those of the call.
USAGE_META_KEY: Final = "mcp-toolset/usage"  # In the `_meta` of our own model's message: tokens by kind.

ANY_ANSWER: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}
"""The schema of a question without a schema: one text field."""

_NOTHING: Final[Mapping[str, Any]] = {}
_PLAIN: Final = frozenset({"string", "number", "integer", "boolean"})
_ACTIONS: Final = ("accept", "decline", "cancel")


if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    Value = DefaultedTypeVar("Value", default=Any)
else:
    Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ElicitationAnswer(Generic[Value]):
    """The user's answer to a question.

    Attributes:
        action: `accept` with an answer; `decline`: an explicit no; `cancel`: dismissed unanswered.
        content: The answer, in the form of the question's schema; empty unless accepted.
        value: The answer as a value of the type that was asked for; `None` unless one was, and accepted.
    """

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict[str, Any])
    value: Value | None = None

    @property
    def accepted(self) -> bool:
        """True if the user accepted."""
        return self.action == "accept"

    @classmethod
    def of_wire(cls, wire: Mapping[str, Any]) -> ElicitationAnswer:
        """Read a client's answer. Raises `CallError`: the answer does not follow the protocol."""
        action: Any = wire.get("action")
        content: Any = wire.get("content") or _NOTHING
        if action not in _ACTIONS or not isinstance(content, Mapping):
            raise CallError("the client's answer to the question does not follow the protocol")
        return cls(action, dict(cast("Mapping[str, Any]", content)) if action == "accept" else {})


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """The message that the client's model wrote; `wire` is the whole answer (client/sampling)."""

    wire: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The text of the message; empty for an image or a sound."""
        content: Any = self.wire.get("content")
        blocks: list[Any] = cast("list[Any]", content) if isinstance(content, list) else [content]
        tables = [cast("dict[str, Any]", block) for block in blocks if isinstance(block, dict)]
        return "\n".join(str(block.get("text", "")) for block in tables if block.get("type") == "text")

    @property
    def model(self) -> str:
        """The name of the model, as the client gives it."""
        return str(self.wire.get("model", ""))

    @property
    def usage(self) -> Mapping[str, int]:
        """Tokens by kind, such as `input` and `output`, if the program's own model wrote the message."""
        meta: Any = self.wire.get("_meta") or _NOTHING
        return dict(meta.get(USAGE_META_KEY) or _NOTHING)

    @classmethod
    def of(cls, text: str, *, model: str = "", usage: Mapping[str, int] = _NOTHING) -> SampledMessage:
        """A message of a model of the program; `usage` is tokens by kind: `{"input": 120, "output": 15}`."""
        wire: dict[str, Any] = {"role": "assistant", "content": {"type": "text", "text": text}}
        wire["model"] = model
        return cls({**wire, "_meta": {USAGE_META_KEY: dict(usage)}} if usage else wire)


class InputRequired(BaseException):
    """Control flow, not an error: ends the call, which runs again once the client has answered.

    It is a `BaseException`, so that `except Exception` in a tool or a middleware does not catch it as a
    failure; `finally` blocks run. Only this package catches it. `requests` are in wire form, by replay key.
    """

    def __init__(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(f"input is required from the client: {', '.join(requests)}")
        self.requests = dict(requests)


def joined(group: BaseException) -> BaseException:
    """The exceptions of a task group as one: several `InputRequired` merge, unless another error occurred."""
    if not isinstance(group, BaseExceptionGroup):
        return group
    whole = cast("BaseExceptionGroup[BaseException]", group)
    asked, failed = whole.split(InputRequired)
    if asked is None:
        return whole
    if failed is not None:
        return failed
    requests: dict[str, Mapping[str, Any]] = {}
    for leaf in _leaves(asked):
        requests.update(leaf.requests)
    return InputRequired(requests)


def _leaves(group: BaseExceptionGroup[InputRequired]) -> Iterator[InputRequired]:
    for fault in group.exceptions:
        if isinstance(fault, BaseExceptionGroup):
            yield from _leaves(fault)
        else:
            yield fault


def elicitation(question: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    form = ANY_ANSWER if schema is None else schema
    fault = _fault_of_form(form)
    if fault:
        raise DefinitionError(
            f"the question {question!r} cannot be shown: {fault}; ask for an object of plain fields"
        )
    return {"message": question, "requestedSchema": dict(form)}


def _fault_of_form(form: Mapping[str, Any]) -> str | None:
    fields = form.get("properties", {})
    if form.get("type") != "object" or not isinstance(fields, Mapping):
        return "its schema is no object"
    for name, shape in cast("Mapping[str, Any]", fields).items():
        if not isinstance(shape, Mapping) or not _is_plain(cast("Mapping[str, Any]", shape)):
            return f"its field {name!r} is no text, number, yes-or-no or choice"
    return None


def _is_plain(shape: Mapping[str, Any]) -> bool:
    if shape.get("type") == "array":
        items = shape.get("items")
        return isinstance(items, Mapping) and ("enum" in items or "anyOf" in items)
    return shape.get("type") in _PLAIN


def roots_in(answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    roots: Any = answer.get("roots")
    if not isinstance(roots, list):
        raise CallError("the client's list of roots does not follow the protocol")
    return cast("list[Mapping[str, Any]]", roots)


def sampling(
    messages: str | Sequence[Mapping[str, Any]], *, max_tokens: int, system: str | None
) -> dict[str, Any]:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
    params: dict[str, Any] = {"messages": [dict(message) for message in messages], "maxTokens": max_tokens}
    if system is not None:
        params["systemPrompt"] = system
    return params


RESERVED_HALTS: Final = frozenset({"completed", "error", "awaiting_user", "awaiting_tools", "max_rounds"})
"""Reasons that rounds use themselves; a tool cannot use them."""


@dataclass(frozen=True, slots=True)
class AskUser:
    """The tool needs an answer from the user before it can continue; the answer becomes its result.

    `schema` is the JSON Schema of the answer, an object of plain properties; one text field unless given.
    """

    question: str
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """The loop should end after this call, for a `reason` in a word; the round still finishes."""

    reason: str
    result: Any = None

    def __post_init__(self) -> None:
        if not self.reason or self.reason in RESERVED_HALTS:
            raise DefinitionError(
                f"Halt({self.reason!r}): this reason is reserved or empty; use a word of your own"
            )


Block = Mapping[str, Any]  # One content block in wire form (`{"type": "text", "text": …}`).


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call in wire form (specification, server/tools, "Tool Result"); `wire` is read-only.

    Attributes:
        wire: The result in wire form.
        ask: The question that the call waits for; it is then not complete.
        halt: True if the loop should end after this call.
        unstructured: True if it has no structured content, although its tool's output schema requires some,
            because the client's protocol revision cannot carry it.
        stopped: True if its tool was stopped before its end, so that it is not known what the call has done.
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
        require_given("ToolResult.of_error", __name__)
        return cls.of_text(message, is_error=True)

    @classmethod
    def of_structured(cls, value: Any, *, text: str | None = None) -> Self:
        """A structured result, with its JSON as a text block for clients that read only text.

        `value` is anything with a JSON form, else `ValueError`; NaN and infinities become `null`.
        """
        plain = to_jsonable_python(value, inf_nan_mode="null")
        shown = encodable(text) if text is not None else to_json(plain).decode()
        return cls({"content": [{"type": "text", "text": shown}], "structuredContent": plain})

    @classmethod
    def of_content(
        cls,
        content: str | Block | Sequence[str | Block],
        *,
        structured: Any = None,
        meta: Mapping[str, Any] | None = None,
        is_error: bool = False,
    ) -> Self:
        """A result of texts and content blocks in wire form, such as those of `image_block`.

        Args:
            content: A text, a block, or several of both.
            structured: The structured content, which may be a model or anything else with a JSON form.
            meta: The `_meta` of the result, for clients; models do not see it.
            is_error: True if the call failed in a way that the model should see.
        """
        several = [content] if isinstance(content, str | Mapping) else content
        blocks = [
            {"type": "text", "text": encodable(one)} if isinstance(one, str) else one for one in several
        ]
        wire: dict[str, Any] = {"content": blocks}
        if structured is not None:
            wire["structuredContent"] = to_jsonable_python(structured, inf_nan_mode="null")
        if meta:
            wire["_meta"] = dict(meta)
        if is_error:
            wire["isError"] = True
        return cls(wire)

    def with_content(self, content: Sequence[Block], *, structured: Any = None) -> Self:
        """The result with other content blocks, and with other structured content if given."""
        wire = {**self.wire, "content": [*content]}
        if structured is not None:
            wire["structuredContent"] = structured
        return replace(self, wire=wire)

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
        """True if the call failed in a way that the model should see."""
        return self.wire.get("isError") is True

    @property
    def is_complete(self) -> bool:
        """True if the call has ended; `False` while input is required from the client (2026-07-28)."""
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


def image_block(image: bytes | str | PathLike[str], mime_type: str | None = None) -> dict[str, Any]:
    """An image as a content block: its bytes with a media type, or the path of its file."""
    data, guessed = _file(image)
    kind = mime_type or guessed
    if not kind or not kind.startswith("image/"):
        raise DefinitionError(
            f'image_block: give the media type, as in image_block(data, "image/png"), not {kind!r}'
        )
    return {"type": "image", "data": _base64(data), "mimeType": kind}


def file_block(
    file: bytes | str | PathLike[str], uri: str | None = None, mime_type: str | None = None
) -> dict[str, Any]:
    """A file as an embedded resource: its bytes with a `uri`, or its path."""
    data, guessed = _file(file)
    if uri is None and isinstance(file, bytes):
        raise DefinitionError('file_block: give bytes a URI, as in file_block(data, "report://2026")')
    # Few programs have files in results; these modules would cost each start a millisecond.
    from pathlib import Path

    address = Path(cast("str", file)).absolute().as_uri() if uri is None else uri
    held = {"uri": address, "mimeType": mime_type or guessed or "application/octet-stream"}
    if held["mimeType"].startswith("text/"):
        return {"type": "resource", "resource": {**held, "text": data.decode("utf-8", "replace")}}
    return {"type": "resource", "resource": {**held, "blob": _base64(data)}}


def _base64(data: bytes) -> str:
    from base64 import b64encode

    return b64encode(data).decode()


def _file(given: bytes | str | PathLike[str]) -> tuple[bytes, str | None]:
    if isinstance(given, bytes):
        return given, None
    from mimetypes import guess_type
    from pathlib import Path

    return Path(given).read_bytes(), guess_type(str(given))[0]


def mapping_of(value: object) -> Mapping[str, Any]:
    """The value if it is an object of JSON; else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def list_of(value: object) -> list[Any]:
    """The value if it is an array of JSON; else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def encodable(text: str) -> str:
    """The text with `?` for each lone surrogate, which JSON cannot carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


_MEDIA: Final = ("data", "mimeType")
CONTENT_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": _MEDIA,
    "audio": _MEDIA,
    "resource_link": ("uri", "name"),
}
"""The text fields of each kind of block; clients fail the whole result if one is missing."""

SAMPLED_FIELDS: Final = {kind: CONTENT_FIELDS[kind] for kind in ("text", "image", "audio")}
"""The same for the kinds of block that a message of a model may have (client/sampling)."""


def fault_of_result(wire: Mapping[str, Any]) -> str | None:
    if not isinstance(wire.get("isError", False), bool):
        return "isError is no boolean"
    if "_meta" in wire and not isinstance(wire["_meta"], (dict, Mapping)):
        return "_meta is no object"
    if "content" not in wire:
        complete = wire.get("resultType", "complete") == "complete"
        lacks = complete and "structuredContent" not in wire
        return "it has neither content nor structuredContent" if lacks else None
    content: Any = wire["content"]
    blocks: object = content
    if not isinstance(blocks, list):
        return "content is no list"
    for block in content:
        # Nearly all blocks are texts.
        given: object = block
        if type(given) is dict and block.get("type") == "text" and type(block.get("text")) is str:
            continue
        if (fault := _fault_of_block(block)) is not None:
            return fault
    return None


def _fault_of_block(block: object) -> str | None:
    wire = _mapping(block)
    kind = wire.get("type")
    if not isinstance(kind, str):
        return "content has a block without a type"
    for key in CONTENT_FIELDS.get(kind, ()):
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
    """A result of the application's code `origin`; `InvalidOutputError` if clients cannot read it."""
    wire = cast("object", result.wire)
    fault = fault_of_result(result.wire) if isinstance(wire, Mapping) else "it is no object"
    if fault is not None:
        raise InvalidOutputError(f"{origin} returned a ToolResult that does not follow the protocol: {fault}")
    try:
        to_json(wire)
    except ValueError as fault:
        raise InvalidOutputError(f"{origin} returned a ToolResult that has no JSON form: {fault}") from None
    return result


def is_plain(result: ToolResult) -> bool:
    wire = result.wire
    return result.ask is None and "isError" not in wire and wire.get("resultType", "complete") == "complete"
