"""`HttpServer`: what the HTTP transports need of the server that they serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from starlette.applications import Starlette

from mcp_toolset.context.connection import Connection
from mcp_toolset.sdk.models import InitializationOptions
from mcp_toolset.transports.http.post import Answer


class HttpServer(Protocol):
    """An SDK `Server` that answers some methods by itself, and whose sessions and streams can be found."""

    def quick(self, method: str) -> Answer | None:
        """How to answer a method with a raw result in the envelope of the caller's era, if it is one."""
        ...

    @property
    def get_tool_input_schema(self) -> Callable[[str], Mapping[str, Any] | None] | None:
        """The input schema of a tool by its name."""
        ...

    def over_http(self, session_id: str) -> Connection | None:
        """The connection of a legacy session, unless everything is to go the SDK's way."""
        ...

    def end_streams(self) -> None:
        """End every `subscriptions/listen` stream gracefully."""
        ...

    def streamable_http_app(self, *args: Any, **options: Any) -> Starlette:
        """The SDK's application for streamable HTTP."""
        ...

    def create_initialization_options(self) -> InitializationOptions:
        """What the answer to a handshake says of the server."""
        ...

    async def run(
        self, read_stream: Any, write_stream: Any, initialization_options: InitializationOptions
    ) -> None:
        """Serve one connection until it ends."""
        ...


class HttpApplication(Protocol):
    """A toolset server, which makes the application that is run."""

    def http_app(self, *args: Any, **options: Any) -> Starlette:
        """The application with both HTTP transports."""
        ...
