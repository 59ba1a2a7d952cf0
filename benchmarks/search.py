"""How well and how fast the search finds tools: recall and milliseconds, per set of queries.

    python benchmarks/search.py --catalog tools.jsonl --queries asked.jsonl [--catalog … --queries …]

Catalogs are JSON lines with `name`, `description`, `input_schema` and perhaps `server`; queries are JSON
lines with `query`, `gold_any` (one list of acceptable `server/name` for each needed tool) and perhaps
`server_hint`, which is measured both with and without. Without arguments the development sets beside
the checkout are used. Recall at k is the share of needed tools that are among the first k hits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from mcp_toolset.catalog.search import CatalogEntry, SearchIndex
from mcp_toolset.tools.definition import ToolDefinition

DEVELOPMENT_SETS = Path(__file__).resolve().parents[2] / "shared" / "toolsearch"
PAIRS = (
    ("catalog_livemcp.jsonl", "queries_livemcp_steps.jsonl"),
    ("catalog_livemcp.jsonl", "queries_livemcp_agent.jsonl"),
    ("catalog_metatool.jsonl", "queries_metatool.jsonl"),
)
DEPTHS = (1, 5, 10)
LARGE = 8_118


@dataclass(frozen=True)
class Asked:
    """A query and, for each tool that it needs, the names that will do."""

    text: str
    needed: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class Row:
    """What was measured on one set of queries."""

    queries: str
    tools: int
    needed: int
    recall: dict[str, float]
    median_ms: float
    p95_ms: float
    index_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    pairs = list(zip(options.catalog, options.queries, strict=True))
    rows = [row for catalog, queries in pairs for row in measured(catalog, queries)]
    scale = scaled(options.catalog, options.queries)
    print(table(rows))
    print("\n" + ", ".join(f"{key} {value}" for key, value in scale.items()))
    if options.json:
        options.json.write_text(json.dumps({"sets": [asdict(row) for row in rows], "large": scale}, indent=1))
    return 0


def measured(catalog: Path, queries: Path) -> Iterator[Row]:
    """One row for the queries as they are, and one with their server hints if they have any."""
    entries = list(entries_of(catalog))
    index_s, index = timed_index(entries)
    records = list(lines(queries))
    yield row(queries.stem, index, index_s, [asked(record) for record in records])
    if any(record.get("server_hint") for record in records):
        hinted = [asked(record, hinted=True) for record in records]
        yield row(f"{queries.stem} + hint", index, index_s, hinted)


def row(label: str, index: SearchIndex, index_s: float, queries: Sequence[Asked]) -> Row:
    found = [[hit.name for hit in index.search(query.text, limit=max(DEPTHS))] for query in queries]
    slots = [(slot, names) for query, names in zip(queries, found, strict=True) for slot in query.needed]
    recall = {
        f"R@{k}": 100 * sum(not slot.isdisjoint(names[:k]) for slot, names in slots) / len(slots)
        for k in DEPTHS
    }
    median, p95 = latencies(index, [query.text for query in queries])
    return Row(label, len(index), len(slots), recall, median, p95, index_s)


def scaled(catalogs: Iterable[Path], queries: Iterable[Path]) -> dict[str, float]:
    """Costs with all tools in one index, repeated under other names up to the size measured elsewhere."""
    whole = {entry.public_name: entry for catalog in catalogs for entry in entries_of(catalog)}
    extra = next(iter(catalogs)).with_name("catalog_toucan.jsonl")
    if extra.exists():
        whole |= {entry.public_name: entry for entry in entries_of(extra)}
    copies = (renamed(entry, str(i)) for i in range(LARGE) for entry in whole.values())
    entries = [*whole.values(), *islice(copies, max(0, LARGE - len(whole)))]
    index_s, index = timed_index(entries)
    median, p95 = latencies(index, [record["query"] for path in queries for record in lines(path)])
    more = [renamed(entry, "more") for entry in entries[:50]]
    start = time.perf_counter()
    index.add(more)
    add_ms = 1e3 * (time.perf_counter() - start)
    figures = {"index_s": index_s, "median_ms": median, "p95_ms": p95, "add_50_ms": add_ms}
    return {"tools": len(entries), **{key: round(value, 3) for key, value in figures.items()}}


def latencies(index: SearchIndex, queries: Iterable[str]) -> tuple[float, float]:
    """Median and 95th percentile in milliseconds, each query asked once after one that is not counted."""
    took: list[float] = []
    for query in queries:
        index.search(query)
        start = time.perf_counter()
        index.search(query)
        took.append(1e3 * (time.perf_counter() - start))
    return statistics.median(took), statistics.quantiles(took, n=20)[-1] if len(took) > 1 else took[0]


def timed_index(entries: Sequence[CatalogEntry]) -> tuple[float, SearchIndex]:
    start = time.perf_counter()
    index = SearchIndex(entries)
    return time.perf_counter() - start, index


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
    head = "| queries | tools | needed | R@1 | R@5 | R@10 | median ms | p95 ms | index s |"
    body = [
        f"| {row.queries} | {row.tools} | {row.needed} | "
        + " | ".join(f"{row.recall[f'R@{k}']:.1f}" for k in DEPTHS)
        + f" | {row.median_ms:.2f} | {row.p95_ms:.2f} | {row.index_s:.2f} |"
        for row in rows
    ]
    return "\n".join([head, "|---" * 9 + "|", *body])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", type=Path, action="append", metavar="FILE")
    parser.add_argument("--queries", type=Path, action="append", metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args(arguments)
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
