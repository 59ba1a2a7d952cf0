"""The SDK's server as the bridge drives it: its runner, the server behind a target, a session's connection.

Private are `ServerSession._connection`, because nothing public tells one legacy connection from another,
`ServerSession._request_outbound`, because nothing public sends a message as it is, and
`MCPServer._lowlevel_server`.
"""

from __future__ import annotations

from typing import Any, cast

from mcp.server.mcpserver import MCPServer
from mcp.server.runner import ServerRunner, aclose_shielded

from mcp_toolset.protocol.dispatch import DispatchContext
from mcp_toolset.sdk.models import Connection, Server, ServerSession

__all__ = [
    "ServerRunner",
    "aclose_shielded",
    "ends_of",
    "holds_cleanup",
    "lowlevel_of",
]


def lowlevel_of(server: object) -> Server[Any] | None:
    """The low-level server behind an in-process target, or `None` if it is no server."""
    if isinstance(server, Server):
        return cast("Server[Any]", server)
    if isinstance(server, MCPServer):
        return cast("Server[Any]", server._lowlevel_server)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    own = getattr(server, "lowlevel", None)
    return cast("Server[Any]", own) if isinstance(own, Server) else None


def ends_of(session: ServerSession) -> tuple[DispatchContext, Connection]:
    """What a request's session sends messages by: on the stream of the request, and outside of it."""
    return session._request_outbound, session._connection  # pyright: ignore[reportPrivateUsage, reportReturnType]


def holds_cleanup(connection: Connection) -> bool:
    """Whether anything was left on a connection to be done at its end."""
    # The standard library has no public way to ask; without the attribute the answer is yes.
    return bool(getattr(connection.exit_stack, "_exit_callbacks", True))
