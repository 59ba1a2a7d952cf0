"""What can still be told of a message that is too long or broken: which request it is, or answers."""

from __future__ import annotations

import re
from typing import Final, Literal

from mcp_toolset.protocol.json_rpc import RequestId

_HEAD: Final = 256
_TAIL: Final = 160
_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID: Final = rb'"id"\s*:\s*(\d{1,15}|"[ !#-\[\]-~]{1,100}")'
_ID_FIRST: Final = re.compile(
    rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,\s*(?:" + _VERSION + rb"\s*,\s*)?"
    rb'"(result|error|method)"'
)
_ANSWER: Final = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb'\s*,\s*)?"(result|error)"')
_ID_LAST: Final = re.compile(_ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*$")

Kind = Literal["request", "answer"]


def traced(line: bytes, *, whole: bool) -> tuple[Kind, RequestId] | None:
    """What a line that could not be read was, and its id, if its start or its end says so.

    Args:
        line: The line, or its first bytes.
        whole: Whether `line` goes to the end.
    """
    head = line[:_HEAD]
    first = _ID_FIRST.match(head)
    if first is not None:
        return "request" if first[2] == b"method" else "answer", _id(first[1])
    last = _ID_LAST.search(line[-_TAIL:]) if whole and _ANSWER.match(head) else None
    return None if last is None else ("answer", _id(last[1]))


def _id(written: bytes) -> RequestId:
    return written[1:-1].decode() if written.startswith(b'"') else int(written)
