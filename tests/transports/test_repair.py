"""Messages that a strict JSON reader refuses, repaired in whole bodies and in streams of events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from mcp_toolset.transports.repair import RepairedEvents, readable, repaired

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
    assert [tool["name"] for tool in from_json(readable(body))["result"]["tools"]] == ["a", "b"]


def test_u44_a_list_is_cut_where_it_is_too_deep_and_anything_else_is_refused() -> None:
    listed = {"result": {"tools": [deep(300), {"name": "b"}]}}
    assert from_json(readable(json.dumps(listed).encode()))["result"]["tools"][1] == {"name": "b"}
    with pytest.raises(ValueError, match="too deep"):
        repaired(json.dumps({"result": {"structuredContent": deep(300)}}).encode())


def test_u44_what_is_no_json_stays_as_it_is() -> None:
    assert readable(b'{"\\ud83d" nonsense') == b'{"\\ud83d" nonsense'


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    )
)
def test_u44_a_good_message_is_the_same_after_a_repair(value: object) -> None:
    body = json.dumps({"result": value}).encode()
    assert json.loads(readable(body)) == json.loads(body)


class Chunks:
    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk


@given(st.lists(st.integers(1, 40), max_size=30), st.booleans())
def test_u44_events_are_repaired_wherever_a_stream_is_cut(sizes: list[int], broken: bool) -> None:
    message = json.dumps(LISTED if broken else {"id": 2, "result": {"text": "ü"}}).encode()
    stream = b"id: 1\r\nevent: message\r\ndata: " + message + b"\r\n\r\n: ping\n\ndata: {}\n\n"
    chunks: list[bytes] = []
    rest = stream
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]

    async def read() -> bytes:
        return b"".join([chunk async for chunk in RepairedEvents(Chunks([*chunks, rest]))])

    told = anyio.run(read)
    data = [line.removeprefix(b"data:") for line in told.splitlines() if line.startswith(b"data:")]
    assert [from_json(each).get("id") for each in data] == [1 if broken else 2, None]
    if not broken:
        assert told == stream
