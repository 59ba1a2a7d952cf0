"""JSON-RPC errors and their codes: `ErrorData`, as it is sent, and `MCPError`, as it is raised.

The codes are those of JSON-RPC 2.0 and of the MCP specification (2026-07-28, basic, "Error Codes").
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from pydantic_core import ValidationError

from mcp_toolset._records import dataclass
from mcp_toolset.errors import (
    CallError,
    ClientCapabilityError,
    InvalidOutputError,
    ToolsetError,
    UpstreamError,
    UpstreamProtocolError,
    innermost,
)

RequestId: TypeAlias = int | str
"""The id of a request; unique among the requests in flight of one sender (basic, "Requests")."""

ProgressToken: TypeAlias = int | str
"""What a sender gives with a request to have progress reported (basic/utilities/progress)."""

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
"""What the legacy era says of a resource that is not there (2025-11-25, server/resources); now -32602."""

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
"""What a dispatcher says of a connection that has ended, as the SDK's does."""

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
    (UpstreamProtocolError, lambda fault: fault.code, str, lambda fault, _: fault.data),
    (
        ClientCapabilityError,
        _always(MISSING_REQUIRED_CLIENT_CAPABILITY),
        str,
        lambda fault, _: required(fault.capability),
    ),
    (InvalidOutputError, _always(INTERNAL_ERROR), str, _no_data),
    (CallError, _always(INVALID_PARAMS), str, _no_data),
    (ToolsetError, _always(INTERNAL_ERROR), str, _no_data),
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


def refusal(raised: ToolsetError) -> MCPError:
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
"""How the error begins that stands for the answer to a request over HTTP that got none."""

NOT_SENT: Final = "no HTTP connection"
"""How it begins if the request was not even sent."""

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
    """What it means for a call that its request over HTTP failed."""
    return UNREACHED if fault.message.startswith(NOT_SENT) else LOST


def told_briefly(message: str) -> str:
    """An error's message without the report of the SDK's parser, which shows the answer and all models."""
    return UNREADABLE if message.startswith(_UNPARSED) else message


def reason_of(fault: BaseException) -> str:
    """Why a connection ended or could not be made, in one line."""
    fault = innermost(fault)
    if isinstance(fault, MCPError) and says_ended(fault) and fault.__cause__ is not None:
        # What was waited for has ended with the connection; its cause is what ended that.
        fault = innermost(fault.__cause__)
    if isinstance(fault, UpstreamError):
        return ENDED if fault.reason == LOST else fault.reason
    if isinstance(fault, ValidationError):
        return "its answer does not follow the protocol"
    text = told_briefly(str(fault)).splitlines()[0] if str(fault) else type(fault).__name__
    return text if isinstance(fault, MCPError | ToolsetError) else f"{type(fault).__name__}: {text}"
