"""JSON-RPC: errors and their codes, messages as bytes and as plain dictionaries, and the checks of them.

`ErrorData` is an error as it is sent, `MCPError` as it is raised. The codes are those of JSON-RPC 2.0 and of
the MCP specification (2026-07-28, basic, "Error Codes").
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias, cast

from pydantic_core import ValidationError, from_json, to_json

from mcp_toolset import errors
from mcp_toolset._records import dataclass

RequestId: TypeAlias = int | str
"""The id of a request; unique among the requests in flight of one sender (basic, "Requests")."""

ProgressToken: TypeAlias = int | str
"""A token that a sender gives with a request to have progress reported (basic/utilities/progress)."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

CONNECTION_CLOSED: Final = -32000
"""Made up by the waiting side when the connection ends before the answer; never sent."""

REQUEST_TIMEOUT: Final = -32001
"""Made up by the waiting side when no answer comes in time; never sent."""

HEADER_MISMATCH: Final = -32020
"""The HTTP headers of a request are missing, malformed, or differ from its body (since 2026-07-28)."""

MISSING_REQUIRED_CLIENT_CAPABILITY: Final = -32021
"""A request needs a capability that its client did not declare (since 2026-07-28)."""

UNSUPPORTED_PROTOCOL_VERSION: Final = -32022
"""The server does not speak the revision of a request (since 2026-07-28)."""

URL_ELICITATION_REQUIRED: Final = -32042
"""A user has to visit a page first (2025-11-25, client/elicitation, "URL Elicitation Required Error")."""

REQUEST_CANCELLED: Final = -32800
"""The answer to a legacy request over HTTP that its client has cancelled: its POST ends with one."""


@dataclass(frozen=True, slots=True)
class ErrorData:
    """The error of an answer: a code, one sentence, and data that a program can read."""

    code: int  # one of the codes of this module, or one of the peer's own
    message: str  # what failed, in one sentence
    data: Any = None  # any JSON value; `None` is left out of the message

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            wire["data"] = self.data
        return wire


class MCPError(Exception):
    """A JSON-RPC error, raised where the cause is found; the door of the request sends it."""

    error: ErrorData

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.error = ErrorData(code, message, data)

    @classmethod
    def from_error_data(cls, error: ErrorData) -> MCPError:
        """The exception for an error that came with an answer, or stands in a table."""
        return MCPError(error.code, error.message, error.data)

    @property
    def code(self) -> int:
        return self.error.code

    @property
    def message(self) -> str:
        return self.error.message

    @property
    def data(self) -> Any:
        return self.error.data

    def __str__(self) -> str:
        return self.message


class NoBackChannelError(MCPError):
    """A request cannot be sent to the client: its connection carries none in this direction."""

    def __init__(self, method: str) -> None:
        super().__init__(
            INVALID_REQUEST, f"{method!r} cannot be sent: this client takes no requests of a server here"
        )
        self.method = method


class RequestTimedOut(MCPError):
    """No answer came within the time given with a request; the peer was told."""


RESOURCE_NOT_FOUND: Final = -32002
"""The legacy code for a resource that is not there (2025-11-25, server/resources); now it is -32602."""

INVALID_REQUEST_PARAMS: Final = ErrorData(code=INVALID_PARAMS, message="Invalid request parameters", data="")
NO_MESSAGE: Final = ErrorData(
    code=INVALID_REQUEST,
    message='Invalid request: a request is one object with "jsonrpc": "2.0", a method that is a string, and '
    "params that are an object, if it has any",
)
INTERNAL: Final = ErrorData(code=INTERNAL_ERROR, message="Internal server error")
"""All that a client is told of an unexpected exception."""

INVALID_RESULT: Final = ErrorData(code=INTERNAL_ERROR, message="Handler returned an invalid result")
UNWRITTEN: Final = ErrorData(code=INTERNAL_ERROR, message="the result has no JSON form")
CLOSED: Final = ErrorData(code=CONNECTION_CLOSED, message="Connection closed")
"""The error of a dispatcher for a connection that has ended, the same as the SDK's."""

MODERN_STATUSES: Final[Mapping[int, int]] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""The HTTP status of an answer by the code of its error, from 2026-07-28 on; 200 for every other code."""

LEGACY_STATUSES: Final[Mapping[int, int]] = {}
"""The same in legacy sessions, where every answer has the status 200."""

_log = logging.getLogger("mcp_toolset.wire")

Code = Callable[[Any], int]
Message = Callable[[Any], str]
Data = Callable[[Any, str | None], Any]


def required(capability: str) -> dict[str, Any]:
    """The data of error -32021: the capability that is missing, in the form of a declaration."""
    name, _, part = capability.partition(".")
    return {"requiredCapabilities": {name: {part: {}} if part else {}}}


def _always(code: int) -> Code:
    return lambda _: code


def _no_data(_: Any, uri: str | None) -> None:
    return None


def _about(_: Any, uri: str | None) -> dict[str, str] | None:
    return None if uri is None else {"uri": uri}


def _first_argument(fault: Any) -> str:
    # The text of a `KeyError` has quotes around it.
    return str(fault.args[0]) if fault.args else "Not found"


ROWS: Final[tuple[tuple[type[Exception], Code, Message, Data], ...]] = (
    (LookupError, _always(INVALID_PARAMS), _first_argument, _about),
    (errors.UpstreamProtocolError, lambda fault: fault.code, str, lambda fault, _: fault.data),
    (
        errors.ClientCapabilityError,
        _always(MISSING_REQUIRED_CLIENT_CAPABILITY),
        str,
        lambda fault, _: required(fault.capability),
    ),
    (errors.InvalidOutputError, _always(INTERNAL_ERROR), str, _no_data),
    (errors.CallError, _always(INVALID_PARAMS), str, _no_data),
    (errors.ToolsetError, _always(INTERNAL_ERROR), str, _no_data),
)
"""Exception, code, message, data; the first row that fits counts. Subclasses stand before their bases."""


def error_of(raised: Exception, *, uri: str | None = None) -> MCPError | None:
    """The error for what a handler raised on purpose; `None` for what the table does not know."""
    if (foreign := _of_the_sdk(raised)) is not None:
        return MCPError.from_error_data(foreign)
    for kind, code, message, data in ROWS:
        if isinstance(raised, kind):
            return MCPError(code(raised), message(raised), data(raised, uri))
    return None


def _of_the_sdk(raised: BaseException) -> ErrorData | None:
    """The error in an exception of the SDK, which an application's handler may raise.

    The class is told by its name: where nothing of the SDK is loaded, none of its exceptions is raised.
    """
    for kind in type(raised).__mro__:
        if kind.__name__ == "MCPError" and kind.__module__ == "mcp.shared.exceptions":
            fault: Any = raised
            return ErrorData(fault.code, fault.message, fault.data)
    return None


def refusal(raised: errors.ToolsetError) -> MCPError:
    """The error for an exception of this package, all of which the table knows."""
    return error_of(raised) or MCPError.from_error_data(INTERNAL)


def in_era(error: MCPError, *, modern: bool, about_resource: bool) -> MCPError:
    """The error as the client's era has it: a missing resource has another code in each.

    A server of 2026-07-28 names the resource that it has not found in `data.uri`.
    """
    data: object = error.data
    code = error.code
    if modern and code == RESOURCE_NOT_FOUND:
        code = INVALID_PARAMS
    elif not modern and about_resource and code == INVALID_PARAMS:
        code = RESOURCE_NOT_FOUND if isinstance(data, dict) and "uri" in data else code
    return error if code == error.code else MCPError(code, error.message, cast("Any", data))


def error_for_peer(raised: BaseException) -> ErrorData:
    """The error for an exception that left a handler: its own, or only that there was one."""
    if isinstance(raised, MCPError):
        return raised.error
    if isinstance(raised, ValidationError):
        return INVALID_REQUEST_PARAMS
    if (foreign := _of_the_sdk(raised)) is not None:
        return foreign
    _log.error("a request handler raised", exc_info=raised)
    return INTERNAL


ENDED: Final = "the connection was lost"
LOST: Final = f"{ENDED} during the call; it may have run and was not repeated"

FAILED_ON_ITS_WAY: Final = "HTTP request failed"
"""The beginning of the error that stands for the answer to a request over HTTP that got none."""

NOT_SENT: Final = "no HTTP connection"
"""The beginning of that error if the request was not even sent."""

UNREACHED: Final = "the server cannot be reached, so the call did not run"

UNREADABLE: Final = "its answer cannot be read"
_UNPARSED: Final = ("Failed to parse JSON response", "Failed to parse SSE message")
_SESSION_GONE: Final = "Session terminated"
_BROKE_OFF: Final = ("SSE stream", FAILED_ON_ITS_WAY, NOT_SENT)


def says_ended(fault: MCPError) -> bool:
    """True if the SDK made this error up because the connection has ended."""
    closed = fault.code == CLOSED.code and fault.message == CLOSED.message and fault.data is None
    return closed or fault.message == _SESSION_GONE


def says_broke_off(fault: MCPError) -> bool:
    """True if this error was made up here because one request over HTTP failed, or its answer broke off."""
    return fault.code == CONNECTION_CLOSED and fault.data is None and fault.message.startswith(_BROKE_OFF)


def lost_by(fault: MCPError) -> str:
    """The consequence for a call if its request over HTTP failed."""
    return UNREACHED if fault.message.startswith(NOT_SENT) else LOST


def told_briefly(message: str) -> str:
    """An error's message without the report of the SDK's parser, which shows the answer and all models."""
    return UNREADABLE if message.startswith(_UNPARSED) else message


def reason_of(fault: BaseException) -> str:
    """Why a connection ended or could not be made, in one line."""
    fault = errors.innermost(fault)
    if isinstance(fault, MCPError) and says_ended(fault) and fault.__cause__ is not None:
        # What was waited for has ended with the connection; its cause is what ended that.
        fault = errors.innermost(fault.__cause__)
    if isinstance(fault, errors.UpstreamError):
        return ENDED if fault.reason == LOST else fault.reason
    if isinstance(fault, ValidationError):
        return "its answer does not follow the protocol"
    text = told_briefly(str(fault)).splitlines()[0] if str(fault) else type(fault).__name__
    return text if isinstance(fault, MCPError | errors.ToolsetError) else f"{type(fault).__name__}: {text}"


orjson: Any = import_module("orjson") if find_spec("orjson") else None

_PLAIN_ONLY: Final[int] = (
    0
    if orjson is None
    else orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
)

_LONG: Final = 24
"""Characters of an id from which it is not looked at as a number."""

MAX_WEIGHT: Final = 1_000_000
"""The weight that the values of a message may have: an object or array 4, any other value or key 1; 20 digits
of a longer number 2 more, 100 of them 50 more.

To read a message and look through its values takes a fifth of a second of the event loop then. Megabytes of
text weigh next to nothing.
"""

MAX_ASKED: Final = 250_000
"""The same for a message of a client, whose values are held against schemas, too."""

MAX_CODE: Final = 2**53 - 1
"""The largest integer that all JSON readers read exactly; a larger code becomes that of an internal error."""

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
    """An upper bound of the weight, with texts counted as values: to part them takes five times as long."""
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
    """The key to look an id up by: `"7"` and 7 are one, since some peers send a number back as text."""
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
