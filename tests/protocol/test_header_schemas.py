"""`x-mcp-header` annotations beside the SDK's: which are found, and which are malformed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound as sdk

from mcp_toolset.protocol.server_machine import header_fault, header_map

TOKENS = st.sampled_from(["Region", "region", "X-A", "a b", "", "é", 5, None, "Z"])
TYPES = st.sampled_from(["string", "integer", "boolean", "number", "object", ["string"], None])
NAMES = st.sampled_from(["a", "b", "properties", "a.b", "items"])


def leaf() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of one argument."""
    return st.fixed_dictionaries({}, optional={"type": TYPES, "x-mcp-header": TOKENS})


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(NAMES, inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES,
            "x-mcp-header": TOKENS,
            "properties": named,
            "$defs": named,
            "default": inner,
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "not": inner,
        },
    )


SCHEMAS = st.recursive(leaf(), _around, max_leaves=6)


@given(SCHEMAS)
def test_annotations_are_found_and_judged_as_by_the_sdk(schema: Any) -> None:
    assert header_fault(schema) == sdk.find_invalid_x_mcp_header(schema)
    assert header_map(schema) == sdk.x_mcp_header_map(schema)


@pytest.mark.parametrize("tokens", [("Region", "region"), ("region", "Region")])
def test_tokens_are_one_whatever_their_case(tokens: tuple[str, str]) -> None:
    named = {token: {"type": "string", "x-mcp-header": token} for token in tokens}
    fault = header_fault({"properties": named})
    assert fault == sdk.find_invalid_x_mcp_header({"properties": named})
    assert fault is not None
    assert "duplicates property" in fault


@pytest.mark.parametrize("schema", [None, True, [], "text", {}], ids=repr)
def test_what_is_no_schema_has_no_annotations(schema: Any) -> None:
    assert header_fault(schema) is None
    assert header_map(schema) == {}
