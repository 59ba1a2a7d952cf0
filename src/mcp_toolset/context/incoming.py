"""`RequestContext`: one request or notification as the server sees it, whichever door it came through.

`Answers` is the server as the doors see it. Every door makes a `RequestContext` and calls `answer`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from mcp_toolset.context.principal import identity_of
from mcp_toolset.protocol.json_rpc import RequestId
from mcp_toolset.protocol.revisions import MODERN_PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from mcp_toolset.context.connection import Connection
    from mcp_toolset.tools.core.identity import Identity


class HttpRequest(Protocol):
    """The HTTP request that a message came in; Starlette's `Request` is one."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def scope(self) -> Mapping[str, Any]: ...


class Way(Protocol):
    """The way back to the client of one request, while that is being answered: a dispatch context."""

    @property
    def can_send_request(self) -> bool:
        """Whether the client can be sent requests in the course of this one."""
        ...

    @property
    def reason(self) -> str | None:
        """Why the client has cancelled the request, if it has said so."""
        ...

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None
    ) -> dict[str, Any]:
        """Ask the client, and wait for its result."""
        ...

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        """Send the client a notification that belongs to this request."""
        ...

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the client asked for it."""
        ...


class RequestContext:
    """One request of one client; a notification has no id.

    Attributes:
        method: Its method.
        params: Its parameters as they came; `None` if it has none.
        request_id: Its id.
        connection: What it has in common with others of its client.
        way: The way back to its client.
        http: The HTTP request that it came in.
        modern: Whether it is of the modern era.
        protocol_version: The revision that it is answered in.
    """

    __slots__ = ("connection", "http", "method", "modern", "params", "protocol_version", "request_id", "way")

    def __init__(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        request_id: RequestId | None,
        connection: Connection,
        way: Way,
        http: HttpRequest | None = None,
    ) -> None:
        """Take a message that came by `way`."""
        self.method = method
        self.params = params
        self.request_id = request_id
        self.connection = connection
        self.way = way
        self.http = http
        self.protocol_version = connection.protocol_version
        self.modern = self.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def identity(self) -> Identity | None:
        """The caller, as its authentication tells; see `identity_of`."""
        return None if self.http is None else identity_of(self.http.scope)


class Answers(Protocol):
    """A server, as every door sees it."""

    def answer(self, request: RequestContext) -> Awaitable[dict[str, Any]]:
        """The result of a request, in the envelope of its client's era."""
        ...

    async def notified(self, request: RequestContext) -> None:
        """Take a notification; nothing is raised."""
        ...

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Keep the server open for as long as the block runs, which a door does while it serves."""
        ...

    def input_schema(self, name: str, scope: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The input schema of a tool that the caller of an ASGI scope can call."""
        ...

    def end_streams(self) -> None:
        """End every `subscriptions/listen` stream in order."""
        ...
