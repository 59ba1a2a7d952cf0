"""One local tool, called by the SDK's client: our server against the SDK's own two.

    python benchmarks/local_tool.py [--rounds 7] [--budget 0.3] [--json FILE]

`mcpserver` is the SDK's server that makes tools of functions, as ours does, and the base of the ratios;
`lowlevel` is its low-level server with two handlers. `memory` is a server in this process, `stdio` one that
is a process, whose CPU is read off the system. As `local_tool.py serve PEER` it is such a process.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import echo_server
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver import MCPServer
from measuring import figures, interleaved, markdown, separate_heaps
from peers import children
from reporting import say, surroundings

from mcp_toolset import Toolset, ToolsetServer, serve, tool

TEXT = "x" * 64
BASE = "mcpserver"


async def echo(text: str) -> str:
    """Return the text."""
    return text


def mcpserver() -> MCPServer:
    server = MCPServer("echo")
    server.tool()(echo)
    return server


def ours() -> ToolsetServer:
    return ToolsetServer(Toolset(tool(echo)))


MADE: dict[str, Callable[[], Any]] = {BASE: mcpserver, "lowlevel": echo_server.make, "ours": ours}


def run(name: str) -> None:
    """Be that server on standard input and output."""
    if name == "ours":
        serve(ours())
    elif name == BASE:
        mcpserver().run()
    else:
        anyio.run(echo_server.main)


async def call(client: Client) -> None:
    """Call once; anything but the echo fails the run."""
    block = (await client.call_tool("echo", {"text": TEXT})).content[0]
    if not isinstance(block, types.TextContent) or block.text != TEXT:
        raise RuntimeError(f"it answered {block!r}")


@asynccontextmanager
async def opened(scenario: str, mode: Any) -> AsyncGenerator[dict[str, tuple[Client, int | None]]]:
    async with AsyncExitStack() as stack:
        clients: dict[str, tuple[Client, int | None]] = {}
        for name, make in MADE.items():
            target: Any = make()
            pid, before = None, children()
            if scenario == "stdio":
                target = StdioServerParameters(command=sys.executable, args=[__file__, "serve", name])
            else:
                target = getattr(target, "lowlevel", target)
            client = await stack.enter_async_context(Client(target, mode=mode))
            await call(client)
            if scenario == "stdio":
                (pid,) = children() - before
            clients[name] = (client, pid)
        yield clients


async def measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for scenario in ("memory", "stdio"):
        # A start of each server over stdio in one era shows that it runs.
        for mode in ("auto",) if options.quick and scenario == "stdio" else ("legacy", "auto"):
            async with opened(scenario, mode) as clients, separate_heaps():
                calls = {name: partial(call, client) for name, (client, _) in clients.items()}
                pids = {name: pid for name, (_, pid) in clients.items()}
                for conc in (1, 16):
                    say("local_tool", f"{scenario}, {mode}, {conc} at once")
                    taken = await interleaved(
                        calls, at_once=conc, rounds=options.rounds, seconds=options.budget, pids=pids
                    )
                    rows += [
                        {"scenario": scenario, "mode": mode, "conc": conc, "peer": name}
                        | asdict(figures(samples, taken[BASE]))
                        for name, samples in taken.items()
                    ]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=0.3, help="seconds per peer and round")
    parser.add_argument("--quick", action="store_true", help="tiny samples: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.budget = 1, 0.01
    about = surroundings("local_tool", {"rounds": options.rounds, "quick": options.quick})
    rows = anyio.run(measured, options)
    shown = [
        (
            f"{row['scenario']}, {row['mode']}, {row['conc']}",
            row["peer"],
            f"{row['x_p50']:.2f} ({row['x_p50_lo']:.2f}–{row['x_p50_hi']:.2f})",
            f"{row['x_cpu']:.2f}",
            "" if row["bridge_cpu_ms"] is None else f"{row['bridge_cpu_ms']:.3f}",
        )
        for row in rows
    ]
    head = ("server, era, at once", "peer", "p50 × mcpserver", "CPU × mcpserver", "server's CPU ms")
    print(markdown(head, shown))
    if options.json:
        options.json.write_text(json.dumps({**about(), "base": BASE, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        run(sys.argv[2])
    else:
        sys.exit(main())
