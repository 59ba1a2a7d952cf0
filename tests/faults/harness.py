"""What the fault tests share: hostile servers as real processes, and bounded waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from mcp_toolset import RemoteToolset, ToolsetServer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOON = 40
"""Seconds for what happens at once: much for a busy machine, and little beside the deadlines of calls."""


def tool(name: str, **more: Any) -> dict[str, Any]:
    """A `tools/list` entry."""
    return {"name": name, "description": f"Tool {name}.", "inputSchema": {"type": "object"}, **more}


def hostile(*arguments: str, **script: Any) -> list[str]:
    """The command of a hostile stdio server; see `behaviour.Behaviour` for the script."""
    return [sys.executable, "-S", str(HERE / "hostile_stdio.py"), json.dumps(script), *arguments]


def mount(
    name: str = "up", *, timeout: float = 60, start_timeout: float = 20, **script: Any
) -> RemoteToolset:
    """A hostile stdio server, mounted."""
    return RemoteToolset(hostile(**script), name=name, timeout=timeout, start_timeout=start_timeout)


def specials(*names: str) -> list[dict[str, Any]]:
    """Tools of these names beside `echo` and `hang`."""
    return [tool(name) for name in ("echo", "hang", *names)]


@contextmanager
def hostile_http(**script: Any) -> Generator[tuple[int, subprocess.Popen[bytes]]]:
    """A hostile HTTP server as a process; yields its port."""
    command = [sys.executable, "-S", str(HERE / "hostile_http.py"), json.dumps(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process
        finally:
            process.kill()


async def until(condition: Callable[[], object], *, within: float = 30) -> None:
    """Wait for something that nobody announces, such as the end of a process."""
    with anyio.fail_after(within):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)


def received(log: Path) -> list[dict[str, Any]]:
    """What a hostile server has logged so far."""
    written = log.read_text() if log.exists() else ""
    # The last line may be half written.
    return [json.loads(line) for line in written.rpartition("\n")[0].splitlines()]


def calls_of(log: Path, name: str) -> list[dict[str, Any]]:
    """The calls of a tool that reached a hostile stdio server."""
    calls = [entry for entry in received(log) if entry.get("method") == "tools/call"]
    return [call for call in calls if call["params"]["name"] == name]


def pid_of(log: Path) -> int:
    """The process that started last with this log."""
    return [entry["started"] for entry in received(log) if "started" in entry][-1]


def kill(log: Path) -> None:
    """Kill the hostile server that logs here."""
    os.kill(pid_of(log), signal.SIGKILL)


def children() -> set[int]:
    """The direct children of this process, zombies included."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


def descriptors() -> int:
    """How many file descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def alive(pid: int) -> bool:
    """True if a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def names(server: ToolsetServer) -> list[str]:
    """The names that a client is shown."""
    return [shown["name"] for shown in server.tools()]


def ready(server: ToolsetServer, name: str = "up") -> Callable[[], bool]:
    """True if a mount is ready, to be waited for."""
    return lambda: server.statuses()[name].state == "ready"
