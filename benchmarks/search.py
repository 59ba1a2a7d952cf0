"""The quality and speed of search: recall and milliseconds, per peer and set of queries.

    python benchmarks/search.py --catalog tools.jsonl --queries asked.jsonl [--catalog … --queries …]

Catalogs are JSON lines with `name`, `description`, `input_schema` and perhaps `server`; queries are JSON
lines with `query`, `gold_any` (one list of acceptable `server/name` for each needed tool) and perhaps
`server_hint`, which is measured both with and without. Without arguments the development sets beside
the checkout are used. Recall at k is the share of needed tools that are among the first k hits. `named` is
the share of tools that come first when they are asked for by their public name, and by their own if no
other tool has it. Peers whose packages are missing are left out and named (see `search_peers`). Milliseconds
are CPU of this process, so that other work on the machine counts as little as it can; its load is said.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from search_peers import Finder, peers

from mcp_toolset.catalog.search.index import CatalogEntry
from mcp_toolset.tools.definition import ToolDefinition

DEVELOPMENT_SETS = Path(__file__).resolve().parents[2] / "shared" / "toolsearch"
PAIRS = (
    ("catalog_livemcp.jsonl", "queries_livemcp_steps.jsonl"),
    ("catalog_livemcp.jsonl", "queries_livemcp_agent.jsonl"),
    ("catalog_metatool.jsonl", "queries_metatool.jsonl"),
    ("catalog_sealtools.jsonl", "queries_sealtools_600.jsonl"),
    ("catalog_toollens.jsonl", "queries_toollens_600.jsonl"),
)
DEPTHS = (1, 5, 10)
LARGE = 8_118
REPEATS = 5
ALL_PEERS = ("words", "built-in", "MiniLM", "FastMCP BM25")

Build = Callable[[Sequence[CatalogEntry]], Finder]


@dataclass(frozen=True)
class Asked:
    """A query and, for each tool that it needs, the names that will do."""

    text: str
    needed: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class Row:
    """The results of one peer on one set of queries. `silent` counts queries without an answer."""

    queries: str
    peer: str
    tools: int
    needed: int
    recall: dict[str, float]
    named: float
    silent: int
    median_ms: float
    p95_ms: float


@dataclass(frozen=True)
class Scale:
    """The cost of one peer with `LARGE` tools. `memory_mb` is the growth of a process for this peer alone."""

    peer: str
    tools: int
    index_s: float
    median_ms: float
    p95_ms: float
    add_50_ms: float
    memory_mb: float


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.memory_of:
        print(grown_by(options.memory_of, whole(options.catalog)))
        return 0
    here = {name: build for name, build in peers().items() if not options.peer or name in options.peer}
    pairs = [] if options.only_scale else list(zip(options.catalog, options.queries, strict=True))
    before = os.getloadavg()
    rows = [row for name, build in here.items() for pair in pairs for row in measured(name, build, *pair)]
    print(table(sorted(rows, key=lambda row: row.queries)))
    missing = [name for name in ALL_PEERS if name not in here]
    print(f"\nleft out: {', '.join(missing) or 'none'}\n")
    scales = (
        []
        if options.no_scale
        else [scaled(name, build, options.catalog, options.queries) for name, build in here.items()]
    )
    print(scale_table(scales))
    loads = (f"{load:.1f}" for load in (*before[:1], *os.getloadavg()[:1]))
    print(f"\nload of the machine, before and after: {', '.join(loads)} on {os.cpu_count()} cores")
    if options.json:
        figures = {"sets": [asdict(row) for row in rows], "large": [asdict(scale) for scale in scales]}
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def measured(peer: str, build: Build, catalog: Path, queries: Path) -> Iterator[Row]:
    """One row for the queries as they are, and one with their server hints if they have any."""
    entries = list(entries_of(catalog))
    finder = build(entries)
    named = found_by_name(finder, entries)
    records = list(lines(queries))
    yield row(queries.stem, peer, finder, len(entries), named, [asked(record) for record in records])
    if any(record.get("server_hint") for record in records):
        hinted = [asked(record, hinted=True) for record in records]
        yield row(f"{queries.stem} + hint", peer, finder, len(entries), named, hinted)


def row(label: str, peer: str, finder: Finder, tools: int, named: float, queries: Sequence[Asked]) -> Row:
    found = [finder.find(query.text, max(DEPTHS)) for query in queries]
    slots = [(slot, names) for query, names in zip(queries, found, strict=True) for slot in query.needed]
    recall = {
        f"R@{k}": 100 * sum(not slot.isdisjoint(names[:k]) for slot, names in slots) / len(slots)
        for k in DEPTHS
    }
    silent = sum(not names for names in found)
    return Row(
        label, peer, tools, len(slots), recall, named, silent, *latencies(finder, [q.text for q in queries])
    )


def found_by_name(finder: Finder, entries: Sequence[CatalogEntry]) -> float:
    """Per cent of names that are answered first with the tool that has them."""
    own = Counter(entry.definition.name for entry in entries)
    public = {entry.public_name for entry in entries}
    names = [(entry.public_name, entry.public_name) for entry in entries]
    names += [
        (entry.definition.name, entry.public_name)
        for entry in entries
        if own[entry.definition.name] == 1 and entry.definition.name not in public
    ]
    return 100 * sum(finder.find(name, 1) == [wanted] for name, wanted in names) / len(names)


def whole(catalogs: Iterable[Path]) -> list[CatalogEntry]:
    """As many tools as are measured elsewhere, repeated under other names if there are fewer."""
    entries = {entry.public_name: entry for catalog in catalogs for entry in entries_of(catalog)}
    extra = next(iter(catalogs)).with_name("catalog_toucan.jsonl")
    if extra.exists():
        entries |= {entry.public_name: entry for entry in entries_of(extra)}
    copies = (renamed(entry, str(i)) for i in range(LARGE) for entry in entries.values())
    return [*islice(chain(entries.values(), copies), LARGE)]


def scaled(peer: str, build: Build, catalogs: Sequence[Path], queries: Iterable[Path]) -> Scale:
    entries = whole(catalogs)
    start = time.process_time()
    finder = build(entries)
    index_s = time.process_time() - start
    asked = [record["query"] for path in queries for record in lines(path)]
    if peer == "FastMCP BM25":
        asked = asked[::40]
    median, p95 = latencies(finder, asked)
    more = [renamed(entry, "more") for entry in entries[:50]]
    start = time.process_time()
    finder.add(more)
    finder.find("x", 1)
    add_ms = 1e3 * (time.process_time() - start)
    memory = memory_of(peer, catalogs)
    return Scale(peer, len(entries), index_s, median, p95, add_ms, memory)


def memory_of(peer: str, catalogs: Sequence[Path]) -> float:
    """Measured in a process that does nothing else."""
    chosen = [argument for path in dict.fromkeys(catalogs) for argument in ("--catalog", str(path))]
    command = [sys.executable, __file__, "--memory-of", peer, *chosen]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def grown_by(peer: str, entries: Sequence[CatalogEntry]) -> float:
    """Megabytes of resident memory that an index and its first answer add, a table or model included."""
    build = peers()[peer]
    for entry in entries:
        _ = entry.definition.digest
    before = resident()
    finder = build(entries)
    finder.find("read a file", 10)
    return round(resident() - before, 1)


def resident() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def latencies(finder: Finder, queries: Iterable[str]) -> tuple[float, float]:
    """Median and 95th percentile in milliseconds, counting of each query the quickest of some."""
    took = [1e3 * min(timed(finder, query) for _ in range(REPEATS)) for query in queries]
    return statistics.median(took), statistics.quantiles(took, n=20)[-1] if len(took) > 1 else took[0]


def timed(finder: Finder, query: str) -> float:
    start = time.process_time()
    finder.find(query, 10)
    return time.process_time() - start


def entries_of(path: Path) -> Iterator[CatalogEntry]:
    for record in lines(path):
        definition = ToolDefinition(
            record["name"], record.get("description"), record.get("input_schema") or {}
        )
        server = record.get("server")
        yield CatalogEntry(definition, f"{server}/{definition.name}" if server else definition.name, server)


def renamed(entry: CatalogEntry, mark: str) -> CatalogEntry:
    return replace(entry, public_name=f"{entry.public_name}-{mark}", server=f"{entry.server}-{mark}")


def asked(record: dict[str, Any], *, hinted: bool = False) -> Asked:
    hint = f" {record.get('server_hint', '')}" if hinted else ""
    return Asked(record["query"] + hint, tuple(frozenset(slot) for slot in record["gold_any"]))


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def table(rows: Iterable[Row]) -> str:
    head = "| queries | peer | tools | needed | R@1 | R@5 | R@10 | named | silent | median ms | p95 ms |"
    body = [
        f"| {row.queries} | {row.peer} | {row.tools} | {row.needed} | "
        + " | ".join(f"{row.recall[f'R@{k}']:.1f}" for k in DEPTHS)
        + f" | {row.named:.1f} | {row.silent} | {row.median_ms:.2f} | {row.p95_ms:.2f} |"
        for row in rows
    ]
    return "\n".join([head, "|---" * 11 + "|", *body])


def scale_table(scales: Iterable[Scale]) -> str:
    head = "| peer | tools | index s | median ms | p95 ms | add 50, ms | memory MB |"
    body = [
        f"| {s.peer} | {s.tools} | {s.index_s:.2f} | {s.median_ms:.2f} | {s.p95_ms:.2f} | "
        f"{s.add_50_ms:.1f} | {s.memory_mb:.1f} |"
        for s in scales
    ]
    return "\n".join([head, "|---" * 7 + "|", *body])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", type=Path, action="append", metavar="FILE")
    parser.add_argument("--queries", type=Path, action="append", metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--peer", action="append", metavar="NAME", help="only these peers")
    parser.add_argument("--no-scale", action="store_true", help="leave out the costs at 8,000 tools")
    parser.add_argument("--only-scale", action="store_true", help="only the costs at 8,000 tools")
    parser.add_argument("--memory-of", metavar="PEER", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.memory_of:
        return options
    if not options.catalog and not options.queries:
        if not DEVELOPMENT_SETS.is_dir():
            parser.error(f"no data at {DEVELOPMENT_SETS}; give --catalog FILE and --queries FILE")
        options.catalog, options.queries = (
            [DEVELOPMENT_SETS / pair[side] for pair in PAIRS] for side in (0, 1)
        )
    if len(options.catalog or ()) != len(options.queries or ()):
        parser.error("give one --catalog before each --queries")
    missing = [path for path in (*options.catalog, *options.queries) if not path.is_file()]
    if missing:
        parser.error(f"no such file: {missing[0]}")
    return options


if __name__ == "__main__":
    sys.exit(main())
