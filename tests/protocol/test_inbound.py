"""What a message is, and the envelope of a modern request, beside the SDK's ladder and models."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound as sdk
from mcp_types import jsonrpc
from pydantic import TypeAdapter, ValidationError

from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.protocol.server_machine import Envelope, has_envelope, kind_of, read_envelope

PREFIX = "io.modelcontextprotocol"
ABSENT = object()
VALUES = st.sampled_from([ABSENT, None, 5, 1.5, True, "x", "", "2.0", [], {}, {"a": 1}, -(2**70)])
MESSAGE: TypeAdapter[Any] = TypeAdapter(jsonrpc.JSONRPCMessage)
KINDS = {
    jsonrpc.JSONRPCRequest: "request",
    jsonrpc.JSONRPCNotification: "notification",
    jsonrpc.JSONRPCResponse: "answer",
    jsonrpc.JSONRPCError: "answer",
}
METHODS = ["tools/call", "tools/list", "resources/read", "prompts/get", "vendor/method", "initialize"]
VERSIONS = [ABSENT, None, 5, "", "2025-11-25", "2026-07-28", "2099-01-01"]
NAMES = [ABSENT, None, 5, "t", "é", "=?base64?dA==?="]


def _without_absent(members: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if value is not ABSENT}


@given(
    st.fixed_dictionaries(
        {
            "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2.0, None, ABSENT]),
            "id": VALUES,
            "method": VALUES,
            "params": VALUES,
        }
    ).map(_without_absent)
)
def test_a_request_or_notification_is_what_the_sdk_takes_it_for(message: dict[str, Any]) -> None:
    try:
        kind = KINDS[type(MESSAGE.validate_python(message, by_name=False))]
    except ValidationError:
        kind = "garbage"
    ours = kind_of(message)
    # The SDK has a request whose id is malformed be a notification, which nobody answers.
    if ours != kind:
        assert (ours, kind) == ("garbage", "notification")
        assert "id" in message


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (None, "garbage"),
        ([], "garbage"),
        ([{"jsonrpc": "2.0", "id": 1, "method": "ping"}], "garbage"),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, "answer"),
        ({"jsonrpc": "2.0", "id": "a", "error": {"code": 1, "message": "x"}}, "answer"),
        ({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}}, "garbage"),
        ({"jsonrpc": "2.0", "id": 1}, "garbage"),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "result": {}, "more": 1}, "request"),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, "garbage"),
        ({"jsonrpc": "2.0", "method": "x", "params": [1]}, "garbage"),
    ],
    ids=repr,
)
def test_a_message_is_one_of_four_kinds(message: Any, kind: str) -> None:
    assert kind_of(message) == kind


ENVELOPES = st.one_of(
    st.sampled_from([ABSENT, None, [], 5, {}]),
    st.fixed_dictionaries(
        {
            f"{PREFIX}/protocolVersion": st.sampled_from(VERSIONS),
            f"{PREFIX}/clientCapabilities": st.sampled_from([ABSENT, None, [], {}, {"sampling": {}}]),
            f"{PREFIX}/clientInfo": st.sampled_from([ABSENT, None, 5, {"name": "c", "version": "1"}]),
        }
    ).map(_without_absent),
)
HEADERS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "mcp-protocol-version": st.sampled_from([ABSENT, "", "2026-07-28", "2099-01-01"]),
            "mcp-method": st.sampled_from([ABSENT, "", *METHODS]),
            "mcp-name": st.sampled_from(
                [ABSENT, "", "t", "=?base64?dA==?=", "=?base64?w6k=?=", "=?base64?!?="]
            ),
        }
    ).map(_without_absent),
)


@given(
    st.sampled_from(METHODS),
    st.fixed_dictionaries(
        {"_meta": ENVELOPES, "name": st.sampled_from(NAMES), "uri": st.sampled_from(NAMES)}
    ).map(_without_absent),
    HEADERS,
)
def test_an_envelope_is_read_and_refused_as_by_the_sdks_ladder(
    method: str, params: dict[str, Any], headers: dict[str, str] | None
) -> None:
    route = sdk.classify_inbound_request({"method": method, "params": params}, headers=headers)
    if isinstance(route, sdk.InboundLadderRejection):
        with pytest.raises(MCPError) as refused:
            read_envelope(method, params, headers)
        assert refused.value.error.to_wire() == _wire(route)
        return
    envelope = read_envelope(method, params, headers)
    assert envelope.is_modern
    assert has_envelope(params)
    assert (envelope.protocol_version, envelope.client_info, envelope.client_capabilities) == (
        route.protocol_version,
        route.client_info,
        route.client_capabilities,
    )


def _wire(route: sdk.InboundLadderRejection) -> dict[str, Any]:
    wire: dict[str, Any] = {"code": route.code, "message": route.message}
    return wire if route.data is None else {**wire, "data": route.data}


@given(st.sampled_from(METHODS), st.sampled_from(NAMES), st.data())
def test_headers_that_agree_are_taken_and_any_other_are_not(
    method: str, name: Any, data: st.DataObject
) -> None:
    meta = {f"{PREFIX}/protocolVersion": "2026-07-28", f"{PREFIX}/clientCapabilities": {}}
    params = _without_absent({"_meta": meta, "name": name, "uri": name})
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if isinstance(name, str):
        headers["mcp-name"] = sdk.encode_header_value(name)
    changed = data.draw(st.sampled_from([None, *headers]))
    if changed is not None:
        headers[changed] = data.draw(st.sampled_from(["", "x"]))
    route = sdk.classify_inbound_request({"method": method, "params": params}, headers=headers)
    if isinstance(route, sdk.InboundModernRoute):
        assert read_envelope(method, params, headers) == Envelope("2026-07-28", None, {})
    else:
        with pytest.raises(MCPError) as refused:
            read_envelope(method, params, headers)
        assert refused.value.error.to_wire() == _wire(route)


def test_a_request_over_http_without_headers_is_refused() -> None:
    meta = {f"{PREFIX}/protocolVersion": "2026-07-28", f"{PREFIX}/clientCapabilities": {}}
    with pytest.raises(MCPError, match="mcp-protocol-version header"):
        read_envelope("tools/list", {"_meta": meta}, {})


@pytest.mark.parametrize("params", [None, {}, {"_meta": None}, {"_meta": []}, {"_meta": {"x": 1}}], ids=repr)
def test_a_request_without_a_revision_has_no_envelope(params: Any) -> None:
    assert not has_envelope(params)
    with pytest.raises(MCPError, match="_meta"):
        read_envelope("tools/list", params)
