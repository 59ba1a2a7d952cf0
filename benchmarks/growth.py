"""Growth of costs: a call before 10 to 10,000 tools or 1 to 100 servers, starts, and a change of one server.

    python benchmarks/growth.py [--rounds 5] [--json FILE]

The bridge is a process of its own before `raw_upstream.py`, spoken to in raw bytes; the cost of a call is the
CPU of that process, the least of short samples, taken in turns. Servers that take 0.3 s to start are started
through the bridge in this process, and without any bridge, all at once, for comparison. What a change costs
is the CPU of this process from the call that changes one tool until that is served: the tools of that server
are listed again, and what is served is compiled. An index for search is built of made-up tools, and one of
them is changed again and again: medians of CPU, and what the index adds to resident memory.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import anyio
from costs import HERE, Raw, bridge, raw
from measuring import markdown
from reporting import say, surroundings

from mcp_toolset import RemoteToolset, ToolDefinition, Toolset, ToolsetServer
from mcp_toolset.catalog.search.index import SearchIndex

SLOW = 0.3
"""Seconds that each server takes to start."""

CALLS = 50
DEADLINE = 120.0


def least_cpu(server: Raw, name: str) -> float:
    """CPU milliseconds of one call, in a sample of `CALLS`."""
    before = server.cpu
    for _ in range(CALLS):
        server.request("tools/call", name=name, arguments={"text": "x" * 64})
    return 1e3 * (server.cpu - before) / CALLS


def curve(
    sizes: Sequence[int], rounds: int, opened: Callable[[int], list[str]], name: str
) -> dict[int, float]:
    """The cost of a call at each size; all bridges are up together and are measured in turns."""
    found: dict[int, list[float]] = {size: [] for size in sizes}
    with ExitStack() as stack:
        servers = {size: stack.enter_context(raw(*opened(size))) for size in sizes}
        for size, server in servers.items():
            server.wait_for(size)
            least_cpu(server, name)
        for _ in range(rounds * 4):
            for size, server in servers.items():
                found[size].append(least_cpu(server, name))
    return {size: min(taken) for size, taken in found.items()}


def slow_command() -> list[str]:
    return [sys.executable, "-S", str(HERE / "raw_upstream.py"), "1", str(SLOW)]


def started(count: int) -> float:
    """Seconds until so many servers, mounted, have all listed their tools."""

    async def run() -> float:
        mounts = [RemoteToolset(slow_command(), name=f"up{n}").prefixed(f"u{n}") for n in range(count)]
        began = time.perf_counter()
        async with ToolsetServer(Toolset(*mounts)) as server:
            await server.settled()
            if len(server.tools()) != count:
                raise RuntimeError(f"{len(server.tools())} of {count} are up: {server.statuses()}")
            return time.perf_counter() - began

    return anyio.run(run)


def started_bare(count: int) -> float:
    """The same without a bridge: seconds until so many processes, started at once, have all answered."""
    began = time.perf_counter()
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(slow_command(), stdin=pipe, stdout=pipe) for _ in range(count)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n')
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    took = time.perf_counter() - began
    for process in processes:
        process.communicate()
    return took


def starting(count: int, rounds: int) -> dict[str, float]:
    alone, together, bare = [], [], []
    for _ in range(rounds):
        alone.append(started(1))
        together.append(started(count))
        bare.append(started_bare(count))
    return {
        "servers": count,
        "one, s": min(alone),
        "all, s": min(together),
        "all without a bridge, s": min(bare),
        "all beyond one, s": min(together) - min(alone),
    }


def changing(count: int, tools: int, rounds: int, *, deferred: bool) -> float:
    """CPU milliseconds until a changed tool of one of so many servers is served, the least of the rounds."""

    async def run() -> float:
        command = [sys.executable, "-S", str(HERE / "raw_upstream.py"), str(tools)]
        mounts = [RemoteToolset(command, name=f"up{n}").prefixed(f"u{n}") for n in range(count)]
        toolset = Toolset(*mounts)
        async with ToolsetServer(toolset.deferred() if deferred else toolset, keep=False) as server:
            await server.settled()
            await served(server, lambda name: name == f"u{count - 1}_echo{tools - 1}")
            taken = [await changed(server, edition) for edition in range(1, 2 + rounds)]
        return 1e3 * min(taken)

    return anyio.run(run)


def indexed(size: int, rounds: int) -> dict[str, float]:
    """The cost of an index of so many tools, and of a change of one of them: CPU milliseconds and bytes."""
    tools = [made_up(number) for number in range(size)]
    before, began = resident(), time.process_time()
    index = SearchIndex(tools)
    index.search(ASKED)
    found = {"build, s": time.process_time() - began, "memory, MB": (resident() - before) / 1e6}
    taken: dict[str, list[float]] = {"a change": [], "the query after it": [], "a query": []}
    for edition in range(1, 1 + rounds):
        tool = made_up(edition % size, edition)
        for what, work in (
            ("a change", lambda: index.add([tool])),  # noqa: B023
            ("the query after it", lambda: index.search(ASKED)),
            ("a query", lambda: index.search(ASKED)),
        ):
            began = time.process_time()
            work()
            taken[what].append(1e3 * (time.process_time() - began))
    return found | {f"{what}, ms": statistics.median(times) for what, times in taken.items()}


def in_a_process(size: int, rounds: int) -> dict[str, float]:
    """The same in a process of its own, so that no memory is used a second time."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(indexed, size, rounds).result()


ASKED = "send a message to a user"
WORDS = (
    "send read list create update delete message user issue page order weather image table event note".split()
)


def made_up(number: int, edition: int = 0) -> ToolDefinition:
    """A tool with twenty words, half of them from a vocabulary of 6,000."""
    of = Random(f"{number} {edition}")
    said = [of.choice(WORDS) if of.random() < 0.5 else spelled(of.randrange(6_000)) for _ in range(20)]
    return ToolDefinition(f"{WORDS[number % len(WORDS)]}_{number}", " ".join(said))


def spelled(number: int) -> str:
    return "".join("bdfgklmnprst"[number // 12**place % 12] + "aeio"[place] for place in range(4))


def resident() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def changed(server: ToolsetServer, edition: int) -> float:
    """CPU seconds until the first tool of the first server is served in another edition."""
    # Nothing of what came before is left to do.
    await anyio.sleep(0.5)
    before = time.process_time()
    await server.call_as_host("u0_echo", {"text": "x", "edition": edition, "tools": 1})
    await served(server, lambda name: name == "u0_echo", f"Edition {edition}.")
    await anyio.sleep(0.5)
    return time.process_time() - before


async def served(server: ToolsetServer, named: Callable[[str], bool], ending: str = "") -> None:
    """Wait for a tool; looking costs little."""
    with anyio.fail_after(DEADLINE):
        while not any(  # noqa: ASYNC110
            named(one.name) and (one.definition.description or "").endswith(ending)
            for one in server.bindings()
        ):
            await anyio.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="once each, and small: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    logging.disable()
    rounds = 1 if options.quick else options.rounds
    about = surroundings("growth", {"rounds": rounds, "quick": options.quick})
    sizes = (10, 30) if options.quick else (10, 100, 1000, 10_000)
    servers = (1, 3) if options.quick else (1, 10, 30, 100)
    report: dict[str, Any] = {"tools": curve(sizes, rounds, lambda size: bridge(size), "echo")}
    say("growth", f"tools: {report['tools']}")
    report["servers"] = curve(servers, rounds, lambda size: bridge(1, size, prefixed=True), "u0_echo")
    say("growth", f"servers: {report['servers']}")
    report["starting"] = starting(2 if options.quick else 20, rounds)
    mounted = (2, 10) if options.quick else (20, 400)
    for deferred in (False, True):
        kind = "deferred" if deferred else "listed"
        report.setdefault("changing", {})[kind] = changing(*mounted, rounds, deferred=deferred)
    say("growth", f"changing: {report['changing']}")
    catalogs = (20, 60) if options.quick else (500, 8_000, 50_000)
    report["index"] = {size: in_a_process(size, 4 * rounds) for size in catalogs}
    rows = [
        (f"a call with {size} {what}, CPU ms", f"{cost:.3f}")
        for what in ("tools", "servers")
        for size, cost in report[what].items()
    ]
    rows += [(f"starting: {name}", f"{figure:.3f}") for name, figure in report["starting"].items()]
    where = f"of one of {mounted[0]} servers with {mounted[1]} tools each"
    rows += [
        (f"a changed tool {where}, {kind}, CPU ms", f"{cost:.0f}")
        for kind, cost in report["changing"].items()
    ]
    rows += [
        (f"an index of {size} tools: {what}", f"{figure:.2f}")
        for size, figures in report["index"].items()
        for what, figure in figures.items()
    ]
    print(markdown(("what", "figure"), rows))
    if options.json:
        options.json.write_text(json.dumps({**about(), **report}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
