"""The SDK's own transports over stdio: a server as a child process, and a server on its standard pipes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.stdio import stdio_server

from mcp_toolset.protocol.dispatch import Dispatcher
from mcp_toolset.sdk.dispatch import stream_dispatcher

__all__ = ["sdk_child_dispatcher", "stdio_server"]


class _Command(Protocol):
    """What is started, as `ProcessTarget` has it."""

    @property
    def command(self) -> str: ...
    @property
    def args(self) -> tuple[str, ...]: ...
    @property
    def env(self) -> Mapping[str, str] | None: ...
    @property
    def cwd(self) -> str | Path | None: ...
    @property
    def encoding(self) -> str: ...
    @property
    def encoding_error_handler(self) -> str: ...


@asynccontextmanager
async def sdk_child_dispatcher(target: _Command, errors: TextIO) -> AsyncGenerator[Dispatcher]:
    """A server as a child process, by the SDK's transport: where pipes cannot be waited for."""
    handler: Any = target.encoding_error_handler
    parameters = StdioServerParameters(
        command=target.command,
        args=list(target.args),
        env=None if target.env is None else dict(target.env),
        cwd=target.cwd,
        encoding=target.encoding,
        encoding_error_handler=handler,
    )
    async with stdio_client(parameters, errlog=errors) as (read, write):
        yield stream_dispatcher(read, write)
