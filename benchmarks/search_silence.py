"""The rates of searches that are silent or unsure where a tool answers, and sure where none does.

    python benchmarks/search_silence.py

Answerable: each query over a small catalog, the tools that it needs and others drawn at random from its set.
Unanswerable: everyday requests of MetaTool over the tools of a few servers for developers. Some of those
requests do fit one of these tools, so even a perfect search answers a part of them. The draw
has a fixed seed. A search is unsure if it says that its hits are only the nearest.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

from search import DEVELOPMENT_SETS, PAIRS, Asked, asked, entries_of, lines

from mcp_toolset.catalog.search.index import CatalogEntry, SearchHit, SearchIndex

SIZES = (20, 50, 200)
ASKED = 200
DEVELOPERS = frozenset({"git", "docker-mcp", "chess", "hugeicons", "maven-deps-server", "mermaid-validator"})
NONSENSE = ("asdf qwer zxcv", "xyzzy plugh", "qqqq", "lorem ipsum dolor", "blorp the snarf", "zzz 12345")


def main() -> int:
    print("| queries | tools | silent, % | unsure, % | needed tool among 5, % |\n|---|---|---|---|---|")
    for catalog, queries in PAIRS:
        for size in SIZES:
            print(answerable(catalog, queries, size))
    print(unanswerable())
    return 0


def answerable(catalog: str, queries: str, size: int) -> str:
    """The row of one set over catalogs of one size."""
    chance = random.Random(size)
    entries = {entry.public_name: entry for entry in entries_of(DEVELOPMENT_SETS / catalog)}
    records = [asked(record) for record in lines(DEVELOPMENT_SETS / queries)]
    chosen = records if len(records) <= ASKED else chance.sample(records, ASKED)
    silent = unsure = found = slots = 0
    for query in chosen:
        hits = drawn(query, entries, size, chance).search(query.text, limit=5)
        names = [hit.name for hit in hits]
        silent += not hits
        unsure += is_unsure(hits)
        found += sum(not slot.isdisjoint(names) for slot in query.needed)
        slots += len(query.needed)
    shares = (100 * silent / len(chosen), 100 * unsure / len(chosen), 100 * found / slots)
    return f"| {queries} | {size} | {' | '.join(f'{share:.1f}' for share in shares)} |"


def is_unsure(hits: Sequence[SearchHit]) -> bool:
    return bool(hits) and not hits[0].fits


def drawn(query: Asked, entries: dict[str, CatalogEntry], size: int, chance: random.Random) -> SearchIndex:
    """An index of one tool for each need of the query, and others."""
    needed = [chance.choice(sorted(slot)) for slot in query.needed]
    answering = frozenset[str]().union(*query.needed)
    others = [name for name in entries if name not in answering]
    names: Sequence[str] = [*needed, *chance.sample(others, min(len(others), size - len(needed)))]
    return SearchIndex(entries[name] for name in names if name in entries)


def unanswerable() -> str:
    """The rows of what no tool of the servers for developers answers, and of nonsense."""
    entries = [
        entry
        for entry in entries_of(DEVELOPMENT_SETS / "catalog_livemcp.jsonl")
        if entry.server in DEVELOPERS
    ]
    index = SearchIndex(entries)
    everyday = [record["query"] for record in lines(DEVELOPMENT_SETS / "queries_metatool.jsonl")]
    rows: list[str] = []
    for label, requests in (("MetaTool of developers' tools", everyday), ("nonsense", NONSENSE)):
        answers = [index.search(request) for request in requests]
        silent = 100 * sum(not hits for hits in answers) / len(answers)
        unsure = 100 * sum(map(is_unsure, answers)) / len(answers)
        rows.append(f"| {label} | {len(entries)} | {silent:.1f} | {unsure:.1f} | |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
