"""JSON-RPC messages as bytes and as plain dictionaries; the checks that the SDK's models would make."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, cast

from pydantic_core import from_json, to_json

from mcp_toolset.protocol.json_rpc import (
    CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    PARSE_ERROR,
    MCPError,
    ProgressToken,
    RequestId,
)

orjson: Any = import_module("orjson") if find_spec("orjson") else None

_PLAIN_ONLY: Final[int] = (
    0
    if orjson is None
    else orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
)

_LONG: Final = 24
"""Characters of an id from which it is not looked at as a number."""

MAX_WEIGHT: Final = 1_000_000
"""What the values of one message may weigh: an object or array 4, any other value or key 1; 20 digits of a
longer number 2 more, 100 of them 50 more.

To read a message and look through its values takes a fifth of a second of the event loop then. Megabytes of
text weigh next to nothing.
"""

MAX_ASKED: Final = 250_000
"""The same for a message of a client, whose values are held against schemas, too."""

MAX_CODE: Final = 2**53 - 1
"""What every JSON reader takes for an exact integer; a code beyond it becomes that of an internal error."""

MAX_ERROR: Final = 64 * 1024
"""Characters of the message of an error that are kept: it is scrubbed, logged and shown."""

_COLLECTION: Final = 4

LIGHT: Final = MAX_ASKED // _COLLECTION
"""Bytes of a message that cannot weigh too much."""

_MARKS: Final = b",:[{"
_PIECE: Final = 1024 * 1024
_PER_VALUE: Final = 32
_DIGITS: Final = bytes.maketrans(b"0123456789", b"9" * 10)
_SOME: Final = b"9" * 20
_MANY: Final = b"9" * 100
_OTHERS: Final = bytes(set(range(256)) - set(_MARKS))


def strict_object(message: Any) -> dict[str, Any] | None:
    given: object = message
    return message if type(given) is dict and message.get("jsonrpc") == "2.0" else None


class HeavyError(ValueError):
    """A message has more values than are read at once."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"it has more values than can be read at once: {limit:,}, of which an array or object counts "
            f"{_COLLECTION}; send less in one message, or long data as one text"
        )


def json_in(line: bytes, limit: int = MAX_WEIGHT) -> Any:
    """The JSON value of a message; `ValueError` for what has none, `HeavyError` for more than `limit`."""
    check_weight(line, limit)
    # To look up each of thousands of different texts takes more time than to read it.
    return from_json(line, cache_strings="all" if len(line) <= LIGHT else "none")


def check_weight(line: bytes, limit: int = MAX_WEIGHT) -> None:
    """Raise `HeavyError` if the values of a message weigh too much; its texts do not count."""
    if len(line) <= limit // _COLLECTION or _weight_at_most(line) <= limit:
        return
    weight, begin, in_text = 0, 0, False
    while begin < len(line):
        piece = line[begin : begin + _PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            # With the character that is escaped.
            piece = line[begin : begin + _PIECE + 1]
        begin += len(piece)
        if rb"\"" in piece:
            piece = piece.replace(rb"\\", b"").replace(rb"\"", b"")
        parts = piece.split(b'"')
        weight += max(_weight(b"".join(parts[in_text::2])), len(parts) // 2)
        in_text ^= not len(parts) % 2
        if weight > limit:
            raise HeavyError(limit)


def _weight_at_most(line: bytes) -> int:
    """What the values would weigh if what is in texts were values: to part them takes five times as long."""
    pieces = (line[begin : begin + _PIECE] for begin in range(0, len(line), _PIECE))
    return sum(max(_weight(piece), piece.count(b'"') // 2 + 1) for piece in pieces)


def _weight(values: bytes) -> int:
    marks = values.translate(None, _OTHERS)
    digits = values.translate(_DIGITS)
    long = 2 * digits.count(_SOME) + len(_MANY) // 2 * digits.count(_MANY)
    return len(marks) + (_COLLECTION - 1) * (marks.count(b"[") + marks.count(b"{")) + long


def held_by(text: bytes) -> int:
    """About the bytes that JSON takes once it is read, and is kept beside its text."""
    return len(text) + _PER_VALUE * sum(map(text.count, (b",", b":", b"[", b"{")))


def json_of(value: Any) -> bytes:
    """JSON as strict readers want it; `ValueError` for what has none.

    With orjson installed (the extra `fast`) plain values take it: it writes long texts five times as
    fast. What it does not write, or would write otherwise, is left to pydantic's writer. For reading it
    is of no use: it rounds whole numbers of more than 64 bits.
    """
    if orjson is not None:
        try:
            return orjson.dumps(value, option=_PLAIN_ONLY)
        except TypeError:
            pass
    return to_json(value, inf_nan_mode="null")


def request_line(
    number: RequestId, method: str, params: Mapping[str, Any] | None, *, with_progress: bool
) -> bytes:
    """A request; its id is its progress token as well, so that progress finds the way like an answer."""
    if with_progress:
        params = params or {}
        params = {**params, "_meta": {**(params.get("_meta") or {}), "progressToken": number}}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
    if params:
        message["params"] = params
    try:
        return json_of(message)
    except ValueError as fault:
        raise MCPError(INVALID_PARAMS, f"no JSON can carry this: {fault}") from None


def notification(method: str, params: Mapping[str, Any] | None) -> bytes:
    """A notification; `ValueError` if its parameters have no JSON form."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = dict(params)
    return json_of(message)


def result_of(answer: dict[str, Any] | None) -> dict[str, Any]:
    """The result in an answer; `None` stands for an answer that will never come."""
    if answer is None:
        raise MCPError.from_error_data(CLOSED)
    error, found = answer.get("error"), answer.get("result")
    result: Any = found
    if error is None and isinstance(found, dict):
        return result
    if type(error) is dict:
        fields = cast("dict[str, Any]", error)
        code, message = fields.get("code"), fields.get("message")
        if type(code) is int and type(message) is str:
            code = code if -MAX_CODE <= code <= MAX_CODE else INTERNAL_ERROR
            raise MCPError(code, message[:MAX_ERROR], fields.get("data"))
    raise MCPError(PARSE_ERROR, "its answer cannot be read")


def request_key(number: RequestId) -> RequestId:
    """What an id is looked up by: `"7"` and 7 are one, since some peers send a number back as text."""
    # Most ids that are no numbers begin with a letter.
    if type(number) is str and number[:1] <= "9" and len(number) < _LONG:
        return int(number) if number.removeprefix("-").isdecimal() else number
    return number


def progress_token(params: dict[str, Any] | None) -> ProgressToken | None:
    """The token under which a request wants progress reported, if it does."""
    meta: Any = params.get("_meta") if type(params) is dict else None
    found: object = meta
    token: Any = meta.get("progressToken") if type(found) is dict else None
    return token if type(token) in (int, str) else None


def progress_params(
    token: ProgressToken, progress: float, total: float | None, message: str | None
) -> dict[str, Any]:
    """The parameters of `notifications/progress`, without what was not said (basic/utilities/progress)."""
    params: dict[str, Any] = {"progressToken": token, "progress": progress}
    if total is not None:
        params["total"] = total
    if message is not None:
        params["message"] = message
    return params
