"""The calls of one message of a model, in one form for all providers; their outcomes, and `RoundCommit`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from typing import Any, Final, Literal, cast, overload

from pydantic_core import PydanticSerializationError, from_json, to_json

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.checks import cut, text_of
from mcp_toolset.calls.decision import Complete, Reject, rejection_reason
from mcp_toolset.errors import CallError, DefinitionError, InvalidOutputError, RoundError, UnknownToolError
from mcp_toolset.extensions.model_loop.offering import FOUND_META_KEY, TOOL_SEARCH
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import LOCAL_CONTEXT, ToolCall
from mcp_toolset.tools.export import Export, ToolMark
from mcp_toolset.tools.input import CompletedCall
from mcp_toolset.tools.result import ANY_ANSWER, AskUser, Block, ElicitationAnswer, ToolResult, checked_result
from mcp_toolset.tools.validation import SchemaCheck
from mcp_toolset.tools.view import ToolView

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


CLIENT_ONLY: Final = frozenset({"parsed", "parsed_arguments", "parsed_output"})
"""Fields that client libraries add to replies when they stream or parse them; no API takes them back."""


def plain(value: object) -> object:
    dump: Any = getattr(value, "model_dump", None)
    return deepcopy(value) if dump is None else dump(mode="json", by_alias=True, exclude_unset=True)


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
    text = ": ".join(str(block[key]) for key in ("title", "description") if block.get(key))
    return f"{text} <{block.get('uri', '')}>" if text else str(block.get("uri", ""))


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
    fields = plain(response)
    output = cast("Mapping[str, Any]", fields).get("output") if isinstance(fields, Mapping) else fields
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


NOTHING_OFFERED: Final[Mapping[str, ToolMark]] = {}


class InvalidCallReason(StrEnum):
    """Why a call of the model cannot run."""

    UNKNOWN_TOOL = "unknown_tool"
    UNAVAILABLE_TOOL = "unavailable_tool"
    INVALID_JSON = "invalid_json"
    INVALID_ARGUMENTS = "invalid_arguments"
    CHANGED_TOOL = "changed_tool"
    """The round was stored, and its tool has changed since the model saw it."""
    INTERRUPTED = "interrupted"
    """The round was stored while its tool ran; whether the tool took effect is unknown."""


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """A call that cannot run. The model reads why, and can call again.

    Attributes:
        call: The call as the model sent it; its arguments are text if they were not a JSON object.
        reason: For the application.
        message: For the model; it does not reveal whether an unavailable tool exists.
    """

    call: AssistantCall
    reason: InvalidCallReason
    message: str


def examined(
    call: AssistantCall,
    given: Arguments,
    view: ToolView,
    known: Container[str],
    offered: Mapping[str, ToolMark] = NOTHING_OFFERED,
) -> ToolCall | InvalidCall:
    """A call that can run with the arguments `given`, or what is wrong with it.

    `known` names further tools that exist but were not offered. `offered` are deferred tools that the
    provider's own search has shown to the model, in their versions: this grants the call by name.
    """
    binding = view.get(call.name)
    if binding is None or (binding.deferred and call.name not in offered):
        return not_callable(call, known=call.name in known or view.knows(call.name))
    if binding.deferred and offered[call.name] != ToolMark.of(binding):
        return changed(call)
    fault = f"Invalid arguments for {call.name}: "
    if isinstance(given, str) or isinstance(call.arguments, str):
        return InvalidCall(call, InvalidCallReason.INVALID_JSON, f"{fault}they are not the JSON of an object")
    decoded = ToolCall(call.name, deepcopy(dict(given)), call.id, deepcopy(call.arguments))
    # Arguments that differ from the model's have been prepared, or edited, in an earlier round.
    if binding.prepare is not None and given == call.arguments:
        try:
            decoded = binding.prepare(decoded, LOCAL_CONTEXT)
        except CallError as refusal:
            return InvalidCall(call, InvalidCallReason.INVALID_ARGUMENTS, str(refusal))
    if misfit := binding.misfit(decoded):
        return InvalidCall(call, InvalidCallReason.INVALID_ARGUMENTS, misfit)
    return decoded


def searched(
    examined: Sequence[ToolCall | InvalidCall], calls: Sequence[AssistantCall], export: Export
) -> list[ToolCall | InvalidCall]:
    """The same for a request with a search of the application: tools may have changed since the request."""
    if export.search is None or not calls:
        return list(examined)
    name, present = export.search
    tools, pairs = present(), zip(examined, calls, strict=True)
    return [_searched(one, given, export, name, tools) for one, given in pairs]


def _searched(
    one: ToolCall | InvalidCall,
    given: AssistantCall,
    export: Export,
    search: str,
    present: Mapping[str, ToolBinding],
) -> ToolCall | InvalidCall:
    if isinstance(one, InvalidCall):
        if one.reason not in (InvalidCallReason.UNKNOWN_TOOL, InvalidCallReason.UNAVAILABLE_TOOL):
            return one
        return replace(one, message=f"{one.message}; {_to_search(search)}")
    offered, now = (export.view or {}).get(one.name), present.get(one.name)
    if now is None:
        gone = f"{one.name} is not there any more, so it was not run; {_to_search(search)}"
        return InvalidCall(given, InvalidCallReason.CHANGED_TOOL, gone)
    return one if offered is None or ToolMark.of(offered) == ToolMark.of(now) else changed(given)


def _to_search(name: str) -> str:
    return f"find tools with {name}, and call them in the turn after that"


def not_callable(call: AssistantCall, *, known: bool) -> InvalidCall:
    reason = InvalidCallReason.UNAVAILABLE_TOOL if known else InvalidCallReason.UNKNOWN_TOOL
    return InvalidCall(call, reason, str(UnknownToolError(call.name)))


def changed(call: AssistantCall) -> InvalidCall:
    """The issue of a call whose tool was replaced or redefined while the round was stored."""
    reason = (
        f"{call.name} has changed since it was called, so it was not run; read it again before you call it"
    )
    return InvalidCall(call, InvalidCallReason.CHANGED_TOOL, reason)


def interrupted(call: AssistantCall) -> InvalidCall:
    """The issue of a call that was running when the round was stored."""
    told = f"{call.name} was interrupted and may have taken effect or not; find out before you call it again"
    return InvalidCall(call, InvalidCallReason.INTERRUPTED, told)


@dataclass(frozen=True, slots=True)
class HandledCall:
    """A call that a hook answered; its tool does not run."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class RejectedCall:
    """A call that a hook or a policy refused; `result` is the rejection after the result hooks."""

    call: ToolCall
    decision: Reject
    result: ToolResult


@dataclass(frozen=True, slots=True)
class CallResult:
    """A result with its call; `arguments` are the arguments in the assistant's turn."""

    id: str
    name: str
    arguments: Arguments
    result: ToolResult

    @classmethod
    def of(cls, call: ToolCall | AssistantCall, output: Any) -> CallResult:
        """A result of the application: text, a value, or a `ToolResult`."""
        return cls(call.id, call.name, original_of(call), result_of(call, output))


GivenResult = CallResult | CompletedCall
"""Results for a commit: results of a run or of the application, and calls that a typed tool completed."""


def is_placeholder(done: GivenResult) -> bool:
    return done.result.ask is not None


def result_of(call: ToolCall | AssistantCall, output: Any) -> ToolResult:
    try:
        result = Complete(output).result()
        return checked_result(result, "the application") if isinstance(output, ToolResult) else result
    except InvalidOutputError as fault:
        raise RoundError(f"the output for {call.name} ({call.id}) is not a result: {fault}") from None
    except (PydanticSerializationError, ValueError) as fault:
        raise RoundError(f"the output for {call.name} ({call.id}) has no JSON form: {fault}") from None


def original_of(call: ToolCall | AssistantCall) -> Any:
    original = call.original if isinstance(call, ToolCall) else None
    return call.arguments if original is None else original


@dataclass(frozen=True, slots=True)
class RoundQuestion:
    """A question of a tool, or of middleware, that `plan.answer(id, …)` has not answered yet.

    `schema` is the JSON Schema of the answer, an object; a text unless given.
    """

    id: str
    name: str
    question: str
    schema: Mapping[str, Any] | None = None

    @property
    def is_confirmation(self) -> bool:
        """True if it is a yes-or-no question: `plan.answer(id, True)`."""
        return is_confirmation(self.schema)


def is_confirmation(schema: Mapping[str, Any] | None) -> bool:
    return schema is not None and not schema.get("properties")


def placeholder(ask: AskUser) -> ToolResult:
    text = f"The user was asked: {ask.question}\nThere is no answer yet."
    return ToolResult({"content": [{"type": "text", "text": text}]}, ask=ask)


@dataclass(frozen=True, slots=True)
class RoundHalt:
    """A call's request to end the loop after this round; `reason` is `error` for `on_tool_error`."""

    id: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """A call whose tool failed.

    `exception` is a `TimeoutError` if its time was over, and `None` if the tool itself reported the failure.
    """

    call: ToolCall
    result: ToolResult
    exception: BaseException | None


Verdict = Literal["continue", "halt"]

OnToolError = Verdict | Callable[[ToolFailure], "Verdict | Awaitable[Verdict]"]
"""The consequence of a failed tool: continue, halt, or the result of a function."""


@dataclass(frozen=True, slots=True)
class RunReport(Sequence[CallResult]):
    """The results of `run_pending`: a sequence, in the order of the calls.

    Attributes:
        results: Every result of the round so far, with placeholders for open questions.
        manual: The calls that wait for the application; give each a result with `plan.submit`.
        questions: The questions that wait for the user; `plan.answer` takes the answers.
        halt: A request to end the loop, from the first call that made one.
        failures: The calls whose tools failed in this run, with their exceptions.
    """

    results: tuple[CallResult, ...]
    manual: tuple[ToolCall, ...] = ()
    questions: tuple[RoundQuestion, ...] = ()
    halt: RoundHalt | None = None
    failures: tuple[ToolFailure, ...] = ()

    @overload
    def __getitem__(self, index: int) -> CallResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[CallResult, ...]: ...
    def __getitem__(self, index: int | slice) -> CallResult | tuple[CallResult, ...]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)


GivenAnswer = str | Mapping[str, Any] | bool | None
"""The application's answer for the user: a text, an object, yes or no; `None` means declined."""


def user_answer(ask: AskUser, answer: GivenAnswer) -> ElicitationAnswer:
    if answer is None or answer is False:
        return ElicitationAnswer("decline")
    given: object = answer
    if is_confirmation(ask.schema) and (answer is True or answer == {}):
        given = {} if answer is True else None  # an empty object says neither yes nor no
    if isinstance(given, str) and ask.schema is None:
        given = {"answer": given}
    if not isinstance(given, Mapping):
        form = "True or False" if is_confirmation(ask.schema) else "an object that fits its schema"
        raise RoundError(f"the question {ask.question!r} is answered with {form}, not {answer!r}")
    content = dict(cast("Mapping[str, Any]", given))
    _check(ask, content)
    return ElicitationAnswer("accept", content)


def answer_result(ask: AskUser, answer: GivenAnswer) -> ToolResult:
    found = user_answer(ask, answer)
    if not found.accepted:
        return ToolResult.of_error(f"The user declined to answer: {ask.question}")
    given = found.content
    if ask.schema is None:
        return ToolResult.of_text(given["answer"])
    return ToolResult.of_structured(dict(given))


def _check(ask: AskUser, answer: Mapping[str, Any]) -> None:
    try:
        check = SchemaCheck(ask.schema or ANY_ANSWER, tool=ask.question, part="answer")
    except DefinitionError as fault:
        raise RoundError(f"the question cannot be answered: {fault}") from None
    if problems := check.problems(dict(answer)):
        raise RoundError(f"the answer to {ask.question!r} does not fit: {'; '.join(problems)}")


@dataclass(frozen=True, slots=True)
class RoundCommit:
    """A committed round: the assistant's turn, and one result for each of its calls, in its order.

    Attributes:
        turn: The assistant's turn.
        results: The results.
        questions: Questions that were committed without an answer: the model was told that the
            user was asked; put the answer into the next user message.
        halt: A request to end the loop here.
    """

    turn: AssistantTurn
    results: tuple[CallResult, ...]
    questions: tuple[RoundQuestion, ...] = ()
    halt: RoundHalt | None = None

    @property
    def message(self) -> Mapping[str, Any]:
        """The assistant's message; empty for a round that was made from plain calls."""
        return self.turn.message

    def to_openai(self) -> list[dict[str, Any]]:
        """The messages to append to a chat completion's; `RoundError` if the turn is another provider's."""
        message = self._said("openai", openai_message)
        return [message, *(openai_result(done.id, done.result) for done in self.results)]

    def to_openai_responses(self) -> list[dict[str, Any]]:
        """The items to append to the input of a response: the output's, then one per call.

        With `previous_response_id` only those of `type` `…_output` are to be sent.
        """
        items = self._said("openai_responses", responses_message)["output"]
        return [*items, *(responses_result(items, done.id, done.result) for done in self.results)]

    def to_anthropic(self) -> list[dict[str, Any]]:
        """The messages to append to a request's: the assistant's, then the user's with every result."""
        message = self._said("anthropic", anthropic_message)
        return [message, *anthropic_results((done.id, done.result) for done in self.results)]

    def _said(
        self, form: Origin, make: Callable[[Iterable[AssistantCall]], dict[str, Any]]
    ) -> dict[str, Any]:
        if self.turn.origin == "calls":
            return make(self.turn.calls)
        if self.turn.origin != form:
            raise RoundError(f"this turn came from {self.turn.origin}; use to_{self.turn.origin}()")
        return deepcopy(dict(self.turn.message))


@dataclass(frozen=True, slots=True)
class Ledger:
    """The calls of a turn, by id, and what a commit of them is checked against."""

    calls: Mapping[str, AssistantCall]
    pending: Sequence[str]  # The ids of the calls that need a result.
    manual: frozenset[str]  # Those of them that wait for the application.
    issues: frozenset[str]  # The ids of the calls that may have a result.
    given: Mapping[str, ToolResult]  # Results that the application has given already, by id.
    guarded: frozenset[str] = frozenset()  # The ids of the calls that middleware has not let through yet.

    def accepted(self, results: Iterable[GivenResult]) -> dict[str, ToolResult]:
        accepted: dict[str, ToolResult] = {}
        faults: list[str] = []
        for place, done in enumerate(results):
            if not isinstance(done, CallResult | CompletedCall):  # pyright: ignore[reportUnnecessaryIsInstance]
                faults.append(f"result {place} is {done!r}; make one with CallResult.of(call, output)")
                continue
            if is_placeholder(done) and done.id in self.given:
                continue
            if fault := self._fault(done, accepted):
                faults.append(f"call {done.id} ({done.name}) {fault}")
            accepted[done.id] = done.result
        missing = [id for id in self.pending if id not in accepted and id not in self.given]
        if faults or missing:
            raise RoundError(
                f"the round is not committed: {'; '.join([*faults, *map(self._missing, missing)])}"
            )
        return {**self.given, **accepted}

    def _missing(self, id: str) -> str:
        mend = "waits for your result; submit() it" if id in self.manual else "has no result; give one"
        return f"call {id} ({self.calls[id].name}) {mend}"

    def _fault(self, done: GivenResult, accepted: Mapping[str, ToolResult]) -> str | None:
        call = self.calls.get(done.id)
        if call is None:
            return "is not of this turn"
        if done.id not in self.pending and done.id not in self.issues:
            return "was already answered by a hook; leave its result out"
        if done.id in accepted or self.given.get(done.id, done.result) != done.result:
            return "has two results; give one"
        if done.name != call.name:
            return f"is a call of {call.name}; the result is of another tool"
        if done.id in self.guarded and not done.result.is_error and not is_placeholder(done):
            said = "has middleware that has not let it through"
            return f"{said}, or rules that its toolset carries; have run_pending run it, not call.call()"
        if done.arguments != call.arguments:
            return "has a result for other arguments; give those of the assistant's turn"
        return None


def fair_shares(lengths: Sequence[int], budget: int) -> list[int]:
    """The max-min fair share of a budget for each text: what short ones leave, long ones share."""
    shares, left = [0] * len(lengths), budget
    ascending = sorted(range(len(lengths)), key=lambda place: lengths[place])
    for waiting, place in zip(range(len(lengths), 0, -1), ascending, strict=True):
        shares[place] = min(lengths[place], left // waiting)
        left -= shares[place]
    return shares


def within_budget(results: Sequence[CallResult], budget: int) -> tuple[CallResult, ...]:
    """The results in their order, with at most so many characters of text in total.

    Each result that was cut says by how much, and how to get the rest; these notes are not counted. Images
    and other blocks without text are neither counted nor cut. Structured content stays whole.
    """
    contents = [_said(done.result) for done in results]
    lengths = [sum(len(text_of(block)) for block in content) for content in contents]
    shares = fair_shares(lengths, budget)
    return tuple(
        done if share == length else replace(done, result=_shortened(done, content, share, budget))
        for done, content, length, share in zip(results, contents, lengths, shares, strict=True)
    )


def _said(result: ToolResult) -> Sequence[Block]:
    return result.content or ([{"type": "text", "text": result.text}] if result.text else [])


def _shortened(done: CallResult, content: Sequence[Block], share: int, budget: int) -> ToolResult:
    blocks, lost = cut(content, share)
    note = (
        f"[{lost} characters were cut off: the results of this turn share {budget}; for the rest, call "
        f"{done.name} again for less at once, or alone]"
    )
    return replace(
        done.result, wire={**done.result.wire, "content": [*blocks, {"type": "text", "text": note}]}
    )
