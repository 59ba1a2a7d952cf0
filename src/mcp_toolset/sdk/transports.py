"""The SDK's own transports over stdio, SSE and Streamable HTTP, as they are."""

from __future__ import annotations

from mcp.client.sse import sse_client
from mcp.client.stdio import (
    DEFAULT_INHERITED_ENV_VARS,
    StdioServerParameters,
    get_default_environment,
    stdio_client,
)
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server

__all__ = [
    "DEFAULT_INHERITED_ENV_VARS",
    "StdioServerParameters",
    "get_default_environment",
    "sse_client",
    "stdio_client",
    "stdio_server",
    "streamable_http_client",
]
