"""`Link`: how to reach one upstream, and the transport that does it.

A target is a URL, an argument list, `StdioServerParameters`, or a server of this process. What a
remote catalog says is never a target (F47): commands and URLs come from the host alone.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

import httpx2
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import Dispatcher

from mcp_toolset.bridge.sdk import Server, in_process_dispatcher, lowlevel_of, stream_dispatcher
from mcp_toolset.bridge.stderr import StderrTail
from mcp_toolset.errors import DefinitionError, UpstreamUnavailableError

CONNECT_TIMEOUT: Final = 30.0
"""Seconds to connect to, and to write to, an HTTP upstream."""

READ_TIMEOUT: Final = 300.0
"""Seconds that an HTTP upstream may stay silent on an open stream; calls have their own deadline."""

Transport = Literal["stdio", "http", "sse", "in-process"]
Target = str | Sequence[str] | StdioServerParameters | Server[Any] | object


@dataclass(frozen=True)
class Link:
    """One upstream's transport and what it needs.

    Attributes:
        name: The name it is mounted under, for messages.
        transport: Which transport reaches it.
        url: For `http` and `sse`.
        headers: Sent with every HTTP request to this upstream and to no other (N11, F43).
        process: For `stdio`.
        server: For `in-process`.
    """

    name: str
    transport: Transport
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    process: StdioServerParameters | None = field(default=None, repr=False)
    server: Server[Any] | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """Where it leads, without secrets (F42)."""
        if self.process is not None:
            return f"command {self.process.command}"
        if not self.url:
            return "a server of this process"
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"

    @asynccontextmanager
    async def open(self, stderr: StderrTail) -> AsyncGenerator[Dispatcher[Any]]:
        """Connect. `stderr` takes what a child process writes there (F12)."""
        async with AsyncExitStack() as stack:
            if self.server is not None:
                yield await stack.enter_async_context(in_process_dispatcher(self.server))
                return
            if self.process is not None:
                self._check_command(self.process)
                errors = await stack.enter_async_context(stderr.opened())
                streams: Any = await stack.enter_async_context(stdio_client(self.process, errlog=errors))
            elif self.transport == "sse":
                streams = await stack.enter_async_context(sse_client(self.url, headers=dict(self.headers)))
            else:
                timeout = httpx2.Timeout(CONNECT_TIMEOUT, read=READ_TIMEOUT)
                client = httpx2.AsyncClient(headers=dict(self.headers), timeout=timeout)
                await stack.enter_async_context(client)
                streams = await stack.enter_async_context(
                    streamable_http_client(self.url, http_client=client)
                )
            yield stream_dispatcher(streams[0], streams[1])

    def _check_command(self, process: StdioServerParameters) -> None:
        path = (process.env or {}).get("PATH")
        if shutil.which(process.command, path=path) is None and not Path(process.command).is_file():
            raise UpstreamUnavailableError(
                self.name, f"command not found: {process.command}; install it or give its full path"
            )


def link_to(
    target: Target,
    *,
    name: str,
    transport: Literal["auto", "stdio", "http", "sse"] = "auto",
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
) -> Link:
    """Read a target.

    Raises:
        DefinitionError: it is none of the known kinds, or does not go with the transport.
    """
    if isinstance(target, str):
        return _url_link(target, name, transport, headers or {})
    if isinstance(target, StdioServerParameters):
        return Link(name, "stdio", process=target)
    server = lowlevel_of(target)
    if server is not None:
        return Link(name, "in-process", server=server)
    if isinstance(target, Sequence):
        command = [str(part) for part in cast("Sequence[object]", target)]
        if not command:
            raise DefinitionError(
                f"mount {name!r}: the argument list is empty; give a command and its arguments"
            )
        process = StdioServerParameters(command=command[0], args=command[1:], env=dict(env or {}), cwd=cwd)
        return Link(name, "stdio", process=process)
    raise DefinitionError(
        f"mount {name!r}: {type(target).__name__} is no target; give a URL, an argument list, "
        "StdioServerParameters or an in-process server"
    )


def _url_link(url: str, name: str, transport: str, headers: Mapping[str, str]) -> Link:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DefinitionError(
            f"mount {name!r}: {url!r} is no http or https URL; a command is given as a list: [{url!r}]"
        )
    if transport == "stdio":
        raise DefinitionError(f"mount {name!r}: a URL is reached by http or sse, not by stdio")
    if transport == "auto":
        transport = "sse" if parts.path.rstrip("/").endswith("/sse") else "http"
    logging.getLogger("mcp_toolset.upstream").debug("%s: reached by %s", name, transport)
    return Link(name, "sse" if transport == "sse" else "http", url=url, headers=headers)
