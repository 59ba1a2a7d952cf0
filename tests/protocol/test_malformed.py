"""What is malformed about a request is told to its client: an odd `_meta`, and text that cannot be read."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from mcp_toolset.protocol.json_rpc import HeavyError, MCPError, check_weight
from mcp_toolset.protocol.server_machine import ServerMachine
from mcp_toolset.transports.line_dispatcher import traced

PREFIX = "io.modelcontextprotocol"
ENVELOPE = {f"{PREFIX}/protocolVersion": "2026-07-28", f"{PREFIX}/clientCapabilities": {}}


def _machine() -> ServerMachine:
    """A legacy connection, whose envelopes are ignored."""
    return ServerMachine("legacy", initialize_accepted=True)


def _modern(meta: dict[str, Any]) -> None:
    """Have a modern request received."""
    ServerMachine("modern").receive_request("tools/list", {"_meta": {**ENVELOPE, **meta}})


def test_u113_a_progress_token_is_short_as_each_report_repeats_it() -> None:
    long = {"progressToken": "t" * 1025}
    for ask in (lambda: _machine().receive_request("tools/list", {"_meta": long}), lambda: _modern(long)):
        with pytest.raises(MCPError, match="may have 1024 characters"):
            ask()
    _modern({"progressToken": "t" * 1024})


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


DENSE = b"[" + b",".join([b'{"role":"user","content":{"type":"text","text":"m"}}'] * 60_000) + b"]"


def test_u113_a_message_of_many_short_texts_is_weighed_without_parting_it_at_each() -> None:
    check_weight(DENSE)
    tracemalloc.start()
    check_weight(DENSE)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Parted, it is a million objects; a piece of a mebibyte is copied a few times.
    assert most < 4 * 2**20


@pytest.mark.parametrize(
    "part",
    [b'{"a":"b,c:[{"},', b'"\\",",",', b'"\\\\",[],', b"[],", b'"a",', b'"k":1,', b"1234567890" * 9 + b","],
)
def test_u113_a_message_weighs_what_its_values_weigh_however_it_is_counted(part: bytes) -> None:
    line = b"[" + part * (1_100_000 // len(part)) + b"1]"
    in_text = False
    weight, before, digits = 0, 0, 0
    for byte in line:
        if in_text:
            in_text = byte != ord(b'"') or before == ord(b"\\")
            before = 0 if before == byte == ord(b"\\") else byte
            continue
        in_text, before = byte == ord(b'"'), 0
        weight += {ord(b"["): 4, ord(b"{"): 4, ord(b","): 1, ord(b":"): 1}.get(byte, 0)
        digits = digits + 1 if 48 <= byte <= 57 else 0
        weight += 2 * (digits > 0 and digits % 20 == 0)
    near = weight // 50
    check_weight(line, max(weight, line.count(b'"') // 2) + near)
    if weight > line.count(b'"'):
        with pytest.raises(HeavyError):
            check_weight(line, weight - near)
