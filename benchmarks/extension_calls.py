"""Python calls of one warm call of a tool, with each extension alone, over a pipe in this process.

    python benchmarks/extension_calls.py [--json FILE]

Calls of Python functions are counted, those of the standard library and of anyio too: with one version of
Python the count is the same in each run and on each machine. `calls.py` has times.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from measuring import markdown
from reporting import say, surroundings

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, serve, tool
from mcp_toolset.policy import Limits, Policy
from mcp_toolset.transports.line_dispatcher import LineDispatcher, PipePair
from mcp_toolset.transports.serve_connection import INLINE, serve_connection

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "calls", "version": "1"}}
WARM = 5


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def local() -> tuple[Toolset, str]:
    return Toolset(add), "add"


def mounted() -> tuple[Toolset, str]:
    command = [sys.executable, __file__, "--serve"]
    return Toolset(RemoteToolset(command, name="kid").prefixed("kid")), "kid_add"


async def counted(made: Callable[[], tuple[Toolset, str]], options: dict[str, Any]) -> int:
    """The calls of Python functions that one warm call makes."""
    toolset, name = made()
    (read, their_write), (their_read, write) = os.pipe(), os.pipe()
    for end in (read, their_write, their_read, write):
        os.set_blocking(end, False)
    count, last = 0, 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    async def ask(method: str, **params: Any) -> None:
        nonlocal last
        last += 1
        message = {"jsonrpc": "2.0", "id": last, "method": method, "params": params}
        os.write(their_write, json.dumps(message).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            await anyio.wait_readable(their_read)
            answer += os.read(their_read, 65_536)
        if "error" in json.loads(answer.splitlines()[-1]):
            raise RuntimeError(answer.decode())

    async with ToolsetServer(toolset, keep=False, **options) as server, anyio.create_task_group() as group:
        pipes = PipePair(read, write)
        dispatcher = LineDispatcher(pipes, inline=INLINE, holds_back=True)
        group.start_soon(serve_connection, server.answers, dispatcher)
        await ask("initialize", **HELLO)
        os.write(their_write, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        await ask("tools/list")
        for number in range(WARM):
            await ask("tools/call", name=name, arguments={"a": 1, "b": number})
        await anyio.sleep(0.2)
        sys.setprofile(note)
        await ask("tools/call", name=name, arguments={"a": 1, "b": 7})
        sys.setprofile(None)
        pipes.stop()
        group.cancel_scope.cancel()
    return count


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="changes nothing: there are no rounds")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.serve:
        serve(Toolset(add), stats=False)
        return
    finished = surroundings("extension_calls", {})
    rows: list[list[str]] = []
    with TemporaryDirectory() as folder:
        place = Path(folder)
        each: dict[str, dict[str, Any]] = {
            "none": {},
            "audit": {"audit": place / "audit.jsonl"},
            "stats": {"stats": place / "stats.sqlite3"},
            "large_results": {"large_results": 2_000},
            "learning": {"learning": place / "learnt.json"},
            "journal": {"journal": place / "calls.sqlite3"},
            "limits": {"limits": {"*": Limits(rate="60000/min")}},
            "approvals, with a policy": {
                "policy": Policy(allow=["*"]),
                "approvals": place / "approvals.sqlite3",
            },
            "suspended": {"suspended": place / "suspended.sqlite3"},
            "task_after": {"task_after": 60},
            "tasks off": {"tasks": False},
        }
        for name, options in each.items():
            say("extension_calls", name)
            rows.append([name, *(str(anyio.run(counted, made, options)) for made in (local, mounted))])
    print(markdown(["extension", "local", "mounted"], rows))
    if words.json is not None:
        found = {name: {"local": int(first), "mounted": int(second)} for name, first, second in rows}
        words.json.write_text(json.dumps({**finished(), "calls": found}, indent=2))


if __name__ == "__main__":
    main()
