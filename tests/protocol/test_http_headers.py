"""Headers of modern requests beside the SDK's: values, routing, arguments in headers, statuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared import inbound as sdk
from mcp_types import HEADER_MISMATCH
from tests.protocol.test_header_schemas import NAMES, leaf

from mcp_toolset.protocol import server_machine as ours
from mcp_toolset.protocol.json_rpc import MODERN_STATUSES, MCPError

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([1.0, 42.0, 1.5, 1e300, 10**5000, [], {}, ["x"], {"a": 1}]),
    st.sampled_from(["", " ", "a", "é", "42", "42.0", "true", "=?base64?YQ==?="]),
)
ANNOTATED = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, leaf(), max_size=3)}
)
"""Schemas that have annotations, some of them well-formed."""


@given(st.one_of(st.text(), st.text("=?base64YWE \x00\x7f\té/+", max_size=20)))
@example("=?base64?YQ==?=")
@example(" a")
@example("a\n")
def test_a_value_travels_as_with_the_sdk_and_comes_back(value: str) -> None:
    try:
        written = sdk.encode_header_value(value)
    except UnicodeEncodeError:
        with pytest.raises(UnicodeEncodeError):
            ours.encode_header_value(value)
        return
    assert ours.encode_header_value(value) == written
    assert ours.decode_header_value(written) == value


@given(st.one_of(st.none(), st.text("=?base64YQWE+/ é\n", max_size=24), st.binary(max_size=9)))
@example("=?base64?YR==?=")
@example("=?base64?/w==?=")
@example("=?base64?é?=")
@example("=?base64??=")
@example("=?base64?YQ==\n?=")
@example("=?base64?YQ==?=\n")
def test_a_header_is_read_as_by_the_sdk(said: str | bytes | None) -> None:
    value = f"=?base64?{said.decode('latin-1')}?=" if isinstance(said, bytes) else said
    try:
        read = sdk.decode_header_value(value)
    except ValueError:
        # Base64 has no letters outside of ASCII; the SDK lets the exception out.
        read = None
    assert ours.decode_header_value(value) == read


@given(ANNOTATED, st.dictionaries(NAMES, SCALARS, max_size=3), st.data())
def test_arguments_in_headers_are_written_and_compared_as_by_the_sdk(
    schema: dict[str, Any], arguments: dict[str, Any], data: st.DataObject
) -> None:
    made = sdk.mcp_param_headers(sdk.x_mcp_header_map(schema), arguments)
    assert ours.param_headers(ours.header_map(schema), arguments) == made
    headers = dict(made)
    for name in data.draw(
        st.lists(st.sampled_from(["Mcp-Param-Region", "mcp-param-region", *made]), max_size=2)
    ):
        headers[name] = data.draw(st.sampled_from(["x", "42", "042", "42.00", "=?base64?_?=", "", "true"]))
    refused = sdk.validate_mcp_param_headers(schema, arguments, headers)
    if refused is None:
        ours.check_param_headers(schema, arguments, headers.items())
        return
    with pytest.raises(MCPError) as fault:
        ours.check_param_headers(schema, arguments, headers.items())
    assert (fault.value.code, fault.value.message) == (refused.code, refused.message)


@pytest.mark.parametrize(
    ("value", "said"), [(42, "42.0"), (42.0, "42"), (10**30, "1" + "0" * 30 + ".00"), (-1, "-1"), (0, "-0")]
)
def test_integers_are_compared_as_numbers(value: Any, said: str) -> None:
    schema = {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    ours.check_param_headers(schema, {"n": value}, [("Mcp-Param-N", said)])
    with pytest.raises(MCPError, match="does not match"):
        ours.check_param_headers(schema, {"n": value}, [("Mcp-Param-N", "7")])
    with pytest.raises(MCPError, match="more than once"):
        ours.check_param_headers(schema, {"n": value}, [("Mcp-Param-N", said), ("mcp-param-n", said)])


def test_an_argument_below_another_is_found_by_its_path() -> None:
    inner = {"type": "object", "properties": {"id": {"type": "string", "x-mcp-header": "Tenant"}}}
    schema = {"type": "object", "properties": {"tenant": inner}}
    made = ours.routing_headers(
        "2026-07-28",
        "tools/call",
        {"name": "é", "arguments": {"tenant": {"id": "t"}}},
        ours.header_map(schema),
    )
    assert made == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "=?base64?w6k=?=",
        "Mcp-Param-Tenant": "t",
    }


def test_a_legacy_request_names_its_revision_alone() -> None:
    params = {"name": "t"}
    assert ours.routing_headers("2025-11-25", "tools/call", params, {("a",): "A"}) == {
        "mcp-protocol-version": "2025-11-25"
    }


def test_statuses_and_names_are_the_sdks() -> None:
    assert dict(sdk.ERROR_CODE_HTTP_STATUS) == MODERN_STATUSES
    assert sdk.MCP_PROTOCOL_VERSION_HEADER == ours.VERSION_HEADER
    assert sdk.MCP_METHOD_HEADER == ours.METHOD_HEADER
    assert sdk.MCP_NAME_HEADER == ours.NAME_HEADER
    assert sdk.MCP_PARAM_HEADER_PREFIX == ours.PARAM_PREFIX


@given(
    st.lists(
        st.tuples(st.sampled_from(["Mcp-Method", "mcp-method", "MCP-NAME", "accept"]), st.just("x")),
        max_size=4,
    )
)
def test_a_routing_header_that_comes_twice_is_refused_by_name(headers: list[tuple[str, str]]) -> None:
    repeated = sdk.find_duplicated_routing_header(headers)
    if repeated is None:
        ours.check_routing_once(name for name, _ in headers)
        return
    with pytest.raises(MCPError, match=f"{repeated} header appears more than once") as refused:
        ours.check_routing_once(name for name, _ in headers)
    assert refused.value.code == HEADER_MISMATCH


def test_a_null_in_the_body_does_not_agree_with_a_missing_header() -> None:
    with pytest.raises(MCPError) as fault:
        ours.check_routing(None, "tools/list", {}, {"mcp-method": "tools/list"})
    assert fault.value.code == HEADER_MISMATCH
