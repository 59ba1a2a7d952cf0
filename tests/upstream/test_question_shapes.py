"""Malformed requests of servers are found as by the models of the SDK, and told with their place."""

from __future__ import annotations

from typing import Any, Final

import pytest
from mcp_types import methods
from pydantic import ValidationError

from mcp_toolset.upstream.questions import question_fault

ASK: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
FORM: Final[dict[str, Any]] = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}
PAGE: Final[dict[str, Any]] = {"mode": "url", "message": "m", "url": "https://e.x", "elicitationId": "1"}
TEXT: Final = {"role": "user", "content": {"type": "text", "text": "t"}}
LENDS: Final[dict[str, Any]] = {"messages": [TEXT], "maxTokens": 5}


def without(params: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != key}


def said(content: Any, role: Any = "assistant") -> dict[str, Any]:
    return {**LENDS, "messages": [{"role": role, "content": content}]}


SOUND: Final = [
    (ASK, FORM),
    (ASK, {**FORM, "mode": "form", "_meta": {"progressToken": 1}}),
    (ASK, {**FORM, "vendor": [1]}),
    (ASK, PAGE),
    ("roots/list", {}),
    ("roots/list", {"_meta": {"progressToken": "x"}}),
    (SAMPLE, LENDS),
    (SAMPLE, said([{"type": "image", "data": "aa", "mimeType": "image/png"}])),
    (SAMPLE, said({"type": "tool_use", "id": "1", "name": "n", "input": {}})),
    (SAMPLE, said([{"type": "tool_result", "toolUseId": "1", "content": []}], "user")),
    (
        SAMPLE,
        {
            **LENDS,
            "systemPrompt": None,
            "temperature": 0.5,
            "stopSequences": ["x"],
            "includeContext": "none",
            "tools": [{"name": "n", "inputSchema": {"type": "object"}}],
            "toolChoice": {"mode": "auto"},
            "modelPreferences": {"hints": [{"name": "a"}]},
            "metadata": {"a": 1},
        },
    ),
]
MALFORMED: Final = [
    (ASK, {}, "message is missing"),
    (ASK, without(FORM, "requestedSchema"), "requestedSchema is missing"),
    (ASK, {**FORM, "requestedSchema": {"type": "array", "properties": {}}}, "requestedSchema.type must be"),
    (ASK, {**FORM, "requestedSchema": {"type": "object"}}, "requestedSchema.properties is missing"),
    (ASK, {**FORM, "message": 5}, "message must be a string"),
    (ASK, {**FORM, "mode": "voice"}, "mode must be one of form, url"),
    (ASK, without(PAGE, "url"), "url is missing"),
    (ASK, without(PAGE, "elicitationId"), "elicitationId is missing"),
    (SAMPLE, {}, "messages is missing"),
    (SAMPLE, without(LENDS, "maxTokens"), "maxTokens is missing"),
    (SAMPLE, {**LENDS, "messages": "x"}, "messages must be a list"),
    (SAMPLE, said({"type": "text"}), "messages.0.content.text is missing"),
    (SAMPLE, said([{"type": "smell"}]), "messages.0.content.0.type must be one of"),
    (SAMPLE, said({"type": "text", "text": "t"}, "system"), "messages.0.role must be one of user, assistant"),
    (SAMPLE, {**LENDS, "tools": [{"name": "n"}]}, "tools.0.inputSchema is missing"),
    (SAMPLE, {**LENDS, "stopSequences": [1]}, "stopSequences.0 must be a string"),
    (SAMPLE, {**LENDS, "includeContext": "some"}, "includeContext must be one of"),
]


def is_refused_by_the_sdk(method: str, params: dict[str, Any]) -> bool:
    try:
        methods.parse_server_request(method, "2025-11-25", params or None)
    except (KeyError, ValidationError):
        return True
    return False


@pytest.mark.parametrize(("method", "params"), SOUND)
def test_a_request_that_follows_the_protocol_has_no_fault(method: str, params: dict[str, Any]) -> None:
    assert not is_refused_by_the_sdk(method, params)
    assert question_fault(method, params) is None


@pytest.mark.parametrize(("method", "params", "fault"), MALFORMED)
def test_a_malformed_request_is_told_with_the_place(method: str, params: dict[str, Any], fault: str) -> None:
    assert is_refused_by_the_sdk(method, params)
    assert (question_fault(method, params) or "").startswith(fault)


def test_what_no_server_may_ask_is_malformed() -> None:
    assert question_fault("tools/call", {"name": "x"}) == "tools/call is no request of a server"
