"""The SDK's types that other rooms use: its server, contexts of requests, and messages."""

from __future__ import annotations

from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext as SdkTransportContext

__all__ = [
    "CallNext",
    "Connection",
    "HandlerResult",
    "InitializationOptions",
    "NotificationOptions",
    "SdkTransportContext",
    "Server",
    "ServerMessageMetadata",
    "ServerMiddleware",
    "ServerRequestContext",
    "ServerSession",
    "SessionMessage",
]
