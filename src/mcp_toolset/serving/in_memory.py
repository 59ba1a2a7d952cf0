"""`Client`: the SDK's client of a server in the same process, for tests."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from mcp_toolset.errors import sole
from mcp_toolset.sdk import Client as SdkClient
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.serving.serve import Served, server_of


class Client(SdkClient):
    """The SDK's `mcp.Client` of a server in the same process: `async with Client(server) as client`.

    The server is opened for the block, unless it is open already.

    Attributes:
        toolset_server: The server behind the client.
    """

    toolset_server: ToolsetServer

    def __init__(self, target: Served, **options: Any) -> None:
        """Describe a client; nothing is opened yet.

        Args:
            target: A target of `serve`: a server, a toolset, a tool, a function or a configuration's path.
            options: Those of `mcp.Client`, such as `mode="legacy"` or `elicitation_callback`.
        """
        self.toolset_server = server_of(target)
        self._opened = AsyncExitStack()
        super().__init__(self.toolset_server.lowlevel, **options)

    async def __aenter__(self) -> Self:
        """Open the server, wait until each mounted server is ready or has failed, and connect."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.toolset_server.opened())
            await self.toolset_server.settled()
            await super().__aenter__()
            self._opened = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave, and close the server if it was opened here."""
        try:
            async with self._opened:
                await super().__aexit__(kind, fault, trace)
        except BaseExceptionGroup as group:
            raise sole(group) from None
