"""Servers of the SDK in this process: `sdk_answers` has requests answered by one, tool calls past its runner.

On a wire the SDK reads each request twice and each result twice, because neither side may trust the other.
Within one process the request was made here, from the parameters of a call that was checked, and a typed
result is a result already: `tool_handler` runs the handler of a tool on the caller's own context.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import mcp_types as types
from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from mcp_toolset import sdk
from mcp_toolset.calls.decision import tracing
from mcp_toolset.protocol.dispatch import DispatchContext, OnRequest, Params
from mcp_toolset.protocol.json_rpc import INVALID_RESULT, MCPError, NoBackChannelError
from mcp_toolset.protocol.methods import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LATEST_MODERN_VERSION,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_toolset.protocol.server_machine import unsupported_version
from mcp_toolset.tools.hidden_text import in_log

_METHOD: Final = "tools/call"
_log = logging.getLogger("mcp_toolset.upstream")

Request = sdk.ServerRequestContext[Any, Any]
Answer = Callable[[Request], Awaitable[dict[str, Any]]]


def _connections() -> Callable[[Mapping[str, Any]], sdk.Connection]:
    """Makes connections of modern requests; an envelope like the last one, being slow, is not read again."""
    known: sdk.Connection | None = None
    read: tuple[Any, ...] = ()

    def connection(meta: Mapping[str, Any]) -> sdk.Connection:
        nonlocal known, read
        envelope = (
            meta.get(PROTOCOL_VERSION_META_KEY, LATEST_MODERN_VERSION),
            meta.get(CLIENT_INFO_META_KEY),
            meta.get(CLIENT_CAPABILITIES_META_KEY),
        )
        if known is None or envelope != read:
            if envelope[0] not in MODERN_PROTOCOL_VERSIONS:
                raise unsupported_version(envelope[0], MODERN_PROTOCOL_VERSIONS)
            known, read = sdk.Connection.from_envelope(*envelope), envelope
        fresh = sdk.Connection(
            known.outbound, protocol_version=known.protocol_version, client_params=known.client_params
        )
        fresh.client_capabilities = known.client_capabilities
        fresh.initialized.set()
        return fresh

    return connection


def sdk_answers(server: sdk.Server[Any], state: Any) -> OnRequest:
    """Answer modern requests by a server of the SDK, for callers of this process, who are trusted.

    The connection of a request is only unwound if it holds anything.
    """
    connection_of = _connections()

    async def answer(context: DispatchContext, method: str, params: Params) -> dict[str, Any]:
        connection = connection_of((params or {}).get("_meta") or {})
        quick = tool_handler(server, method)
        try:
            if quick is not None:
                return await quick(_request_of(context, connection, method, params, state))
            runner = sdk.ServerRunner(server, connection, state)
            return await sdk.from_sdk(runner.on_request(context, method, params))  # pyright: ignore[reportArgumentType]
        finally:
            if sdk.holds_cleanup(connection):
                await sdk.aclose_shielded(connection)

    return answer


def _request_of(context: Any, connection: sdk.Connection, method: str, params: Params, state: Any) -> Request:
    metadata = context.message_metadata
    raw = params.get("_meta") if params else None
    meta = cast("types.RequestParamsMeta", raw) if isinstance(raw, dict) else None
    return sdk.ServerRequestContext(
        session=sdk.ServerSession(context, connection, request_meta=meta),  # pyright: ignore[reportArgumentType]
        lifespan_context=state,
        protocol_version=connection.protocol_version,
        method=method,
        params=params,
        request_id=context.request_id,
        meta=meta,
        request=metadata.request_context if isinstance(metadata, sdk.ServerMessageMetadata) else None,
    )


def no_back_channel(method: str) -> sdk.SdkError:
    return sdk.theirs(NoBackChannelError(method))


def tool_handler(server: sdk.Server[Any], method: str) -> Answer | None:
    """The function that answers `tools/call` by the handler of a server alone.

    `None` for other methods, for a server without tools, and for one with middleware of its own, which
    wants to see requests. A program that collects traces gets the span that the SDK would have made.
    """
    if method != _METHOD or not sdk.only_traces(server.middleware):
        return None
    entry = server.get_request_handler(method)
    if entry is None:
        return None
    answer = partial(_answered, entry.params_type, entry.handler)
    return sdk.in_server_span(answer) if server.middleware and tracing() else answer


async def _answered(
    model: type[BaseModel], handler: Callable[[Request, Any], Awaitable[Any]], request: Request
) -> dict[str, Any]:
    params = model.model_validate(request.params, by_name=False)
    if isinstance(params, types.RequestParams):
        request.meta = params.meta
    try:
        result = await handler(request, params)
    except sdk.SdkError as fault:
        raise sdk.ours(fault) from None
    if type(result) is types.CallToolResult:
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return _other(result, request.protocol_version)


def _other(result: object, version: str) -> dict[str, Any]:
    """A result that is no plain tool result: an error, a question, or what the handler wrote itself."""
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


def answers_of(server: Any, state: Any) -> tuple[OnRequest, Callable[[str], Exception]]:
    """The answers to requests of an open server, and the errors for what would ask its client."""
    return sdk_answers(server, state), no_back_channel


NAME, PART = "sdk", answers_of
