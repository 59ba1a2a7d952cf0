"""What results look like, by our tables and by the SDK's models: both take and refuse the same."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from mcp_types import methods
from pydantic import ValidationError

from mcp_toolset.context.offer_kinds import answer_fault, result_fault

TEXT = {"type": "text", "text": "t", "annotations": {"audience": ["user"], "priority": 0.5}}
LINK = {"type": "resource_link", "name": "n", "uri": "a://1", "size": 3}
HELD = {"type": "resource", "resource": {"uri": "a://1", "blob": "AA=="}}
IMAGE = {"type": "image", "data": "AA==", "mimeType": "image/png"}
RESOURCE = {"name": "n", "uri": "a://1", "title": "t", "icons": [{"src": "i"}], "mimeType": "m", "size": 1}
TEMPLATE = {"name": "n", "uriTemplate": "a://{x}", "description": "d"}
PROMPT = {"name": "n", "arguments": [{"name": "a", "required": True}], "_meta": {"k": 1}}
RESULTS: dict[str, dict[str, Any]] = {
    "resources/list": {"resources": [RESOURCE], "nextCursor": "c", "_meta": {}},
    "resources/templates/list": {"resourceTemplates": [TEMPLATE]},
    "prompts/list": {"prompts": [PROMPT]},
    "resources/read": {"contents": [{"uri": "a://1", "text": "t"}, {"uri": "a://1", "blob": "AA=="}]},
    "prompts/get": {
        "description": "d",
        "messages": [{"role": "user", "content": block} for block in (TEXT, LINK, HELD, IMAGE)],
    },
    "completion/complete": {"completion": {"values": ["a"], "total": 3, "hasMore": True}},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "elicitation/create": {
        "action": "accept",
        "content": {"a": "t", "b": 1, "c": True, "d": ["x"], "e": 1.5},
    },
    "sampling/createMessage": {"role": "assistant", "model": "m", "content": TEXT, "stopReason": "endTurn"},
    "roots/list": {"roots": [{"uri": "file:///a", "name": "n"}]},
}
ASKING = ("resources/read", "prompts/get")
HINT = {"ttlMs": 5, "cacheScope": "private"}
ODD: tuple[Any, ...] = ({}, [], "text", 7, None)
KEPT = ("audience", "priority", "sizes", "data", "blob", "cacheScope")
"""Members whose values the SDK looks at more closely, or takes in other types as well."""


def changed(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The value, with each of its members left out, and with odd values in its place."""
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in members:
        if key in KEPT:
            continue
        for odd in ODD:
            other = copy.copy(value)
            other[key] = odd
            yield (*path, key, repr(odd)), other
        if isinstance(value, dict):
            yield (*path, key, "left out"), {name: each for name, each in value.items() if name != key}
        for place, inner in changed(member, (*path, key)):
            other = copy.copy(value)
            other[key] = inner
            yield place, other


def sdk_takes(method: str, version: str, result: Any) -> bool:
    try:
        methods.serialize_server_result(method, version, result)
    except ValidationError:
        return False
    return True


def sdk_takes_answer(method: str, result: Any) -> bool:
    try:
        methods.validate_client_result(method, "2025-11-25", result)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("method", "version"),
    [(method, "2025-11-25") for method in RESULTS]
    # A question has no member that must be there, so the SDK takes whatever may be one.
    + [(method, "2026-07-28") for method in RESULTS if method not in ASKING],
)
def test_a_result_is_refused_exactly_when_the_sdk_refuses_it(method: str, version: str) -> None:
    modern = version == "2026-07-28"
    whole = {**RESULTS[method], **({**HINT, "resultType": "complete"} if modern else {})}
    assert result_fault(method, whole, modern=modern) is None
    cases = {place: result for place, result in changed(whole) if place[0] not in ("resultType", "ttlMs")}
    found = {place: result_fault(method, result, modern=modern) for place, result in cases.items()}
    expected = {place: sdk_takes(method, version, result) for place, result in cases.items()}
    different = {place: found[place] for place in cases if (found[place] is None) != expected[place]}
    assert different == {}
    assert len(cases) > 10 and set(expected.values()) == {True, False}


@pytest.mark.parametrize("method", ANSWERS)
def test_an_answer_is_refused_exactly_when_the_sdk_refuses_it(method: str) -> None:
    assert answer_fault(method, ANSWERS[method]) is None
    cases = dict(changed(ANSWERS[method]))
    found = {place: answer_fault(method, answer) for place, answer in cases.items()}
    expected = {place: sdk_takes_answer(method, answer) for place, answer in cases.items()}
    different = {place: found[place] for place in cases if (found[place] is None) != expected[place]}
    assert different == {}


def test_what_no_table_names_passes_unread() -> None:
    assert result_fault("vendor/x", {"a": [1]}, modern=True) is None
    assert answer_fault("vendor/x", {"a": [1]}) is None
    assert result_fault("resources/list", {"resources": [{**RESOURCE, "more": [1]}]}, modern=False) is None
    asking = {"resultType": "input_required", "inputRequests": {"q": {"method": "roots/list"}}}
    assert result_fault("prompts/get", asking, modern=True) is None
    assert result_fault("prompts/get", {**asking, "inputRequests": [1]}, modern=True) is not None
