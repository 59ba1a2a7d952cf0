"""JSON-RPC errors and their codes: `ErrorData`, as it is sent, and `MCPError`, as it is raised.

The codes are those of JSON-RPC 2.0 and of the MCP specification (2026-07-28, basic, "Error Codes").
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from mcp_toolset._records import dataclass

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
    """The error of an answer: a code, one sentence, and data that a program can read.

    Attributes:
        code: One of the codes of this module, or one of the peer's own.
        message: What failed, in one sentence.
        data: Any JSON value; `None` is left out of the message.
    """

    code: int
    message: str
    data: Any = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            wire["data"] = self.data
        return wire


class MCPError(Exception):
    """A JSON-RPC error, raised where the cause is found; the door of the request sends it.

    Attributes:
        error: The error as it is sent.
    """

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
        """Refuse to send a request of `method`."""
        super().__init__(
            INVALID_REQUEST, f"{method!r} cannot be sent: this client takes no requests of a server here"
        )
        self.method = method


class RequestTimedOut(MCPError):
    """No answer came within the time given with a request; the peer was told."""
