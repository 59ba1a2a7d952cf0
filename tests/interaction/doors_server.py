"""The server behind every door: `doors_server.py LOOP [http]`; for ASGI servers it is in `doors_app`.

What its tools have been through is written into the file named by `DOORS_LOG`, a line each, so that a test
can read it when the connection, or the process, is gone. Over HTTP it tells its address on standard error.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from tests.support.telling import telling

from mcp_toolset import AskUser, RemoteToolset, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.transports.http import app

UPSTREAM = str(Path(__file__).with_name("doors_upstream.py"))
BIG = 5 * 1024 * 1024
AT_ONCE = 16
SIZE = {
    "type": "object",
    "properties": {"size": {"type": "string", "enum": ["small", "large"]}},
    "required": ["size"],
}
Run = Callable[[Callable[[], Awaitable[None]]], None]
SHORT_WAYS = ("line_dispatcher.py", "message_dispatcher.py", "direct_calls.py", "sessions.py", "endpoint.py")


def note(line: str) -> None:
    with Path(os.environ["DOORS_LOG"]).open("a") as log:
        log.write(line + "\n")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def explode() -> str:
    """Raise."""
    raise ValueError("the fuse was lit")


@tool
async def lost() -> str:
    """Wait for something that somebody else has cancelled."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    future.cancel()
    return await future


@tool
async def count(tag: str, context: ToolContext) -> str:
    """Report three steps of progress, and log each."""
    for step in range(3):
        await context.log("warning", f"{tag} {step}")
        await context.progress(step + 1, 3, tag)
    return "done"


@tool
async def linger(mark: str) -> str:
    """Wait until there is a file of this name."""
    note(f"{mark} begun")
    try:
        # It is another process that makes the file.
        while not await anyio.Path(mark).exists():  # noqa: ASYNC110
            await anyio.sleep(0.01)
    except anyio.get_cancelled_exc_class():
        note(f"{mark} cancelled")
        raise
    note(f"{mark} finished")
    return "done"


@tool
def book(room: str) -> AskUser:
    """Book a room of a size that the user chooses."""
    return AskUser(f"Which size for {room}?", SIZE)


@tool
def big(letter: str) -> str:
    """Return 5 MB."""
    return letter * BIG


@tool
async def way() -> str:
    """Which short way the call has come, as the frames below it tell; none if it came by the SDK's alone."""
    frame = sys._getframe().f_back
    while frame is not None:
        found = Path(frame.f_code.co_filename).name
        # What the SDK's server answers is wrapped there, and has not come a short way.
        is_wrapped = frame.f_code.co_qualname.startswith(("answering.", "noting."))
        if found in SHORT_WAYS and "/mcp_toolset/" in frame.f_code.co_filename and not is_wrapped:
            return found.removesuffix(".py")
        frame = frame.f_back
    return "none"


class Meeting:
    """Calls that wait for one another: they only end if all of them are under way at once."""

    def __init__(self) -> None:
        self.there: defaultdict[str, int] = defaultdict(int)
        self.full: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def join(self, mark: str) -> None:
        self.there[mark] += 1
        if self.there[mark] % AT_ONCE == 0:
            self.full[mark].set()
        await self.full[mark].wait()


class Growing:
    """A mounted server of this process; its list grows by a tool with each call of `grow`."""

    def __init__(self) -> None:
        self.names = ["grow"]
        self.bus = InMemorySubscriptionBus()

    async def list(self, context: Any, params: Any) -> types.ListToolsResult:
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in self.names]
        return types.ListToolsResult(tools=tools)

    async def call(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        name = params.name
        if name == "grow":
            self.names.append(name := f"grown{len(self.names)}")
            await self.bus.publish(ToolsListChanged())
        return types.CallToolResult(content=[types.TextContent(type="text", text=name)])

    def server(self) -> Server[Any]:
        return Server(
            "growing",
            version="1",
            on_list_tools=self.list,
            on_call_tool=self.call,
            on_subscriptions_listen=ListenHandler(self.bus),
        )


def make() -> ToolsetServer:
    meeting = Meeting()

    @tool
    async def square(n: int, mark: str) -> int:
        """Square a number, together with fifteen other calls."""
        await meeting.join(mark)
        return n * n

    mounted = RemoteToolset([sys.executable, "-S", UPSTREAM, os.environ["DOORS_LOG"]], name="up").prefixed(
        "up"
    )
    growing = RemoteToolset(Growing().server(), name="growing")
    local = Toolset(add, explode, lost, count, linger, book, big, way, square)
    return ToolsetServer(
        Toolset(local, mounted, growing), name="doors", capabilities=["ask"], list_timeout=60
    )


async def _serve(*, over_http: bool) -> None:
    server = make()
    if not over_http:
        await server.run_stdio()
        return
    app.bound_socket = telling
    await server.run_http(port=0)


def runner(loop: str) -> Run:
    """How a program starts the loop of this name."""
    if loop == "anyio":
        return lambda work: anyio.run(work)
    if loop == "asyncio":
        return lambda work: asyncio.run(_coroutine(work))
    import uvloop

    def run(work: Callable[[], Awaitable[None]]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_coroutine(work))

    return run


async def _coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()


if __name__ == "__main__":
    runner(sys.argv[1])(partial(_serve, over_http="http" in sys.argv[2:]))
