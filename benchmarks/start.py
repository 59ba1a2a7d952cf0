"""The start: from starting a process to its first answered `tools/list` over stdio, and its memory then.

    python benchmarks/start.py [--rounds 9] [--before PYTHON] [--json FILE]

Every round starts each program once, in turns, after a first round that is thrown away. A ratio divides times
of the same round: servers by the SDK's server with the same tool, programs that only import by
`import pydantic`. `PYTHON` is the interpreter of another checkout's environment, measured in the same run.
The mounted server is `raw_upstream.py`, which uses no library; at a `first run` nothing is known of it yet,
else its list is on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from costs import HERE, raw
from measuring import cpu_of, markdown
from reporting import say, surroundings

TOOL: Final = '''
@tool
def hello(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"
'''
HELLO: Final = f"from mcp_toolset import serve, tool\n{TOOL}\nserve(hello)"
OF_SDK: Final = f"""
from mcp.server import MCPServer
server = MCPServer("hello")
tool = server.tool()
{TOOL}
server.run()
"""
UPSTREAM: Final = [sys.executable, "-S", str(HERE / "raw_upstream.py")]
MOUNT: Final = f"""
from mcp_toolset import RemoteToolset, serve
serve(RemoteToolset({UPSTREAM!r}, name="raw"))
"""
SDK: Final = "the SDK's hello server"
FIRST: Final = "one mounted server, first run"
SERVERS: Final = {SDK: OF_SDK, "a hello server": HELLO, "one mounted server": MOUNT, FIRST: MOUNT}

PYDANTIC: Final = "import pydantic"
IMPORTS: Final = (PYDANTIC, "from mcp_toolset import tool, Toolset")


@dataclass(frozen=True)
class Start:
    """One start of one program: seconds until it has answered, CPU seconds and MB of memory by then."""

    wall: float
    cpu: float
    memory: float


def served(python: str, program: str, environment: Mapping[str, str]) -> Start:
    """Start a server and ask it for its tools."""
    with raw("-c", program, python=python, environment=environment) as server:
        tools = json.loads(server.request("tools/list"))["result"]["tools"]
        if len(tools) != 1:
            raise RuntimeError(f"{len(tools)} tools were listed")
        return Start(time.perf_counter() - server.began, server.cpu, memory(server.process.pid))


def imported(python: str, program: str) -> Start:
    """Run a program that imports something, and then waits until it has been looked at."""
    began = time.perf_counter()
    waiting = f"{program}; import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([python, "-c", waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return Start(time.perf_counter() - began, cpu_of(process.pid), memory(process.pid))


def memory(pid: int) -> float:
    """MB that a process holds, shared libraries among them."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def programs(before: str | None, folder: Path) -> dict[str, Callable[[], Start]]:
    """By name what is started; those of the interpreter `before` have names that end in `, before`."""
    found: dict[str, Callable[[], Start]] = {}
    for python, suffix in [(sys.executable, ""), *([(before, ", before")] if before else [])]:
        kept = {**os.environ, "MCP_TOOLSET_CACHE": str(folder / f"cache{suffix}")}
        nothing = {**os.environ, "MCP_TOOLSET_CACHE": "off"}
        for name, program in SERVERS.items():
            if not (suffix and name == SDK):
                environment = nothing if name == FIRST else kept
                found[name + suffix] = partial(served, python, program, environment)
        for name in IMPORTS:
            if not (suffix and name == PYDANTIC):
                found[name + suffix] = partial(imported, python, name)
    return found


def base_of(name: str) -> str:
    """What a program is compared with."""
    return PYDANTIC if "import " in name else SDK


def compiled(python: str) -> None:
    """Compile the sources as an installer does, so that no start has to."""
    where = "import mcp_toolset, os; print(os.path.dirname(mcp_toolset.__file__))"
    package = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([python, "-m", "compileall", "-q", package], check=True)


def row(name: str, starts: Sequence[Start], bases: Sequence[Start]) -> dict[str, Any]:
    """The medians of one program; both sequences hold one start for each round."""
    pairs = list(zip(starts, bases, strict=True))
    ratios = [own.wall / base.wall for own, base in pairs]
    return {
        "program": name,
        "ms": 1e3 * statistics.median(start.wall for start in starts),
        "cpu_ms": 1e3 * statistics.median(start.cpu for start in starts),
        "ratio": statistics.median(ratios),
        "ratio_lo": min(ratios),
        "ratio_hi": max(ratios),
        "cpu_ratio": statistics.median(own.cpu / base.cpu for own, base in pairs),
        "memory_mb": statistics.median(start.memory for start in starts),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--before", metavar="PYTHON", help="the interpreter of another checkout")
    parser.add_argument(
        "--quick", action="store_true", help="once each, with no round before: shows that it runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    rounds = 1 if options.quick else options.rounds
    about = surroundings("start", {"rounds": rounds, "quick": options.quick, "before": bool(options.before)})
    for python in filter(None, (sys.executable, options.before)):
        compiled(python)
    with tempfile.TemporaryDirectory() as folder:
        started = programs(options.before, Path(folder))
        starts: dict[str, list[Start]] = {name: [] for name in started}
        for number in range(int(options.quick), rounds + 1):
            for name, run in started.items():
                starts[name].append(run())
            say("start", f"round {number} of {rounds}")
    measured = {name: taken[-rounds:] for name, taken in starts.items()}
    rows = [row(name, taken, measured[base_of(name)]) for name, taken in measured.items()]
    head = ("program", "ms", "ratio", "CPU ms", "ratio", "memory, MB")
    cells = [
        (
            one["program"],
            f"{one['ms']:.0f}",
            f"{one['ratio']:.2f} ({one['ratio_lo']:.2f} to {one['ratio_hi']:.2f})",
            f"{one['cpu_ms']:.0f}",
            f"{one['cpu_ratio']:.2f}",
            f"{one['memory_mb']:.1f}",
        )
        for one in rows
    ]
    print(markdown(head, cells))
    if options.json:
        options.json.write_text(json.dumps({**about(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
