"""Columns of the table of doors: how a client comes in, in which era, and what loop its server runs on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from tests.faults.harness import until
from tests.interaction import doors_server
from tests.support.asking import Person
from tests.support.warm import Warm

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

SOON = 60
"""Seconds for whatever happens at once: much for a busy machine."""

ROOT = Path(__file__).parents[2]
SCRIPT = str(Path(doors_server.__file__))
ERAS = ("legacy", "modern")
LOOPS = ("anyio", "asyncio", "uvloop")
HOSTS = ("anyio", "asyncio", "uvicorn", "uvicorn-uvloop", "hypercorn")
"""What an HTTP server is run by: the first two are `run_http` in a program of one's own."""

HERE = ("memory", "mounted")
"""Doors of the same process: message streams or direct calls of the SDK, and a mount in another server."""

PIPED = ("stdio", "stdio-sdk")
WEB = ("sse", "http", "http-unusual")
UNUSUAL = {"mcp-param-door": "1"}
"""A header as for an argument, which no tool asks for: it changes nothing."""


@dataclass(frozen=True)
class Column:
    """One way in.

    Attributes:
        door: One of `HERE`, `PIPED` and `WEB`.
        era: One of `ERAS`.
        loop: One of `LOOPS`; of `HOSTS` for a door on the web.
    """

    door: str
    era: str
    loop: str

    def __str__(self) -> str:
        return f"{self.door}-{self.era}-{self.loop}"

    @property
    def is_of_every_run(self) -> bool:
        """True if `scripts/test` opens it: each door in each era, and each loop with each kind of door."""
        return str(self) in EVERY_RUN

    @property
    def mode(self) -> Any:
        return "legacy" if self.era == "legacy" else "2026-07-28"

    @property
    def outlives(self) -> bool:
        """True if a call goes on when its client has left (basic/transports, up to 2025-11-25)."""
        return self.era == "legacy" and self.door in ("http", "http-unusual")


COLUMNS = [
    *(Column(door, era, loop) for door in (*HERE, *PIPED) for loop in LOOPS for era in ERAS),
    *(Column(door, era, host) for host in HOSTS for door in WEB for era in ERAS),
]


EVERY_RUN = (
    *("memory-legacy-anyio", "memory-modern-uvloop", "mounted-legacy-asyncio", "mounted-modern-anyio"),
    *("stdio-legacy-anyio", "stdio-modern-asyncio", "stdio-legacy-uvloop"),
    *("stdio-sdk-legacy-asyncio", "stdio-sdk-modern-uvloop"),
    *("sse-legacy-anyio", "sse-modern-uvicorn", "sse-legacy-hypercorn"),
    *("http-modern-asyncio", "http-legacy-uvicorn-uvloop", "http-modern-hypercorn"),
    *("http-unusual-legacy-uvicorn", "http-unusual-modern-anyio"),
)
"""The columns of each run; `scripts/doors` opens all."""


class Visit:
    """A client behind one door, on a loop in a thread of its own.

    Attributes:
        logs: What was logged to it.
        changed: How often it was told that the list has changed.
    """

    def __init__(self, column: Column, directory: Path, log: Path, warm: Warm) -> None:
        self.column = column
        self.warm = warm
        self.log = log
        self.mark = str(directory / str(column))
        self.logs: list[Any] = []
        self.changed = 0
        self.person = Person(*[{"size": "large"}] * 2)
        self.client: Client
        self._portal: anyio.from_thread.BlockingPortal
        self._leaving = anyio.Event()

    def run(self, function: Any, *arguments: Any) -> Any:
        """Run a coroutine function where the client is."""

        async def bounded() -> Any:
            with anyio.fail_after(SOON):
                return await function(*arguments)

        return self._portal.call(bounded)

    def begin(self, function: Any, *arguments: Any) -> Future[Any]:
        """Begin to run a coroutine function where the client is."""
        return self._portal.start_task_soon(function, *arguments)

    def call(self, name: str, **arguments: Any) -> Any:
        return self.run(self.client.call_tool, name, arguments)

    async def noted(self, line: str) -> None:
        """Wait until the server's tools have written a line."""
        await until(lambda: self.log.exists() and line in self.log.read_text().splitlines(), within=SOON)

    def leave(self) -> None:
        """Close the connection, with whatever is under way in it."""
        self._portal.call(self._leaving.set)
        self._thread.join(SOON)
        assert not self._thread.is_alive()

    @contextmanager
    def opened(self, address: str | None) -> Generator[None]:
        """Come in, with a thread of which the loop is that of the column where the server is here."""
        loop = self.column.loop if self.column.door in HERE else "asyncio"
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=doors_server.runner(loop), args=(lambda: self._stay(address, ready),), daemon=True
        )
        self._thread.start()
        ready.result(SOON)
        try:
            self.run(self._mounted)
            yield
        finally:
            if self._thread.is_alive():
                self.leave()

    async def _stay(self, address: str | None, ready: Future[None]) -> None:
        try:
            async with anyio.from_thread.BlockingPortal() as portal:
                self._portal, self._leaving = portal, anyio.Event()
                async with self._connected(address) as self.client:
                    ready.set_result(None)
                    await self._leaving.wait()
                # Without a wire between, a call is the caller's own task, which leaves by being cancelled.
                await portal.stop(cancel_remaining=True)
        except BaseException as fault:
            if ready.done():
                raise
            ready.set_exception(fault)

    @asynccontextmanager
    async def _connected(self, address: str | None) -> AsyncGenerator[Client]:
        async with AsyncExitStack() as stack:
            target = await self._target(stack, address)
            options: dict[str, Any] = {"log_level": "debug"} if self.column.era == "modern" else {}
            client = Client(
                target,
                mode=self.column.mode,
                cache=None,
                logging_callback=self._logged,
                message_handler=self._told,
                elicitation_callback=self.person,
                **options,
            )
            yield await stack.enter_async_context(client)

    async def _mounted(self) -> None:
        """Wait until the mounts of the server have joined."""
        while not {"up_steps", "grow"} <= {tool.name for tool in (await self.client.list_tools()).tools}:
            pass

    async def _target(self, stack: AsyncExitStack, address: str | None) -> Any:
        match self.column.door:
            case "memory" | "mounted" as door:
                server = await stack.enter_async_context(doors_server.make())
                if door == "mounted":
                    mount = RemoteToolset(server, name="inner")
                    server = await stack.enter_async_context(ToolsetServer(Toolset(mount)))
                await server.settled()
                return server.lowlevel
            case "stdio" | "stdio-sdk" as door:
                pipes = {"MCP_TOOLSET_PIPES": "sdk"} if door == "stdio-sdk" else {}
                command, *arguments = self.warm.command(SCRIPT, self.column.loop)
                return StdioServerParameters(
                    command=command, args=arguments, env={**environment(self.log), **pipes}
                )
            case "sse":
                return sse_client(f"{address}/sse")
            case door:
                headers = UNUSUAL if door == "http-unusual" else {}
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=SOON))
                # Who leaves without a word has not ended its session.
                return streamable_http_client(
                    f"{address}/mcp", http_client=http, terminate_on_close=False, max_sse_event_size=None
                )

    async def _logged(self, params: Any) -> None:
        self.logs.append(params.data)

    async def _told(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self.changed += 1


def _address(process: subprocess.Popen[bytes], errors: Path) -> str:
    """Where a server listens, once it says so."""
    until = time.monotonic() + SOON
    while time.monotonic() < until:
        if said := re.search(r"unning on (http://[\d.:]+)", errors.read_text()):
            return said[1]
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            break
    raise AssertionError(f"it does not listen: {errors.read_text()}")


def environment(log: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"MCP_TOOLSET_CACHE": "off", "DOORS_LOG": str(log)}
    return {"PYTHONPATH": path, "PYTHONWARNINGS": "error", **own}


@contextmanager
def web_server(host: str, log: Path, warm: Warm) -> Generator[str]:
    """An HTTP server as a process, run by one of `HOSTS`; yields its address."""
    application = "tests.interaction.doors_app:app"
    uvicorn = ["-m", "uvicorn", application, "--port", "0", "--no-access-log"]
    command = {
        "uvicorn": warm.command(*uvicorn, "--loop", "asyncio"),
        "uvicorn-uvloop": warm.command(*uvicorn, "--loop", "uvloop"),
        # It serves in a process of its own, which is started anew.
        "hypercorn": [sys.executable, "-m", "hypercorn", application, "-b", "127.0.0.1:0"],
    }.get(host, warm.command(SCRIPT, host, "http"))
    errors = log.with_suffix(".stderr")
    with errors.open("w") as stderr, ExitStack() as stack:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment(log)},
            cwd=ROOT,
            stdout=stderr,
            stderr=stderr,
            start_new_session=True,
        )
        stack.callback(process.wait)
        # hypercorn serves in a process of its own, which would stay.
        stack.callback(os.killpg, process.pid, signal.SIGKILL)
        yield _address(process, errors)
        assert process.poll() is None
    assert not re.search("NoEventLoopError|Exception in (callback|ASGI)", errors.read_text()), (
        errors.read_text()
    )
