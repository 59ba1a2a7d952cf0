"""The gain of search by learning from use: recall before and after, and what a hostile tenant reaches.

    python benchmarks/learning.py --catalog tools.jsonl --queries asked.jsonl [--uses 1000] [--seed 7]

Half of the queries, drawn by the seed, are used: each is searched, and a tool that it needs is resolved and
called if it is among the first ten hits. Recall at 5 is measured on the other half. Then a hostile tenant
calls one tool, whatever is asked for, and as often the last wrong hit; how far that moves a tool for this
tenant, what it costs the recall of this tenant, and whether others see a difference, is counted. There is no
server: the parts are called as the catalog calls them.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from reporting import say
from search import Asked, asked, entries_of, lines

from mcp_toolset.catalog.search.index import SearchIndex
from mcp_toolset.extensions.learning.extension import SearchLearning
from mcp_toolset.extensions.learning.settings import MAX_BONUS
from mcp_toolset.tools.call import ToolContext

POOL = 100
SHOWN = 10


class Tenant(ToolContext):
    """An authenticated caller."""

    def __init__(self, principal: str) -> None:
        self.principal = principal


class Searches:
    """An index, and what its tenants have used."""

    def __init__(self, index: SearchIndex, most: float) -> None:
        self._index = index
        self._kept: dict[str, list[tuple[str, float]]] = {}
        self.learning = SearchLearning(max_bonus=most, clock=lambda: 0.0)

    def ranked(self, query: str, tenant: Tenant) -> list[str]:
        """The public names, best first."""
        if query not in self._kept:
            self._kept[query] = [(hit.name, hit.score) for hit in self._index.search(query, limit=POOL)]
        bonus = self.learning.bonus(tenant, query)
        return [name for name, _ in sorted(self._kept[query], key=lambda hit: -hit[1] - bonus.get(hit[0], 0))]

    def use(self, query: str, tenant: Tenant, tool: str) -> bool:
        """Search, resolve and call, if the tool was found."""
        found = self.ranked(query, tenant)[:SHOWN]
        self.learning.searched(tenant, query, found)
        if tool in found:
            self.learning.resolved(tenant, tool)
            self.learning.called(tenant, tool)
        return tool in found

    def recall(self, queries: Sequence[Asked], tenant: Tenant) -> float:
        """Recall at 5 in per cent."""
        hits = [
            bool(needed & set(self.ranked(one.text, tenant)[:5])) for one in queries for needed in one.needed
        ]
        return 100 * sum(hits) / len(hits)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--uses", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--most", type=float, default=MAX_BONUS)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    entries = list(entries_of(options.catalog))
    queries = [asked(record) for record in lines(options.queries)]
    chance.shuffle(queries)
    used, held_out = queries[: len(queries) // 2], queries[len(queries) // 2 :]
    searches = Searches(SearchIndex(entries), options.most)
    honest, hostile, other = Tenant("honest"), Tenant("hostile"), Tenant("other")
    before = searches.recall(held_out, other)
    counted = 0
    for _ in range(options.uses):
        one = chance.choice(used)
        found = searches.ranked(one.text, honest)[:SHOWN]
        right = [name for needed in one.needed for name in found if name in needed]
        counted += bool(right) and searches.use(one.text, honest, right[0])
    after = searches.recall(held_out, honest)
    say(
        "learning",
        f"{options.queries.stem}: R@5 on {len(held_out)} held-out queries {before:.1f} → {after:.1f}",
    )
    say(
        "learning",
        f"{options.uses} uses, {counted} counted; another tenant: {searches.recall(held_out, other):.1f}",
    )
    plain = {one.text: searches.ranked(one.text, other) for one in held_out}
    pushed = chance.choice(entries).public_name
    taken = sum(searches.use(chance.choice(queries).text, hostile, pushed) for _ in range(options.uses))
    wrong = 0
    for _ in range(options.uses):
        one = chance.choice(queries)
        bad = [
            name
            for name in searches.ranked(one.text, hostile)[:SHOWN]
            if not any(name in n for n in one.needed)
        ]
        wrong += bool(bad) and searches.use(one.text, hostile, bad[-1])
    moved = [
        rank - searches.ranked(text, hostile).index(name)
        for text, names in plain.items()
        for rank, name in enumerate(names)
    ]
    lost = sum(set(searches.ranked(text, hostile)) != set(names) for text, names in plain.items())
    same = all(searches.ranked(text, other) == names for text, names in plain.items())
    told = [
        f"poisoned by {options.uses} uses of {pushed} ({taken} counted)",
        f"and {options.uses} of the last wrong hit ({wrong} counted):",
        f"R@5 of that tenant {before:.1f} → {searches.recall(held_out, hostile):.1f};",
        f"a tool moved up {max(moved)} places at most; answers with a tool more or less: {lost};",
        f"others see what they saw: {same}",
    ]
    say("learning", "\n".join(told))


if __name__ == "__main__":
    main()
