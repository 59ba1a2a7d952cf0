"""How often the search is silent where a tool answers, and how often it answers where no tool does.

    python benchmarks/search_silence.py

Answerable: each query over a small catalog, the tools that it needs and others drawn at random from its set.
Unanswerable: everyday requests of MetaTool over the tools of a few servers for developers. Some of those
requests do fit one of these tools, so even a perfect search answers a part of them. The draw
has a fixed seed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

from search import DEVELOPMENT_SETS, PAIRS, Asked, asked, entries_of, lines

from mcp_toolset.catalog.search.index import CatalogEntry, SearchIndex

SIZES = (20, 50, 200)
ASKED = 200
DEVELOPERS = frozenset({"git", "docker-mcp", "chess", "hugeicons", "maven-deps-server", "mermaid-validator"})
NONSENSE = ("asdf qwer zxcv", "xyzzy plugh", "qqqq", "lorem ipsum dolor", "blorp the snarf", "zzz 12345")


def main() -> int:
    print("| queries | tools | silent, % | needed tool among 5, % |\n|---|---|---|---|")
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
    silent = found = slots = 0
    for query in chosen:
        names = [hit.name for hit in drawn(query, entries, size, chance).search(query.text, limit=5)]
        silent += not names
        found += sum(not slot.isdisjoint(names) for slot in query.needed)
        slots += len(query.needed)
    return f"| {queries} | {size} | {100 * silent / len(chosen):.1f} | {100 * found / slots:.1f} |"


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
    requests = [record["query"] for record in lines(DEVELOPMENT_SETS / "queries_metatool.jsonl")]
    silent = 100 * sum(not index.search(request) for request in requests) / len(requests)
    nothing = 100 * sum(not index.search(request) for request in NONSENSE) / len(NONSENSE)
    return (
        f"| MetaTool of developers' tools | {len(entries)} | {silent:.1f} | |\n"
        f"| nonsense | {len(entries)} | {nothing:.1f} | |"
    )


if __name__ == "__main__":
    sys.exit(main())
