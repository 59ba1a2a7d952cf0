"""The SDK's own transports over stdio, SSE and Streamable HTTP, as they are."""

from __future__ import annotations

from mcp.client.stdio import (
    DEFAULT_INHERITED_ENV_VARS,
    StdioServerParameters,
    get_default_environment,
    stdio_client,
)
from mcp.server.stdio import stdio_server

__all__ = [
    "DEFAULT_INHERITED_ENV_VARS",
    "StdioServerParameters",
    "get_default_environment",
    "stdio_client",
    "stdio_server",
]
