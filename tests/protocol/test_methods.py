"""The table of methods beside the SDK's: which revision has what, and which parameters are taken."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import NAME_BEARING_METHODS
from mcp_types import methods as sdk
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_toolset.protocol import methods
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.protocol.server_machine import check_envelope, check_meta

PREFIX = "io.modelcontextprotocol"
CLIENT = {"name": "c", "version": "1", "title": "C", "icons": [{"src": "x:", "sizes": ["any"]}]}
CAPABILITIES: dict[str, Any] = {
    "roots": {},
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "experimental": {"x": {}},
}
ENVELOPE = {
    f"{PREFIX}/protocolVersion": "2026-07-28",
    f"{PREFIX}/clientCapabilities": {**CAPABILITIES, "extensions": {"example.com/x": {}}},
    f"{PREFIX}/clientInfo": CLIENT,
    f"{PREFIX}/logLevel": "debug",
}
REPEATED = {"inputResponses": {"a": {"action": "accept", "content": {}}}, "requestState": "s"}
PROMPT = {"type": "ref/prompt", "name": "p"}
USUAL: dict[str, dict[str, Any]] = {
    "tools/call": {"name": "t", "arguments": {"a": 1}, **REPEATED},
    "tools/list": {"cursor": "c"},
    "resources/list": {"cursor": "c"},
    "resources/templates/list": {"cursor": "c"},
    "resources/read": {"uri": "a://b", **REPEATED},
    "prompts/list": {"cursor": "c"},
    "prompts/get": {"name": "p", "arguments": {"a": "x"}, **REPEATED},
    "completion/complete": {
        "ref": PROMPT,
        "argument": {"name": "a", "value": "x"},
        "context": {"arguments": {"b": "y"}},
    },
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "clientInfo": CLIENT},
    "ping": {},
    "logging/setLevel": {"level": "alert"},
    "resources/subscribe": {"uri": "a://b"},
    "resources/unsubscribe": {"uri": "a://b"},
    "server/discover": {},
    "subscriptions/listen": {
        "notifications": {
            "toolsListChanged": True,
            "promptsListChanged": False,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["a://b"],
        }
    },
}
NOTES: dict[str, dict[str, Any]] = {
    "notifications/cancelled": {"requestId": 5, "reason": "r"},
    "notifications/initialized": {},
    "notifications/progress": {"progressToken": "t", "progress": 0.5, "total": 1, "message": "m"},
    "notifications/roots/list_changed": {},
}
ODD: list[Any] = [None, 5, -1.5, "text", [], ["x"], [5], {}, {"a": 1}, {"a": "x"}, {"a": {}}]
LOOSER = (("inputResponses",), ("_meta", f"{PREFIX}/clientCapabilities", "roots"))
"""Below these the SDK's models look deeper: answers are read by the call that asked, `roots` by nobody."""

Path = tuple[Any, ...]


def _paths(value: Any, at: Path = ()) -> Iterable[Path]:
    """Every place in a value but its root."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in below:
        yield (*at, key)
        yield from _paths(each, (*at, key))


@st.composite
def mutated(draw: st.DrawFn, usual: dict[str, Any]) -> tuple[dict[str, Any], list[Path]]:
    """Parameters of which up to two members are left out, replaced or added; and where."""
    params, places = copy.deepcopy(usual), []
    for _ in range(draw(st.integers(0, 2))):
        paths = list(_paths(params))
        path = draw(st.sampled_from([("unknown",), *paths]))
        holder: Any = params
        for key in path[:-1]:
            holder = holder[key]
        if draw(st.booleans()) and isinstance(holder, dict):
            holder.pop(path[-1], None)
        else:
            holder[path[-1]] = copy.deepcopy(draw(st.sampled_from(ODD)))
        places.append(path)
    return params, places


def _enveloped(usual: dict[str, Any], version: str) -> dict[str, Any]:
    meta: dict[str, Any] = {"progressToken": 7, "example.com/x": [1]}
    return {**usual, "_meta": {**meta, **ENVELOPE} if version in MODERN_PROTOCOL_VERSIONS else meta}


def _ours_takes(method: str, version: str, params: dict[str, Any]) -> bool:
    try:
        meta = check_meta(params)
        if version in MODERN_PROTOCOL_VERSIONS:
            check_envelope(meta or {})
    except MCPError:
        return False
    return methods.REQUESTS[version][method].params.fault(params) is None


def _sdk_takes(method: str, version: str, params: dict[str, Any]) -> bool:
    try:
        sdk.validate_client_request(method, version, params)
    except ValidationError:
        return False
    return True


def test_the_revisions_and_their_methods_are_the_sdks() -> None:
    assert methods.KNOWN_PROTOCOL_VERSIONS == tuple(KNOWN_PROTOCOL_VERSIONS)
    ours = {
        (name, version)
        for version, table in methods.REQUESTS.items()
        for name in set(table) - methods.EXTENSION_METHODS
    }
    assert ours == set(sdk.CLIENT_REQUESTS)
    noted = {(name, version) for version, table in methods.NOTIFICATIONS.items() for name in table}
    assert noted == set(sdk.CLIENT_NOTIFICATIONS)
    assert methods.REQUEST_METHODS - methods.EXTENSION_METHODS == sdk.SPEC_CLIENT_METHODS
    assert methods.NOTIFICATION_METHODS == sdk.SPEC_CLIENT_NOTIFICATION_METHODS


def test_what_is_known_of_methods_is_what_the_sdk_knows() -> None:
    assert methods.CACHEABLE_METHODS == sdk.CACHEABLE_METHODS
    asking = {name for name, each in methods.REQUESTS["2026-07-28"].items() if each.may_ask}
    assert asking == sdk.INPUT_REQUIRED_METHODS
    of_tasks = dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
    assert methods.NAME_PARAMETERS == {**NAME_BEARING_METHODS, **of_tasks}
    assert set(methods.LOG_LEVELS) == {"debug", "info", "notice", "warning", "error", "critical", "alert"} | {
        "emergency"
    }


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
@given(st.data())
def test_parameters_are_taken_and_refused_as_by_the_sdks_models(version: str, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(sorted(set(methods.REQUESTS[version]) - methods.EXTENSION_METHODS)))
    params, places = data.draw(mutated(_enveloped(USUAL[method], version)))
    ours, theirs = _ours_takes(method, version, params), _sdk_takes(method, version, params)
    if ours and not theirs:
        deeper = [place for place in places if any(place[: len(path)] == path for path in LOOSER)]
        assert deeper, (method, params)
    elif theirs and not ours:
        assert ("_meta", "progressToken") in places, (method, params)
        assert params["_meta"]["progressToken"] is None


@pytest.mark.parametrize("version", ["2025-03-26", "2026-07-28"])
@given(st.data())
def test_notifications_are_taken_and_dropped_as_by_the_sdks_models(version: str, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(sorted(methods.NOTIFICATIONS[version])))
    params, _ = data.draw(mutated(NOTES[method]))
    try:
        sdk.validate_client_notification(method, version, params)
        theirs = True
    except ValidationError:
        theirs = False
    assert (methods.NOTIFICATIONS[version][method].params.fault(params) is None) == theirs, (method, params)


@pytest.mark.parametrize("method", sorted(USUAL))
def test_absent_parameters_are_refused_where_one_is_required(method: str) -> None:
    for version in methods.REQUESTS:
        if method in methods.REQUESTS[version]:
            meta = {"_meta": ENVELOPE} if version in MODERN_PROTOCOL_VERSIONS else {}
            assert _ours_takes(method, version, meta) == _sdk_takes(method, version, meta)


@pytest.mark.parametrize(
    ("method", "params", "fault"),
    [
        ("tools/call", {}, "name is missing"),
        ("tools/call", {"name": 5}, "name must be a string"),
        ("tools/call", {"name": "t", "arguments": []}, "arguments must be an object"),
        ("tools/call", {"name": "t", "inputResponses": {"a": 5}}, "inputResponses.a must be an object"),
        ("prompts/get", {"name": "p", "arguments": {"a": 5}}, "arguments.a must be a string"),
        (
            "completion/complete",
            {"ref": {"type": "ref/tool"}},
            "ref.type must be one of ref/prompt, ref/resource",
        ),
        ("completion/complete", {"ref": {"type": ["ref/prompt"]}}, "ref.type must be one of ref/prompt"),
        ("completion/complete", {"ref": PROMPT, "argument": {"name": "a"}}, "argument.value is missing"),
        (
            "subscriptions/listen",
            {"notifications": {"toolsListChanged": "yes"}},
            "notifications.toolsListChanged",
        ),
        (
            "subscriptions/listen",
            {"notifications": {"resourceSubscriptions": [5]}},
            "notifications.resourceSubscriptions.0 must be a string",
        ),
    ],
)
def test_a_fault_names_the_member_and_what_it_must_be(method: str, params: Any, fault: str) -> None:
    found = methods.REQUESTS["2026-07-28"][method].params.fault(params)
    assert found is not None
    assert found.startswith(fault)


def test_what_was_asked_for_is_repeated_in_the_modern_era_only() -> None:
    odd = {"name": "t", "inputResponses": [], "requestState": 5}
    assert methods.REQUESTS["2026-07-28"]["tools/call"].params.fault(odd) is not None
    for version in HANDSHAKE_PROTOCOL_VERSIONS:
        assert methods.REQUESTS[version]["tools/call"].params.fault(odd) is None


def test_values_of_subclasses_are_taken_and_a_boolean_is_no_number() -> None:
    class Text(str):
        __slots__ = ()

    class Arguments(dict[str, Any]):
        pass

    call = methods.REQUESTS["2025-11-25"]["tools/call"].params
    assert call.fault({"name": Text("t"), "arguments": Arguments(a=1)}) is None
    progress = methods.NOTIFICATIONS["2025-11-25"]["notifications/progress"].params
    assert progress.fault({"progressToken": "t", "progress": True}) == "progress must be a number"
