"""What the results of servers and of clients look like: `result_fault` and `answer_fault`.

A server's result is looked at before it is sent, a client's answer when it comes. Members that the protocol
does not know pass unread. Results of `tools/call` are looked at where tools run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.protocol.methods import CACHEABLE_METHODS
from mcp_toolset.protocol.shapes import (
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    Items,
    Members,
    OneOf,
    OneOrMore,
    Plain,
    Shape,
    Tagged,
    Values,
)

_INTEGER: Final = Plain("an integer", (int,))
_META: Final[Mapping[str, Shape]] = {"_meta": OBJECT}
_ROLE: Final = OneOf(("user", "assistant"))
_ICON: Final = Members({"src": TEXT}, {"mimeType": TEXT, "sizes": Items(TEXT), "theme": TEXT})
_ANNOTATIONS: Final = Members({}, {"audience": Items(_ROLE), "lastModified": TEXT, "priority": NUMBER})
_SHOWN: Final[Mapping[str, Shape]] = {**_META, "title": TEXT, "description": TEXT, "icons": Items(_ICON)}
_THING: Final[Mapping[str, Shape]] = {**_SHOWN, "annotations": _ANNOTATIONS, "mimeType": TEXT}
RESOURCE: Final = Members({"name": TEXT, "uri": TEXT}, {**_THING, "size": _INTEGER})
TEMPLATE: Final = Members({"name": TEXT, "uriTemplate": TEXT}, _THING)
_ARGUMENT: Final = Members({"name": TEXT}, {"title": TEXT, "description": TEXT, "required": FLAG})
PROMPT: Final = Members({"name": TEXT}, {**_SHOWN, "arguments": Items(_ARGUMENT)})


@dataclass(frozen=True, slots=True)
class _Contents:
    """What a resource holds: a text, or bytes in base64."""

    noun: str = "an object"
    kinds: tuple[type, ...] = (dict,)
    is_plain: bool = False

    def fault(self, value: Any, at: str) -> str | None:
        shape = _TEXT_CONTENTS if value.get("text") is not None else _BLOB_CONTENTS
        return shape.fault(value, at)


@dataclass(frozen=True, slots=True)
class _Field:
    """What a user has put into a field of a form."""

    noun: str = "a text, a number, a boolean or a list of texts"
    kinds: tuple[type, ...] = (str, int, float, bool, list, type(None))
    is_plain: bool = False

    def fault(self, value: Any, at: str) -> str | None:
        return Items(TEXT).fault(value, at) if isinstance(value, list) else None


_TEXT_CONTENTS: Final = Members({"uri": TEXT, "text": TEXT}, {**_META, "mimeType": TEXT})
_BLOB_CONTENTS: Final = Members({"uri": TEXT, "blob": TEXT}, {**_META, "mimeType": TEXT})
_NOTED: Final[Mapping[str, Shape]] = {**_META, "annotations": _ANNOTATIONS}
_TEXT_BLOCK: Final = Members({"text": TEXT}, _NOTED)
_MEDIA: Final = Members({"data": TEXT, "mimeType": TEXT}, _NOTED)
_BLOCK: Final = Tagged(
    "type",
    {
        "text": _TEXT_BLOCK,
        "image": _MEDIA,
        "audio": _MEDIA,
        "resource_link": RESOURCE,
        "resource": Members({"resource": _Contents()}, _NOTED),
    },
)
_SAMPLE: Final = Tagged(
    "type",
    {
        "text": _TEXT_BLOCK,
        "image": _MEDIA,
        "audio": _MEDIA,
        "tool_use": Members({"id": TEXT, "name": TEXT, "input": OBJECT}, _META),
        "tool_result": Members({"toolUseId": TEXT, "content": Items(_BLOCK)}, {**_META, "isError": FLAG}),
    },
)
_MESSAGE: Final = Members({"role": _ROLE, "content": _BLOCK})
_COMPLETION: Final = Members({"values": Items(TEXT)}, {"total": _INTEGER, "hasMore": FLAG})
_PAGE: Final[Mapping[str, Shape]] = {**_META, "nextCursor": TEXT}

_RESULTS: Final[Mapping[str, Members]] = {
    "resources/list": Members({"resources": Items(RESOURCE)}, _PAGE),
    "resources/templates/list": Members({"resourceTemplates": Items(TEMPLATE)}, _PAGE),
    "prompts/list": Members({"prompts": Items(PROMPT)}, _PAGE),
    "resources/read": Members({"contents": Items(_Contents())}, _META),
    "prompts/get": Members({"messages": Items(_MESSAGE)}, {**_META, "description": TEXT}),
    "completion/complete": Members({"completion": _COMPLETION}, _META),
}
_QUESTION: Final = Members({"method": TEXT}, {"params": OBJECT})
_INPUT_REQUIRED: Final = Members({}, {**_META, "inputRequests": Values(_QUESTION), "requestState": TEXT})
_HINT: Final = Members({"ttlMs": _INTEGER, "cacheScope": OneOf(("private", "public"))})

_ANSWERS: Final[Mapping[str, Members]] = {
    "elicitation/create": Members(
        {"action": OneOf(("accept", "cancel", "decline"))}, {**_META, "content": Values(_Field())}
    ),
    "sampling/createMessage": Members(
        {"role": _ROLE, "model": TEXT, "content": OneOrMore(_SAMPLE)}, {**_META, "stopReason": TEXT}
    ),
    "roots/list": Members({"roots": Items(Members({"uri": TEXT}, {**_META, "name": TEXT}))}, _META),
}
_ANY: Final = Members({}, _META)


def result_fault(method: str, result: Mapping[str, Any], *, modern: bool) -> str | None:
    """What is wrong with a server's result of a method, as the era has it; `None` if nothing is."""
    if modern and result.get("resultType") == "input_required":
        return _INPUT_REQUIRED.fault(result)
    if modern and method in CACHEABLE_METHODS:
        fault = _HINT.fault(result)
        if fault is not None:
            return fault
    return _RESULTS.get(method, _ANY).fault(result)


def answer_fault(method: str, answer: Mapping[str, Any]) -> str | None:
    """What is wrong with a client's answer to a request of the server; `None` if nothing is."""
    return _ANSWERS.get(method, _ANY).fault(answer)
