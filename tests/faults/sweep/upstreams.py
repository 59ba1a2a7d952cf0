"""The sweep over hostile upstream servers: every message × every fault × both eras × stdio and HTTP.

In each case a server answers one message in a wrong way, once. Afterwards three things must hold: every call
has ended within its time (in an error where it could have no result), the next call works, nothing is left.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from tests.faults.harness import alive, received
from tests.faults.sweep.case import Case
from tests.faults.sweep.messages import MESSAGES, SPOILED

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer, tool
from mcp_toolset.errors import UpstreamError

HERE = Path(__file__).parent
TIMEOUT = 1.5
START = 8.0
GRACE = 20.0
"""Seconds beyond a deadline that a busy machine may take."""

LONGEST = 300
"""Characters that an error may have."""

CALLS = 3
ENDING = ("exit", "kill", "stop", "half and exit", "close output", "close input")
STDIO = (*MESSAGES, *ENDING, "late")
WIRE = (
    "drop",
    "half body",
    "500",
    "404",
    "401",
    "429",
    "302",
    "empty body",
    "wrong type",
    "accepted",
    "late",
)
HTTP = (
    *MESSAGES,
    *(f"events: {name}" for name in MESSAGES),
    *WIRE,
    "stream without answer",
    "broken encoding",
)
FAULTS = {"stdio": STDIO, "http": HTTP}


@tool
def near() -> str:
    """Answer at once, whatever becomes of the server beside it."""
    return "here"


@asynccontextmanager
async def mounted(case: Case, folder: Path) -> AsyncGenerator[RemoteToolset]:
    """The hostile server of a case, mounted."""
    script = {
        "at": case.at,
        "fault": case.fault,
        "flag": str(folder / "flag"),
        "count": str(folder / "count"),
        "log": str(folder / "log"),
        "modern": case.modern,
    }
    command = [sys.executable, "-S", str(HERE / f"{case.transport}_server.py"), json.dumps(script)]
    if case.transport == "stdio":
        yield RemoteToolset(command, name="up", timeout=TIMEOUT, start_timeout=START)
        return
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        try:
            port = int(await anyio.to_thread.run_sync(process.stdout.readline))
            url = f"http://127.0.0.1:{port}/mcp"
            yield RemoteToolset(url, name="up", timeout=TIMEOUT, start_timeout=START)
        finally:
            process.kill()


async def fell_short(case: Case, folder: Path) -> list[str]:
    """What did not hold in a case; empty if all did."""
    wrong: list[str] = []
    try:
        with anyio.fail_after(6 * GRACE):
            async with mounted(case, folder) as remote:
                async with ToolsetServer(Toolset(near, remote)) as server:
                    await _used(case, server, folder, wrong)
    except TimeoutError:
        wrong.append("it did not end")
    # Whatever left the block is what the sweep looks for; it is told, and fails the case.
    except Exception as fault:
        wrong.append(f"{type(fault).__name__} came out: {fault}")
    left = [entry["started"] for entry in received(folder / "log") if "started" in entry]
    if any(map(alive, left)):
        wrong.append("a process is left")
    return wrong


async def _used(case: Case, server: ToolsetServer, folder: Path, wrong: list[str]) -> None:
    with anyio.move_on_after(START + GRACE):
        await server.settled()
    flag = folder / "flag"
    for _ in range(CALLS):
        hit_before = flag.exists()
        with anyio.move_on_after(TIMEOUT + START + GRACE) as patience:
            ok = await _called(server)
            # The answer on an HTTP stream is the request's, whatever its id is.
            was_hit = flag.exists() and not hit_before and flag.read_text() == "tools/call"
            if was_hit and ok and case.fault in SPOILED:
                wrong.append("a call without a result was taken for a success")
        if patience.cancelled_caught:
            wrong.append("a call did not end")
        with anyio.move_on_after(GRACE) as patience:
            await server.call_tool("near", {})
        if patience.cancelled_caught:
            wrong.append("the server beside it was held up")
    with anyio.move_on_after(2 * GRACE) as patience:
        while not await _called(server):  # noqa: ASYNC110
            await anyio.sleep(0.1)
    if patience.cancelled_caught:
        wrong.append(f"it did not come back: {server.statuses()['up'].reason}")


async def _called(server: ToolsetServer) -> bool:
    """True if a call of the server has a result."""
    if "echo" not in {entry["name"] for entry in server.tools()}:
        return False
    try:
        return not (await server.call_tool("echo", {"a": 1})).is_error
    except UpstreamError as fault:
        if "\n" in str(fault) or len(str(fault)) > LONGEST:
            raise AssertionError(f"an error of {len(str(fault))} characters") from fault
        return False


async def messages_of(transport: str, *, modern: bool, folder: Path) -> int:
    """How many messages a server sends in a case in which nothing goes wrong."""
    case = Case(transport, modern, "silent", -1)
    wrong = await fell_short(case, folder)
    if wrong:
        raise AssertionError(f"{case}: {wrong}")
    return int((folder / "count").read_text())


async def cases(folder: Path) -> list[Case]:
    """Every case; the messages are counted in a run without a fault."""
    found: list[Case] = []
    for number, (transport, modern) in enumerate(_ways()):
        (folder / f"count{number}").mkdir()
        count = await messages_of(transport, modern=modern, folder=folder / f"count{number}")
        found += [Case(transport, modern, fault, at) for fault in FAULTS[transport] for at in range(count)]
    return found


def _ways() -> Iterator[tuple[str, bool]]:
    for transport in FAULTS:
        for modern in (False, True):
            yield transport, modern
