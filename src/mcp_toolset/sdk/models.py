"""The SDK's types that other rooms use: contexts, dispatchers, messages, subscription events, errors."""

from __future__ import annotations

from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext as SdkTransportContext

__all__ = [
    "CallNext",
    "Connection",
    "HandlerResult",
    "InMemorySubscriptionBus",
    "InitializationOptions",
    "ListenHandler",
    "NotificationOptions",
    "SdkTransportContext",
    "NotifyOnlyOutbound",
    "PromptsListChanged",
    "ResourceUpdated",
    "ResourcesListChanged",
    "Server",
    "ServerEvent",
    "ServerMessageMetadata",
    "ServerMiddleware",
    "ServerRequestContext",
    "ServerSession",
    "SessionMessage",
    "ToolsListChanged",
]
