"""The ways to one upstream that are compared; the client is the SDK's everywhere.

A peer opens its way and yields a `Route`: an SDK client, and the call that comes to the upstream's `echo`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import echo_server
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from mcp_toolset import HookSet, RemoteToolset, RunNormally, ToolCall, Toolset, ToolsetServer

TEXT = "x" * 64
ARGUMENTS = {"text": TEXT}

Scenario = Literal["memory", "stdio"]
Mode = Literal["legacy", "auto"]


@dataclass(frozen=True)
class Route:
    """A client and what it calls.

    Attributes:
        client: Open, straight on the upstream or on a bridge before it.
        tool: The name that the client calls.
        arguments: What it sends; whatever the way, the upstream gets `ARGUMENTS`.
    """

    client: Client
    tool: str
    arguments: dict[str, Any]

    async def call(self) -> None:
        """Call once; anything but the echo fails the run, for errors are quick and would look good."""
        result = await self.client.call_tool(self.tool, self.arguments)
        block = result.content[0]
        if not isinstance(block, types.TextContent) or block.text != TEXT:
            raise RuntimeError(f"{self.tool} answered {block!r} instead of the echo")


Peer = Callable[[Scenario, Mode], AbstractAsyncContextManager[Route]]


def upstream(scenario: Scenario) -> Any:
    """A fresh upstream, as the SDK's client and `RemoteToolset` take it."""
    if scenario == "memory":
        return echo_server.make()
    return StdioServerParameters(command=sys.executable, args=[str(Path(echo_server.__file__))])


@asynccontextmanager
async def direct(scenario: Scenario, mode: Mode) -> AsyncGenerator[Route]:
    async with Client(upstream(scenario), mode=mode) as client:
        yield Route(client, "echo", ARGUMENTS)


@asynccontextmanager
async def ours(scenario: Scenario, mode: Mode) -> AsyncGenerator[Route]:
    async with _served(RemoteToolset(upstream(scenario), name="up"), mode) as client:
        yield Route(client, "echo", ARGUMENTS)


@asynccontextmanager
async def ours_deferred(scenario: Scenario, mode: Mode) -> AsyncGenerator[Route]:
    """The tool is behind search: resolved once, then called through `call_tool` with its grant."""
    async with _served(RemoteToolset(upstream(scenario), name="up").deferred(), mode) as client:
        resolved = await client.call_tool("resolve_tools", {"ids": ["echo"]})
        grant = (resolved.structured_content or {})["tools"][0]["grant"]
        yield Route(client, "call_tool", {"grant": grant, "arguments": ARGUMENTS})


@asynccontextmanager
async def _served(toolset: Toolset, mode: Mode) -> AsyncGenerator[Client]:
    server = ToolsetServer(Toolset(toolset), hooks=_one_hook())
    async with server, Client(server.lowlevel, mode=mode) as client:
        yield client


def _one_hook() -> HookSet:
    hooks = HookSet()

    @hooks.execution("*")
    async def run_all(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally(input)

    return hooks


def available() -> tuple[dict[str, Peer], dict[str, str]]:
    """The peers that can run here by name, the base first; and the others with the reason."""
    own: dict[str, Peer] = {"direct": direct, "ours": ours, "ours_deferred": ours_deferred}
    if importlib.util.find_spec("fastmcp") is None:
        reason = "fastmcp is not installed here; scripts/install bench makes .venv-bench, which has it"
        return own, dict.fromkeys(FASTMCP_PEERS, reason)
    import fastmcp_peers

    return {**own, **fastmcp_peers.PEERS}, {}


FASTMCP_PEERS = ("fastmcp_proxy", "fastmcp_connected", "fastmcp_mount")
