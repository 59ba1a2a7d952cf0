"""How the failure of a connection to an upstream server is recognised in an error, and how it is said."""

from __future__ import annotations

from typing import Final

from pydantic_core import ValidationError

from mcp_toolset.errors import ToolsetError, UpstreamError, innermost
from mcp_toolset.protocol.errors import CLOSED
from mcp_toolset.protocol.json_rpc import CONNECTION_CLOSED, MCPError

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
    """Whether the SDK made this error up because the connection has ended."""
    closed = fault.code == CLOSED.code and fault.message == CLOSED.message and fault.data is None
    return closed or fault.message == _SESSION_GONE


def says_broke_off(fault: MCPError) -> bool:
    """Whether this error was made up here because one request over HTTP failed, or its answer broke off."""
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
