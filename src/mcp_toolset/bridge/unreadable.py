"""What can still be told of a message that is too long or broken: which request it is, or answers (F9)."""

from __future__ import annotations

import re
from typing import Final, Literal

_HEAD: Final = 256
_TAIL: Final = 64
_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID_FIRST: Final = re.compile(
    rb"\s*\{\s*(?:" + _VERSION + rb'\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,\s*(?:' + _VERSION + rb"\s*,\s*)?"
    rb'"(result|error|method)"'
)
_ANSWER: Final = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb'\s*,\s*)?"(result|error)"')
_ID_LAST: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*(?:,\s*' + _VERSION + rb"\s*)?\}\s*$")

Kind = Literal["request", "answer"]


def traced(line: bytes, *, whole: bool) -> tuple[Kind, int] | None:
    """What a line that could not be read was, and its id, if its start or its end says so.

    Args:
        line: The line, or its first bytes.
        whole: Whether `line` goes to the end.
    """
    head = line[:_HEAD]
    first = _ID_FIRST.match(head)
    if first is not None:
        return "request" if first[2] == b"method" else "answer", int(first[1])
    last = _ID_LAST.search(line[-_TAIL:]) if whole and _ANSWER.match(head) else None
    return None if last is None else ("answer", int(last[1]))
