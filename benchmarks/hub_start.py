"""The start of a hub of 50 servers over stdio: first list, first search, processes, memory, for each `start`.

    python benchmarks/hub_start.py [--rounds 5] [--servers 50] [--fastmcp PYTHON] [--json FILE]

Every round starts each hub in turns, after a first round that is thrown away: one hub lists its tools,
another has them behind search. A ratio divides times of the same round by those of the SDK's hello server at
its first list; CPU is that of the hub's own process. The servers are `raw_upstream.py` with ten tools, which
use no library. All lists are kept, except in the row of the first run. Memory is the proportional set size
(PSS) 3 s after the first search. `PYTHON` is an interpreter with fastmcp, whose proxy of the same servers has
`BM25SearchTransform` for its search.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from costs import HERE, Raw, raw
from measuring import markdown
from reporting import say, surroundings
from start import OF_SDK, SDK, compiled

TOOLS: Final = 10
QUERY: Final = "return the text that was given"
FIRST_RUN: Final = "ours, background, first run"
HUBS: Final = {
    "ours, lazy": "lazy",
    "ours, background": "background",
    "ours, eager": "eager",
    FIRST_RUN: "background",
}
FASTMCP: Final = "FastMCP"
OF_FASTMCP: Final = """
import json, sys
from fastmcp.server import create_proxy
server = create_proxy(json.load(open(sys.argv[1])))
if "--deferred" in sys.argv:
    from fastmcp.server.transforms.search import BM25SearchTransform
    server.add_transform(BM25SearchTransform())
server.run(show_banner=False)
"""


Point = tuple[float, float]


@dataclass(frozen=True)
class HubStart:
    """One start: (seconds, CPU seconds) until the first list and search, processes below it, and MB."""

    listed: Point
    searched: Point = (0.0, 0.0)
    children: int = 0
    memory: float = 0.0
    of_children: float = 0.0


def below(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have started."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        for child in map(int, (thread / "children").read_text().split()):
            found += [child, *below(child)]
    return found


def share(pid: int) -> float:
    """MB that a process holds, with its part of what it shares."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def first_list(server: Raw, least: int) -> Point:
    """Seconds and CPU seconds until the server has listed at least so many tools."""
    while len(json.loads(server.request("tools/list"))["result"]["tools"]) < least:
        time.sleep(0.01)  # noqa: TID251
    return time.perf_counter() - server.began, server.cpu


def first_search(server: Raw) -> Point:
    """Seconds and CPU seconds until a search has found something."""
    call = {"name": "search_tools", "arguments": {"query": QUERY}}
    while b"echo" not in server.request("tools/call", **call):
        time.sleep(0.01)  # noqa: TID251
    return time.perf_counter() - server.began, server.cpu


def measured(
    command: Sequence[str],
    servers: int,
    python: str,
    environment: Mapping[str, str],
    rest: float,
    *,
    starts: bool = False,
) -> HubStart:
    """Start a hub that lists, and one that searches; `starts` if it starts its servers by itself."""
    with raw(*command, python=python, environment=environment) as server:
        listed = first_list(server, servers * TOOLS)
    with raw(*command, "--deferred", python=python, environment=environment) as server:
        searched = first_search(server)
        while starts and not below(server.process.pid):
            time.sleep(0.01)  # noqa: TID251
        time.sleep(rest)  # noqa: TID251
        children = below(server.process.pid)
        memory, of_children = share(server.process.pid), sum(map(share, children))
    return HubStart(listed, searched, len(children), memory, of_children)


def hello() -> HubStart:
    """Start the SDK's hello server."""
    with raw("-c", OF_SDK) as server:
        return HubStart(first_list(server, 1), memory=share(server.process.pid))


def once(folder: Path, servers: int, fastmcp: str | None, *, quick: bool) -> dict[str, HubStart]:
    """Start each program once."""
    found = {SDK: hello()}
    rest = 0.0 if quick else 3.0
    for name, rule in list(HUBS.items())[: 2 if quick else None]:
        cache = "off" if name == FIRST_RUN else str(folder / "cache")
        environment = {**os.environ, "MCP_TOOLSET_CACHE": cache}
        command = ("-m", "mcp_toolset", "serve", str(folder / f"{rule}.json"))
        starts = rule != "lazy"
        found[name] = measured(command, servers, sys.executable, environment, rest, starts=starts)
    if fastmcp:
        command = ("-c", OF_FASTMCP, str(folder / "plain.json"))
        silent = {**os.environ, "FASTMCP_LOG_LEVEL": "ERROR"}
        found[FASTMCP] = measured(command, servers, fastmcp, silent, rest)
    return found


def write_files(folder: Path, servers: int) -> None:
    """Write the configurations."""
    command = {"command": sys.executable, "args": ["-S", str(HERE / "raw_upstream.py"), str(TOOLS)]}
    entries = {f"s{number:02}": command for number in range(servers)}
    for rule in ("lazy", "background", "eager"):
        file = folder / f"{rule}.json"
        file.write_text(json.dumps({"mcpServers": entries, "toolset": {"start": rule}}))
    (folder / "plain.json").write_text(json.dumps({"mcpServers": entries}))


def row(name: str, starts: Sequence[HubStart], bases: Sequence[HubStart]) -> dict[str, Any]:
    """The medians of one program; both sequences hold one start for each round."""
    pairs = list(zip(starts, bases, strict=True))
    found: dict[str, Any] = {"program": name}
    for key, points in (
        ("list", [(one.listed, base.listed) for one, base in pairs]),
        ("search", [(one.searched, base.listed) for one, base in pairs]),
    ):
        found[f"{key}_ms"] = 1e3 * statistics.median(own[0] for own, _ in points)
        found[f"{key}_ratio"] = statistics.median(own[0] / base[0] for own, base in points)
        found[f"{key}_cpu_ratio"] = statistics.median(own[1] / base[1] for own, base in points)
    return found | {
        "children": max(one.children for one in starts),
        "memory_mb": statistics.median(one.memory for one in starts),
        "children_mb": statistics.median(one.of_children for one in starts),
    }


def shown(one: Mapping[str, Any], key: str) -> tuple[str, str, str]:
    """Three cells about the first list, or the first search."""
    if not one[f"{key}_ms"]:
        return "", "", ""
    return f"{one[f'{key}_ms']:.0f}", f"{one[f'{key}_ratio']:.2f}", f"{one[f'{key}_cpu_ratio']:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--servers", type=int, default=50)
    parser.add_argument("--fastmcp", metavar="PYTHON", help="an interpreter that has fastmcp")
    parser.add_argument("--quick", action="store_true", help="two servers, once: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    rounds, servers = (1, 2) if options.quick else (options.rounds, options.servers)
    about = surroundings("hub_start", {"rounds": rounds, "servers": servers, "quick": options.quick})
    compiled(sys.executable)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_files(folder, servers)
        taken: list[dict[str, HubStart]] = []
        # The first round also has the lists kept. It counts where the numbers do not.
        for number in range(int(options.quick), rounds + 1):
            taken.append(once(folder, servers, options.fastmcp, quick=options.quick))
            say("hub_start", f"round {number} of {rounds}")
    names = list(taken[0])
    counted = taken[-rounds:]
    rows = [row(name, [one[name] for one in counted], [one[SDK] for one in counted]) for name in names]
    head = (
        "program",
        *(f"{key}{rest}" for key in ("list", "search") for rest in (", ms", " ratio", " of CPU")),
    )
    head = (*head, "processes", "MB", "MB of these")
    cells = [
        (
            one["program"],
            *shown(one, "list"),
            *shown(one, "search"),
            str(one["children"]),
            f"{one['memory_mb']:.0f}",
            f"{one['children_mb']:.0f}",
        )
        for one in rows
    ]
    print(markdown(head, cells))
    if options.json:
        options.json.write_text(json.dumps({**about(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
