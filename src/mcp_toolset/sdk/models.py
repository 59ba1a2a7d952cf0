"""The SDK's types that other rooms use: contexts, dispatchers, messages, subscription events, errors."""

from __future__ import annotations

from mcp.client.session import ClientSession
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
from mcp.shared.dispatcher import (
    CallOptions,
    DispatchContext,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    Outbound,
    ProgressFnT,
)
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.shared.transport_context import TransportContext

__all__ = [
    "CallNext",
    "CallOptions",
    "ClientSession",
    "Connection",
    "DispatchContext",
    "Dispatcher",
    "HandlerResult",
    "InMemorySubscriptionBus",
    "InitializationOptions",
    "ListenHandler",
    "MCPError",
    "NoBackChannelError",
    "NotificationOptions",
    "NotifyOnlyOutbound",
    "OnNotify",
    "OnNotifyIntercept",
    "OnRequest",
    "Outbound",
    "ProgressFnT",
    "PromptsListChanged",
    "RequestTimedOut",
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
    "TransportContext",
]


class RequestTimedOut(MCPError):
    """No answer came within the time given with a request; the peer was told."""
