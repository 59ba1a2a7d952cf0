"""JSON-RPC errors on their way between the SDK and the bridge: `ours` and `theirs` turn one into the other.

The SDK raises and understands its own exception class alone. Whatever calls the SDK, and whatever the SDK
calls, converts at that place.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from mcp.shared.exceptions import MCPError as SdkError
from mcp.shared.exceptions import NoBackChannelError as SdkNoBackChannelError
from mcp_types import ErrorData as SdkErrorData

from mcp_toolset.protocol.json_rpc import ErrorData, MCPError, NoBackChannelError

T = TypeVar("T")

__all__ = ["SdkError", "from_sdk", "ours", "sdk_error_data", "theirs", "to_sdk"]


def ours(fault: SdkError) -> MCPError:
    """The exception of the bridge for one of the SDK."""
    if isinstance(fault, SdkNoBackChannelError):
        return NoBackChannelError(fault.method)
    return MCPError(fault.code, fault.message, fault.data)


def theirs(fault: MCPError) -> SdkError:
    """The exception of the SDK for one of the bridge."""
    if isinstance(fault, NoBackChannelError):
        return SdkNoBackChannelError(fault.method)
    return SdkError(fault.code, fault.message, fault.data)


def sdk_error_data(fault: ErrorData) -> SdkErrorData:
    return SdkErrorData(code=fault.code, message=fault.message, data=fault.data)


async def from_sdk(call: Awaitable[T]) -> T:
    """What a call of the SDK returns; an error that it raises is one of the bridge."""
    try:
        return await call
    except SdkError as fault:
        raise ours(fault) from None


async def to_sdk(call: Awaitable[T]) -> T:
    """What a call of the bridge returns; an error that it raises is one of the SDK."""
    try:
        return await call
    except MCPError as fault:
        raise theirs(fault) from None
