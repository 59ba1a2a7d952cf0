"""Messages that a strict JSON reader refuses, and what they are read as."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from mcp_toolset.transports.client_dispatcher import message_in
from mcp_toolset.transports.line_dispatcher import repaired

LISTED = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {"tools": [{"name": "a", "description": "\ud83d"}, {"name": "b"}]},
}


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def test_u44_the_repaired_form_can_be_read_strictly() -> None:
    body = json.dumps(LISTED).encode()
    with pytest.raises(ValueError, match="hex escape"):
        from_json(body)
    message = message_in(body)
    assert message is not None and [tool["name"] for tool in message["result"]["tools"]] == ["a", "b"]


def test_u44_a_list_is_cut_where_it_is_too_deep_and_anything_else_is_refused() -> None:
    listed = {"result": {"tools": [deep(300), {"name": "b"}]}}
    assert repaired(json.dumps(listed).encode())["result"]["tools"][1] == {"name": "b"}
    with pytest.raises(ValueError, match="too deep"):
        repaired(json.dumps({"result": {"structuredContent": deep(300)}}).encode())


def test_u44_what_is_no_json_is_no_message() -> None:
    assert message_in(b'{"\\ud83d" nonsense') is None
    assert message_in(b'{"jsonrpc": "2.0", "result": {"structuredContent": ' + b'{"a":' * 300) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    )
)
def test_u44_a_good_message_is_the_same_after_a_repair(value: object) -> None:
    body = json.dumps({"result": value}).encode()
    assert repaired(body) == json.loads(body)


def test_u118_a_text_without_an_end_behind_what_is_too_deep_is_read_once() -> None:
    line = b'{"result": {"tools": ' + b"[" * 300 + b'"' + b'\\"' * 40_000
    started = time.thread_time()
    assert message_in(line) is None
    assert time.thread_time() - started < 3


@pytest.mark.parametrize("levels", [1_500, 3_000, 90_000])
def test_u118_a_part_that_is_too_deep_for_python_costs_its_entry_alone(levels: int) -> None:
    part = b'{"a}":[' * levels + b'"]\\""' + b"]}" * levels
    listed = b'{"result": {"tools": [{"name": "a", "inputSchema": ' + part + b'}, {"name": "b"}]}}'
    one, other = repaired(listed)["result"]["tools"]
    assert one["name"] == "a" and other == {"name": "b"}
    for refused in (
        b'{"result": {"structuredContent": ' + part + b"}}",
        listed[:-9],
        listed[: len(listed) // 3],
    ):
        with pytest.raises(ValueError, match=r"."):
            repaired(refused)
