"""The headers of modern requests over HTTP: routing, and arguments that a schema puts into headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    InboundLadderRejection,
    InboundModernRoute,
    classify_inbound_request,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

__all__ = [
    "ERROR_CODE_HTTP_STATUS",
    "InboundLadderRejection",
    "InboundModernRoute",
    "call_route",
    "classify_inbound_request",
    "header_fault",
    "header_map",
    "routing_headers",
]


def header_fault(schema: Mapping[str, Any]) -> str | None:
    """What is wrong with the `x-mcp-header` annotations of an input schema."""
    return find_invalid_x_mcp_header(dict(schema))


def header_map(schema: Mapping[str, Any]) -> Mapping[tuple[str, ...], str]:
    """The `x-mcp-header` annotations of an input schema, by the path of the argument."""
    return x_mcp_header_map(dict(schema))


def routing_headers(
    version: str,
    method: str,
    params: Mapping[str, Any],
    headers: Mapping[tuple[str, ...], str],
) -> dict[str, str]:
    """The HTTP headers that must agree with a modern request's body (basic/transports)."""
    made = {MCP_PROTOCOL_VERSION_HEADER: version}
    if version not in MODERN_PROTOCOL_VERSIONS:
        return made
    made[MCP_METHOD_HEADER] = method
    name = params.get(NAME_BEARING_METHODS.get(method, ""))
    if isinstance(name, str):
        made[MCP_NAME_HEADER] = encode_header_value(name)
    if headers:
        made.update(mcp_param_headers(dict(headers), params.get("arguments") or {}))
    return made


def call_route(
    request: Mapping[str, Any], headers: Iterable[tuple[bytes, bytes]]
) -> InboundModernRoute | None:
    """How a modern request that came over HTTP is routed; `None` if the SDK would refuse it."""
    folded = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name.startswith(b"mcp-")
    }
    route = classify_inbound_request(request, headers=folded)
    return route if isinstance(route, InboundModernRoute) else None
