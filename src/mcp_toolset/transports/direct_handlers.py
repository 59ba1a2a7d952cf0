"""Tool handlers of a server of this process, run on the caller's own context and without a session.

On a wire the SDK reads each request twice and each result twice, because neither side may trust the
other. Within one process the request was made here, from the parameters of a call that was checked,
and a typed result is a result already.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import mcp_types as types
from mcp_types.methods import serialize_server_result
from pydantic import BaseModel, ValidationError

from mcp_toolset.protocol.errors import INVALID_RESULT
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.sdk.errors import SdkError, ours
from mcp_toolset.sdk.models import Server, ServerRequestContext
from mcp_toolset.sdk.tracing import in_server_span, only_traces
from mcp_toolset.tools.text.hidden_text import in_log

_METHOD: Final = "tools/call"
_log = logging.getLogger("mcp_toolset.upstream")

Request = ServerRequestContext[Any, Any]
Answer = Callable[[Request], Awaitable[dict[str, Any]]]


def tool_handler(server: Server[Any], method: str) -> Answer | None:
    """How a server answers `tools/call` by its handler alone.

    `None` for other methods, for a server without tools, and for one with middleware of its own, which
    wants to see requests. Whoever collects traces gets the span that the SDK would have given.
    """
    if method != _METHOD or not only_traces(server.middleware):
        return None
    entry = server.get_request_handler(method)
    if entry is None:
        return None
    answer = partial(_answered, entry.params_type, entry.handler)
    return in_server_span(answer) if server.middleware else answer


async def _answered(
    model: type[BaseModel], handler: Callable[[Request, Any], Awaitable[Any]], request: Request
) -> dict[str, Any]:
    params = model.model_validate(request.params, by_name=False)
    if isinstance(params, types.RequestParams):
        request.meta = params.meta
    try:
        result = await handler(request, params)
    except SdkError as fault:
        raise ours(fault) from None
    if type(result) is types.CallToolResult:
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return _other(result, request.protocol_version)


def _other(result: object, version: str) -> dict[str, Any]:
    """A result that is no plain tool result: an error, a question, or what the handler wrote itself.

    Raises:
        MCPError: it is an error, or none that the revision knows.
    """
    if isinstance(result, types.ErrorData):
        raise MCPError(result.code, result.message, result.data)
    if isinstance(result, BaseModel):
        result = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    if not isinstance(result, Mapping):
        raise TypeError(f"a handler returned {type(result).__name__}, which is no result")
    wire = cast("Mapping[str, Any]", result)
    if wire.get("resultType", "complete") not in types.CORE_RESULT_TYPES:
        # An extension's own shape, which is the extension's to describe.
        return dict(wire)
    try:
        return serialize_server_result(_METHOD, version, wire)
    except ValidationError as fault:
        _log.error("a tool handler returned an invalid result: %s", in_log(fault))
        raise MCPError.from_error_data(INVALID_RESULT) from None
