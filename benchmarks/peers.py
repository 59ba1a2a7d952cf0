"""The ways to one upstream that are compared; the client is the SDK's everywhere.

A peer opens its way and yields a `Route`: an SDK client, and the call that comes to the upstream's `echo`.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import anyio
import anyio.abc
import bridge_process
import echo_server
import mcp_types as types
from bridges import OWN, Bridge, Mode, Scenario, mounted, one_hook, upstream
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from mcp_toolset import Toolset, ToolsetServer

__all__ = ["ARGUMENTS", "Mode", "Peer", "Route", "Scenario", "available"]

TEXT = "x" * 64
ARGUMENTS = {"text": TEXT}
GRACE = 3.0
"""Seconds that a process has to end when it is told to."""

UP_DEADLINE = 60.0
"""Seconds that a process may take to listen."""

ECHO = [sys.executable, str(Path(echo_server.__file__))]
PROCESS = [sys.executable, str(Path(bridge_process.__file__))]
IN_PROCESS: tuple[Scenario, ...] = ("memory", "stdio")


@dataclass(frozen=True)
class Route:
    """A client and what it calls.

    Attributes:
        client: Open, straight on the upstream or on a bridge before it.
        tool: The name that the client calls.
        arguments: What it sends; whatever the way, the upstream gets `ARGUMENTS`.
        pid: The process that the client talks to, if it is another one.
    """

    client: Client
    tool: str
    arguments: dict[str, Any]
    pid: int | None = None

    @property
    def protocol(self) -> str:
        """The revision that is spoken."""
        return str(self.client.protocol_version)

    async def call(self) -> None:
        """Call once; anything but the echo fails the run, for errors are quick and would look good."""
        result = await self.client.call_tool(self.tool, self.arguments)
        block = result.content[0]
        if not isinstance(block, types.TextContent) or block.text != TEXT:
            raise RuntimeError(f"{self.tool} answered {block!r} instead of the echo")


@dataclass(frozen=True)
class Peer:
    """One way.

    Attributes:
        open: Opens it.
        scenarios: Where it can be.
        modes: The eras that it speaks.
    """

    open: Callable[[Scenario, Mode], AbstractAsyncContextManager[Route]]
    scenarios: tuple[Scenario, ...] = get_args(Scenario)
    modes: tuple[Mode, ...] = get_args(Mode)

    def serves(self, scenario: Scenario, mode: Mode) -> bool:
        """True if it can be compared there."""
        return scenario in self.scenarios and mode in self.modes


@asynccontextmanager
async def direct(scenario: Scenario, mode: Mode) -> AsyncGenerator[Route]:
    if scenario in IN_PROCESS:
        async with Client(upstream(scenario), mode=mode) as client:
            yield Route(client, "echo", ARGUMENTS)
    elif scenario == "pipe":
        async with _over_pipe(ECHO, mode, "echo") as route:
            yield route
    else:
        async with _over_http(lambda port: [*ECHO, str(port)], mode, "echo") as route:
            yield route


def bridged(name: str, bridge: Bridge, tool: str = "echo") -> Peer:
    """A bridge of `bridges.py` or FastMCP's, here or as a process."""

    @asynccontextmanager
    async def opened(scenario: Scenario, mode: Mode) -> AsyncGenerator[Route]:
        command = [*PROCESS, name, mode]
        if scenario in IN_PROCESS:
            async with bridge(scenario, mode) as server, Client(_lowlevel(server), mode=mode) as client:
                yield Route(client, tool, ARGUMENTS)
        elif scenario == "pipe":
            async with _over_pipe(command, mode, tool) as route:
                yield route
        else:
            async with _over_http(lambda port: [*command, str(port)], mode, tool) as route:
                yield route

    return Peer(opened)


def proxied(command: Callable[[int], list[str]]) -> Peer:
    """A program that others wrote, with its own command line; they speak the legacy era."""

    @asynccontextmanager
    async def opened(scenario: Scenario, mode: Mode) -> AsyncGenerator[Route]:
        async with _over_http(command, mode, "echo") as route:
            yield route

    return Peer(opened, scenarios=("http",), modes=("legacy",))


def _lowlevel(server: Any) -> Any:
    return getattr(server, "lowlevel", None) or getattr(server, "_mcp_server", server)


@asynccontextmanager
async def ours_deferred(scenario: Scenario, mode: Mode) -> AsyncGenerator[Route]:
    """The tool is behind search: resolved once, then called through `call_tool` with its grant."""
    server = ToolsetServer(Toolset(mounted(scenario, mode).deferred()), hooks=one_hook())
    async with server, Client(server.lowlevel, mode=mode) as client:
        resolved = await client.call_tool("resolve_tools", {"ids": ["echo"]})
        grant = (resolved.structured_content or {})["tools"][0]["grant"]
        yield Route(client, "call_tool", {"grant": grant, "arguments": ARGUMENTS})


@asynccontextmanager
async def _over_pipe(command: Sequence[str], mode: Mode, tool: str) -> AsyncGenerator[Route]:
    before = children()
    parameters = StdioServerParameters(command=command[0], args=list(command[1:]))
    async with Client(parameters, mode=mode) as client:
        (pid,) = children() - before
        yield Route(client, tool, ARGUMENTS, pid)


@asynccontextmanager
async def _over_http(command: Callable[[int], list[str]], mode: Mode, tool: str) -> AsyncGenerator[Route]:
    port = _free_port()
    quiet = subprocess.DEVNULL
    async with await anyio.open_process(
        command(port), stdin=quiet, stdout=quiet, stderr=None, start_new_session=True
    ) as process:
        try:
            await _listening(port, process)
            async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
                yield Route(client, tool, ARGUMENTS, process.pid)
        finally:
            # Some of these programs outlive a polite end, and their children with them.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with anyio.move_on_after(GRACE, shield=True):
                await process.wait()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _listening(port: int, process: anyio.abc.Process) -> None:
    with anyio.fail_after(UP_DEADLINE):
        while True:
            if process.returncode is not None:
                raise RuntimeError(f"it ended with exit code {process.returncode}")
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
            except OSError:
                await anyio.sleep(0.05)
            else:
                return


def children() -> set[int]:
    """The direct children of this process."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found.update(map(int, (task / "children").read_text().split()))
    return found


PROXIES: dict[str, Callable[[str, int], list[str]]] = {
    "mcp_proxy_pypi": lambda program, port: [
        program,
        "--log-level",
        "ERROR",
        "--port",
        str(port),
        "--",
        *ECHO,
    ],
    "mcp_proxy_npm": lambda program, port: [program, "--port", str(port), "--host", "127.0.0.1", "--", *ECHO],
    "supergateway": lambda program, port: [
        *(program, "--logLevel", "none", "--stdio", shlex.join(ECHO)),
        *("--outputTransport", "streamableHttp", "--stateful", "--port", str(port)),
    ],
}
"""Their command lines. Two programs have one name, so each is found by a variable: `MCP_PROXY_PYPI=/path`."""

FASTMCP_PEERS = ("fastmcp_proxy", "fastmcp_connected", "fastmcp_mount")


def available() -> tuple[dict[str, Peer], dict[str, str]]:
    """The peers that can run here by name, the base first; and the others with the reason."""
    found: dict[str, Peer] = {"direct": Peer(direct)}
    found.update((name, bridged(name, bridge)) for name, bridge in OWN.items())
    # Elsewhere it is the same as `ours`.
    found["ours_newest"] = replace(
        found["ours_newest"], scenarios=("stdio", "pipe", "http"), modes=("legacy",)
    )
    # The provider is one for a whole process.
    found["ours_traced"] = replace(found["ours_traced"], scenarios=("pipe", "http"))
    found["ours_deferred"] = Peer(ours_deferred, scenarios=IN_PROCESS)
    missing: dict[str, str] = {}
    if importlib.util.find_spec("fastmcp") is None:
        reason = "fastmcp is not installed here; scripts/install bench makes .venv-bench, which has it"
        missing.update(dict.fromkeys(FASTMCP_PEERS, reason))
    else:
        import fastmcp_peers

        for name, bridge in fastmcp_peers.BRIDGES.items():
            found[name] = bridged(name, bridge, "up_echo" if name == "fastmcp_mount" else "echo")
    for name, command in PROXIES.items():
        program = shutil.which(os.environ.get(name.upper(), ""))
        if program is None:
            missing[name] = f"set {name.upper()} to its path"
        else:
            found[name] = proxied(lambda port, command=command, program=program: command(program, port))
    return found, missing
