"""What a tool may ask for: elicitation, sampling and roots in its call; `AskUser` and `Halt` as its result.

The answers are typed values, the requests are in wire form. `InputRequired` carries the requests out of a
call where the protocol sends them in the result (2026-07-28, "Multi round-trip requests").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

from mcp_toolset._records import dataclass
from mcp_toolset.errors import CallError, DefinitionError

ELICITATION: Final = "elicitation/create"
SAMPLING: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"

ANSWERABLE: Final = ("elicitation", "roots", "sampling")
"""The client capabilities that let a tool send requests to the client."""

CALL_META_KEY: Final = "mcp-toolset/call"
"""Key in the `_meta` of a sampling request: the call and tool that caused it."""

REPLAY_META_KEY: Final = "mcp-toolset/replay-key"
"""Key in the `_meta` of a sampling request: its number among the requests of the same call."""

USAGE_META_KEY: Final = "mcp-toolset/usage"
"""Key in the `_meta` of a message that the program's own model wrote: its tokens by kind."""

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
        """Whether the user accepted."""
        return self.action == "accept"

    @classmethod
    def of_wire(cls, wire: Mapping[str, Any]) -> ElicitationAnswer:
        """Read a client's answer.

        Raises:
            CallError: the answer does not follow the protocol.
        """
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
        found = [cast("dict[str, Any]", block) for block in blocks if isinstance(block, dict)]
        return "\n".join(str(block.get("text", "")) for block in found if block.get("type") == "text")

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
        """A message that a model of the program wrote, for a `sampler`.

        Args:
            text: The text.
            model: The name of the model.
            usage: Tokens by kind, such as `{"input": 120, "output": 15}`.
        """
        wire: dict[str, Any] = {"role": "assistant", "content": {"type": "text", "text": text}}
        wire["model"] = model
        return cls({**wire, "_meta": {USAGE_META_KEY: dict(usage)}} if usage else wire)


class InputRequired(BaseException):
    """Control flow, not an error: ends the call, which runs again once the client has answered.

    It is a `BaseException`, so that `except Exception` in a tool or a middleware does not catch it as a
    failure; `finally` blocks run. Only this package catches it.

    Attributes:
        requests: The requests that the client must answer, by replay key, in wire form.
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
    """The parameters of a question to the user (client/elicitation, form mode)."""
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
    """The folders in a client's answer (client/roots); `CallError` if it does not answer that request."""
    found: Any = answer.get("roots")
    if not isinstance(found, list):
        raise CallError("the client's list of roots does not follow the protocol")
    return cast("list[Mapping[str, Any]]", found)


def sampling(
    messages: str | Sequence[Mapping[str, Any]], *, max_tokens: int, system: str | None
) -> dict[str, Any]:
    """The parameters of a sampling request; a text becomes one message of the user."""
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

    Attributes:
        question: The question.
        schema: JSON Schema of the answer, an object of plain properties as elicitation allows them;
            by default one text field named `answer`.
    """

    question: str
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """The loop should end after this call; the other calls of the round still finish.

    Attributes:
        reason: Why the loop should end, as a short word of the application.
        result: The result of the call itself.
    """

    reason: str
    result: Any = None

    def __post_init__(self) -> None:
        """Refuse reasons that have a meaning already."""
        if not self.reason or self.reason in RESERVED_HALTS:
            raise DefinitionError(
                f"Halt({self.reason!r}): this reason is reserved or empty; use a word of your own"
            )
