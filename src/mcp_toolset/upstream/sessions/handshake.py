"""`negotiate`: sends the requests of a `ClientHandshake` over one connection, until the revision is settled.

`UpstreamSession` calls it first on each connection. What is sent, and what the answers mean, is decided in
`protocol.handshake`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio

from mcp_toolset.config import ProtocolRule
from mcp_toolset.protocol.dispatch import CallOptions, Dispatcher
from mcp_toolset.protocol.handshake import DISCOVER, ClientHandshake, HandshakeRequest, Introduction
from mcp_toolset.protocol.http_headers import routing_headers
from mcp_toolset.protocol.json_rpc import MCPError

CLIENT_INFO: Final[Mapping[str, Any]] = {"name": "mcp-toolset", "version": "0.1.0"}
"""What the bridge says that it is."""

PROBE_DEADLINE: Final = 10.0
"""Seconds that a silent server may leave `server/discover` unanswered before the handshake is tried."""

_INITIALIZED: Final = "notifications/initialized"


async def negotiate(
    dispatcher: Dispatcher,
    closed: anyio.Event,
    declares: Mapping[str, Any],
    *,
    protocol: ProtocolRule = "auto",
    known_legacy: bool = False,
) -> Introduction:
    """Settle the revision with a server; returns what the server says of itself.

    Args:
        dispatcher: The connection, on which nothing has been said yet.
        closed: Set when it has ended.
        declares: What clients can be asked for.
        protocol: The era that the mount asks for.
        known_legacy: Whether an earlier connection to the server spoke a legacy revision.

    Raises:
        MCPError: the server refused what it was offered, or the connection broke.
    """
    handshake = ClientHandshake(CLIENT_INFO, declares, eras=protocol, known_legacy=known_legacy)
    while (request := handshake.request) is not None:
        try:
            result = await dispatcher.send_raw_request(request.method, request.params, _options(request))
        except MCPError as fault:
            if closed.is_set():
                raise
            handshake.refused(fault)
        else:
            handshake.answered(result)
    assert handshake.server is not None, "a handshake without a next request is settled"
    server = handshake.server
    if not server.is_modern:
        headers = routing_headers(server.protocol_version, _INITIALIZED, {}, {})
        await dispatcher.notify(_INITIALIZED, None, {"headers": headers})
    return server


def _options(request: HandshakeRequest) -> CallOptions:
    """How a request is sent: one of a handshake is not cancelled, and a probe has its deadline."""
    opts: CallOptions = {"cancel_on_abandon": False}
    if request.headers:
        opts["headers"] = dict(request.headers)
    if request.method == DISCOVER:
        opts["timeout"] = PROBE_DEADLINE
    return opts
