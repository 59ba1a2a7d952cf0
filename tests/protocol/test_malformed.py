"""What is malformed about a request is told to its client: an odd `_meta`, and text that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import INVALID_PARAMS

from mcp_toolset.protocol.eras import MetaCheck
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.protocol.unreadable import traced

PREFIX = "io.modelcontextprotocol"
USUAL: list[Any] = [
    None,
    {},
    {"progressToken": 5},
    {"progressToken": "t", "example.com/x": [1]},
    {f"{PREFIX}/clientCapabilities": {"sampling": {}, "roots": None}, f"{PREFIX}/logLevel": "debug"},
    {f"{PREFIX}/clientInfo": {"name": "a", "version": "1", "title": "A"}},
]
ODD: list[Any] = [
    [],
    "text",
    {"progressToken": None},
    {"progressToken": 1.5},
    {"progressToken": []},
]
ODD_ENVELOPES: list[dict[str, Any]] = [
    {f"{PREFIX}/clientCapabilities": []},
    {f"{PREFIX}/clientCapabilities": None},
    {f"{PREFIX}/clientCapabilities": {"sampling": 5}},
    {f"{PREFIX}/clientInfo": "a"},
    {f"{PREFIX}/clientInfo": {"version": "1"}},
    {f"{PREFIX}/logLevel": "loud"},
    {f"{PREFIX}/logLevel": []},
]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("meta", USUAL, ids=repr)
def test_a_usual_meta_is_taken(meta: Any, version: str) -> None:
    MetaCheck().check({"_meta": meta}, version)
    MetaCheck().check({}, version)
    MetaCheck().check(None, version)


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("meta", ODD, ids=repr)
def test_an_odd_meta_is_refused_in_both_eras(meta: Any, version: str) -> None:
    with pytest.raises(MCPError, match="_meta") as refused:
        MetaCheck().check({"_meta": meta}, version)
    assert refused.value.code == INVALID_PARAMS


@pytest.mark.parametrize("meta", ODD_ENVELOPES, ids=repr)
def test_an_odd_envelope_is_refused_where_requests_have_one(meta: Any) -> None:
    with pytest.raises(MCPError, match=PREFIX if "sampling" not in repr(meta) else "'sampling'") as refused:
        MetaCheck().check({"_meta": meta}, "2026-07-28")
    assert refused.value.code == INVALID_PARAMS
    MetaCheck().check({"_meta": meta}, "2025-11-25")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call', ("request", 7)),
        (b'{"jsonrpc":"2.0","id":"a-1","method":"tools/call', ("request", "a-1")),
        (b'{"id": "4b9c 1", "jsonrpc": "2.0", "result": {"x": \xff', ("answer", "4b9c 1")),
        (b'{"jsonrpc":"2.0","result":{"x":\xff},"id":"a-1"}', ("answer", "a-1")),
        (b'{"jsonrpc":"2.0","id":"a\\"b","method":"x', None),
        (b'{"jsonrpc":"2.0","id":"\xff","method":"x', None),
        (b'{"jsonrpc":"2.0","id":"","method":"x', None),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":"a"', None),
    ],
    ids=repr,
)
def test_the_id_of_what_cannot_be_read_is_found_whether_it_is_a_number_or_a_text(
    line: bytes, found: object
) -> None:
    assert traced(line, whole=True) == found
