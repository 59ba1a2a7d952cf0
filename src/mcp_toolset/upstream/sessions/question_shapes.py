"""`question_fault`: what is malformed about a request that a server puts to a client.

A server of a legacy revision sends such a request within a call, one of 2026-07-28 has it in a result
(`input_required`). A client that checks what it gets would fail the whole for one that is malformed.

    question_fault("elicitation/create", {"message": "Sure?"})    # "requestedSchema is missing"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_toolset.protocol.shapes import (
    ID,
    NUMBER,
    OBJECT,
    TEXT,
    Items,
    Members,
    OneOf,
    OneOrMore,
    Shape,
    Tagged,
)

_META: Final = Members(optional={"progressToken": ID})
_MEDIA: Final = Members({"data": TEXT, "mimeType": TEXT})
_BLOCK: Final = Tagged(
    "type",
    {
        "text": Members({"text": TEXT}),
        "image": _MEDIA,
        "audio": _MEDIA,
        "tool_use": Members({"id": TEXT, "name": TEXT, "input": OBJECT}),
        "tool_result": Members({"toolUseId": TEXT, "content": Items(OBJECT)}),
    },
)
_SAMPLING: Final = Members(
    {
        "messages": Items(Members({"role": OneOf(("user", "assistant")), "content": OneOrMore(_BLOCK)})),
        "maxTokens": NUMBER,
    },
    {
        "_meta": _META,
        "modelPreferences": OBJECT,
        "systemPrompt": TEXT,
        "includeContext": OneOf(("none", "thisServer", "allServers")),
        "temperature": NUMBER,
        "stopSequences": Items(TEXT),
        "metadata": OBJECT,
        "tools": Items(Members({"name": TEXT, "inputSchema": OBJECT}, {"description": TEXT})),
        "toolChoice": Members(optional={"mode": OneOf(("auto", "none", "required"))}),
        "task": OBJECT,
    },
)
_COMMON: Final[Mapping[str, Shape]] = {"_meta": _META, "task": OBJECT}
_FORM: Final = Members(
    {"message": TEXT, "requestedSchema": Members({"type": OneOf(("object",)), "properties": OBJECT})},
    _COMMON,
)
_PAGE: Final = Members({"message": TEXT, "url": TEXT, "elicitationId": TEXT}, _COMMON)
_ELICITATIONS: Final = Tagged("mode", {"form": _FORM, "url": _PAGE})

_QUESTIONS: Final[Mapping[str, Shape]] = {
    "sampling/createMessage": _SAMPLING,
    "elicitation/create": _ELICITATIONS,
    "roots/list": Members(optional={"_meta": _META}),
}


def question_fault(method: str, params: Mapping[str, Any]) -> str | None:
    """What is malformed about a request of a server (2025-11-25, client); `None` if nothing is."""
    shape = _QUESTIONS.get(method)
    if shape is None:
        return f"{method} is no request of a server"
    if shape is _ELICITATIONS and "mode" not in params:
        params = {**params, "mode": "form"}
    fault = shape.fault(cast("dict[str, Any]", params), "")
    return None if fault is None else fault.removeprefix(".")
