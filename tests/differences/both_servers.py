"""The two servers that are compared, `ours` and `sdk`: the same tools, resources, prompts and completions.

`python -m tests.differences.both_servers SOCKET` imports both, then serves each request that comes over the
Unix socket in a fork of itself: one start of Python is enough for any number of connections. A request is
`SERVER DOOR` with two descriptors, the standard input and output of the fork. The doors are `stdio`,
`memory` (lines here too, which are handed over as messages of the SDK) and `http`, which prints its port.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import import_module
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client
from mcp.server import MCPServer
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from starlette.applications import Starlette
from tests.support.served import free_socket, listening, port_of

from mcp_toolset import Prompts, Toolset, ToolsetServer, tool
from mcp_toolset.sdk import lowlevel_of

URI = "odd://text"
TEMPLATE = "odd://shelf/{number}"
LONGEST = 64 * 1024 * 1024
_gates: dict[str, anyio.Event] = {}


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def echo(text: str) -> str:
    """Return the text."""
    return text


async def fail() -> str:
    """Raise."""
    raise ValueError("the fuse was lit")


async def wait(gate: str) -> str:
    """Wait until `release` is called for this gate."""
    await _gates.setdefault(gate, anyio.Event()).wait()
    return gate


async def release(gate: str) -> str:
    """End the calls of `wait`."""
    _gates.setdefault(gate, anyio.Event()).set()
    return gate


async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


TOOLS: tuple[Callable[..., Awaitable[Any]], ...] = (add, echo, fail, wait, release)


class Texts:
    """One text and one template."""

    async def list_resources(self) -> Sequence[types.Resource]:
        return [types.Resource(name="text", uri=URI, mime_type="text/plain")]

    async def list_resource_templates(self) -> Sequence[types.ResourceTemplate]:
        return [types.ResourceTemplate(name="shelf", uri_template=TEMPLATE, mime_type="text/plain")]

    async def read_resource(self, uri: str) -> Sequence[types.TextResourceContents]:
        if uri != URI and not uri.startswith("odd://shelf/"):
            raise LookupError("Resource not found")
        return [types.TextResourceContents(uri=uri, mime_type="text/plain", text=f"about {uri}")]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


async def _proposed(reference: Any, argument: str, value: str, others: Mapping[str, str]) -> list[str]:
    return [f"{value}1"]


async def _set_level(context: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


def ours() -> ToolsetServer:
    """The server of this library."""
    prompts = Prompts()
    prompts.add(greet)
    return ToolsetServer(
        Toolset(*(tool(function) for function in TOOLS)),
        name="odd",
        version="1",
        resources=Texts(),
        prompts=prompts,
        completions=_proposed,
    )


def sdk() -> MCPServer[Any]:
    """The server of the SDK."""
    server = MCPServer("odd", version="1", log_level="CRITICAL")
    for function in TOOLS:
        # What returns a text has no schema for it here either.
        server.add_tool(function, structured_output=function is add)
    lowlevel = lowlevel_of(server)
    assert lowlevel is not None
    lowlevel.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)
    server.prompt()(greet)

    @server.resource(URI, name="text", mime_type="text/plain")
    async def text() -> str:
        return f"about {URI}"

    @server.resource(TEMPLATE, name="shelf", mime_type="text/plain")
    async def shelf(number: str) -> str:
        return f"about odd://shelf/{number}"

    @server.completion()
    async def complete(reference: Any, argument: Any, context: Any) -> types.Completion:
        return types.Completion(values=[f"{argument.value}1"])

    return server


async def _stdio(server: Any) -> None:
    if isinstance(server, ToolsetServer):
        await server.run_stdio()
    else:
        await server.run_stdio_async()


async def _memory(server: Any) -> None:
    """Hand over lines as messages; an empty line ends the connection, and another begins."""
    lines = BufferedByteReceiveStream(_Input())
    async with AsyncExitStack() as stack:
        if isinstance(server, ToolsetServer):
            await stack.enter_async_context(server)
        while await _over_streams(server, lines):
            os.write(1, b"\n")


async def _over_streams(server: Any, lines: BufferedByteReceiveStream) -> bool:
    """Serve one connection; whether another one may follow."""
    lowlevel = lowlevel_of(server)
    assert lowlevel is not None
    async with create_client_server_memory_streams() as (mine, theirs), anyio.create_task_group() as group:

        async def serve() -> None:
            async with theirs[0], theirs[1]:
                await lowlevel.run(*theirs, lowlevel.create_initialization_options())

        async def write() -> None:
            async for item in mine[0]:
                assert isinstance(item, SessionMessage)
                os.write(1, item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

        group.start_soon(serve)
        group.start_soon(write)
        try:
            while line := await lines.receive_until(b"\n", LONGEST):
                await mine[1].send(SessionMessage(types.jsonrpc_message_adapter.validate_json(line)))
        except (anyio.IncompleteRead, anyio.EndOfStream):
            return False
        finally:
            group.cancel_scope.cancel()
    return True


class _Input(anyio.abc.ByteReceiveStream):
    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.wait_readable(0)
        chunk = os.read(0, max_bytes)
        if not chunk:
            raise anyio.EndOfStream
        return chunk

    async def aclose(self) -> None:
        os.close(0)


async def _http(server: Any) -> None:
    if isinstance(server, ToolsetServer):
        async with server, listening(server.http_app()) as url:
            await _until_left(port_of(url))
        return
    with free_socket() as bound:
        async with anyio.create_task_group() as group:
            group.start_soon(_serve_sdk, server, bound)
            await _until_left(bound.getsockname()[1])


async def _until_left(port: int) -> None:
    os.write(1, b"%d\n" % port)
    await anyio.wait_readable(0)
    os._exit(0)


async def _serve_sdk(server: MCPServer[Any], bound: socket.socket) -> None:
    app: Starlette = server.streamable_http_app()
    app.router.routes.extend(server.sse_app().routes)
    # The SDK does not install httptools, and answers some odd heads otherwise with it.
    config = uvicorn.Config(app, http="h11", log_level="critical")
    await uvicorn.Server(config).serve(sockets=[bound])


DOORS: dict[str, Callable[[Any], Awaitable[None]]] = {"stdio": _stdio, "memory": _memory, "http": _http}


def _serve(request: bytes, descriptors: Sequence[int], servers: Mapping[str, Any]) -> None:
    """Be the server that is asked for, in a fork."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    name, door = request.decode().split()
    try:
        anyio.run(partial(DOORS[door], servers[name]))
    finally:
        os._exit(0)


async def _warm() -> None:
    """Import, and build, what the forks need, so that each need not do it again."""
    for name in ("mcp.server.stdio", "mcp_toolset.transports.stdio_server"):
        import_module(name)
    async with Client(sdk(), mode="legacy") as client:
        await client.list_tools()
    async with ours() as server, Client(server.lowlevel, mode="legacy") as client:
        await client.list_tools()


def main(path: str) -> None:
    """Serve requests until the connection they come by is closed."""
    anyio.run(_warm)
    servers = {"ours": ours(), "sdk": sdk()}
    logging.disable()
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(path)
        while True:
            request, descriptors, _, _ = socket.recv_fds(asking, 100, 2)
            if not request:
                return _reap(0)
            if os.fork() == 0:
                asking.close()
                _serve(request, descriptors, servers)
            for descriptor in descriptors:
                os.close(descriptor)
            _reap(os.WNOHANG)


def _reap(options: int) -> None:
    """Take note of forks that have ended; with 0, of all, when they have."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, options) != (0, 0):
            pass


if __name__ == "__main__":
    main(sys.argv[1])
