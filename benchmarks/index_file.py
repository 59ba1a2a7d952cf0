"""A search index from its file: the first answer of a process, beside `import mcp`; building; a changed tool.

    python benchmarks/index_file.py [--rounds 9] [--sizes 500,10000,50000] [--json FILE]

The tools are the made-up ones of `growth.py`. For each size an index is built and saved in a process of its
own. In each round, after a first one that is thrown away, a new process imports the package, opens the file,
answers one query and ends, and another one imports the SDK; times are from starting the process to the line
that it prints, CPU is that of the whole process, memory its peak. A ratio is of medians. Then the file is
opened once more and a tool is changed again and again, with a query after each change: medians of CPU.
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
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from growth import ASKED, made_up
from measuring import markdown
from reporting import say, surroundings

from mcp_toolset.search import SearchIndex

FIRST: Final = f"""
import sys, time
began = time.perf_counter()
from mcp_toolset.search import SearchIndex
imported = time.perf_counter()
found = SearchIndex.open(sys.argv[1]).search({ASKED!r})
answered = time.perf_counter()
print(len(found), imported - began, answered - imported, flush=True)
status = open("/proc/self/status").read()
print(status.split("VmHWM:")[1].split()[0])
"""
SDK: Final = "import mcp; print(flush=True)"


def process(*arguments: str) -> dict[str, float]:
    """Milliseconds until a program prints its line, its CPU, and what it says of itself."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        said = [float(number) for number in child.stdout.readline().split()]
        took = time.perf_counter() - began
        memory = child.stdout.read()
        used = os.wait4(child.pid, 0)[2]
        child.returncode = 0
    found = {"answered, ms": 1e3 * took, "CPU, ms": 1e3 * (used.ru_utime + used.ru_stime)}
    if said:
        if not said[0]:
            raise RuntimeError("the search has found nothing")
        found |= {"importing, ms": 1e3 * said[1], "open and search, ms": 1e3 * said[2]}
        found["memory, MB"] = int(memory) / 1024
    return found


def cpu_of(work: Callable[[], object]) -> float:
    """Milliseconds of CPU."""
    began = time.process_time()
    work()
    return 1e3 * (time.process_time() - began)


def built(size: int, path: str) -> dict[str, float]:
    """The cost of building and saving an index."""
    tools, held = [made_up(number) for number in range(size)], list[SearchIndex]()
    building = cpu_of(lambda: held.append(SearchIndex(tools)))
    first = cpu_of(lambda: held[0].search(ASKED))
    saving = cpu_of(lambda: held[0].save(path))
    return {
        "build and first query, s": (building + first) / 1e3,
        "save, s": saving / 1e3,
        "file, MB": Path(path).stat().st_size / 1e6,
    }


def changed(size: int, path: str, rounds: int) -> dict[str, float]:
    """The cost of a changed tool over a file."""
    index = SearchIndex.open(path)
    index.search(ASKED)
    taken: dict[str, list[float]] = {
        "a changed tool, ms": [],
        "the query after it, ms": [],
        "a query, ms": [],
    }
    for edition in range(1, 2 + 4 * rounds):
        tool = made_up(edition % size, edition)
        taken["a changed tool, ms"].append(cpu_of(lambda tool=tool: index.add([tool])))
        taken["the query after it, ms"].append(cpu_of(lambda: index.search(ASKED)))
        taken["a query, ms"].append(cpu_of(lambda: index.search(ASKED)))
    return {what: statistics.median(times) for what, times in taken.items()}


def alone(work: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """The same in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def measured(size: int, rounds: int) -> dict[str, float]:
    """All figures of one size."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/tools.index"
        found = alone(built, size, path)
        ours, theirs = list[dict[str, float]](), list[dict[str, float]]()
        for _ in range(rounds + 1):
            ours.append(process("-c", FIRST, path))
            theirs.append(process("-c", SDK))
        for name in ours[0]:
            found[f"first answer, {name}"] = statistics.median(one[name] for one in ours[1:] or ours)
        for name in ("answered, ms", "CPU, ms"):
            sdk = statistics.median(one[name] for one in theirs[1:] or theirs)
            found |= {f"import mcp, {name}": sdk, f"ratio, {name[:-4]}": found[f"first answer, {name}"] / sdk}
        return found | alone(changed, size, path, rounds)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", default="500,10000,50000")
    parser.add_argument("--quick", action="store_true", help="once, and small: shows that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rounds = 0 if options.quick else options.rounds
    sizes = [60] if options.quick else [int(size) for size in options.sizes.split(",")]
    about = surroundings("index_file", {"rounds": rounds, "sizes": sizes})
    report = {str(size): measured(size, rounds) for size in sizes}
    rows = [(what, *(f"{report[str(size)][what]:.3g}" for size in sizes)) for what in report[str(sizes[0])]]
    say("index_file", markdown(("tools", *map(str, sizes)), rows))
    if options.json is not None:
        options.json.write_text(json.dumps({**about(), "sizes": report}, indent=1) + "\n")


if __name__ == "__main__":
    main()
