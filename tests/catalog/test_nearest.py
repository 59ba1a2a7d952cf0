"""In a large catalog a sketch chooses the tools whose cosines are computed."""

from __future__ import annotations

from random import Random

import pytest

from mcp_toolset import ToolDefinition
from mcp_toolset.catalog.search import meaning
from mcp_toolset.catalog.search.meaning import PackedVectors, best_cosines
from mcp_toolset.search import MeaningScorer, SearchIndex

_SIZE = 64


def _vector(of: Random, near: list[float] | None = None) -> list[float]:
    noise = [of.gauss(0, 1) for _ in range(_SIZE)]
    return noise if near is None else [x + 0.8 * y for x, y in zip(near, noise, strict=True)]


def _packed(of: Random, count: int, topics: list[list[float]]) -> PackedVectors:
    packed = PackedVectors(_SIZE)
    for number in range(count):
        packed.put(f"t{number}", _vector(of, of.choice(topics) if number % 3 else None))
    return packed


@pytest.fixture
def of(monkeypatch: pytest.MonkeyPatch) -> Random:
    monkeypatch.setattr(meaning, "_MANY", 50)
    return Random(7)


def test_the_nearest_by_a_sketch_are_the_nearest_of_all(of: Random) -> None:
    topics = [_vector(of) for _ in range(30)]
    packed = _packed(of, 1_000, topics)
    for turn in range(40):
        asked = _vector(of, of.choice(topics))
        also = [f"t{of.randrange(1_000)}" for _ in range(20)]
        exact = best_cosines(packed.cosines(asked), 30, None, also)
        found = packed.nearest(asked, 30, None, also)
        first = sorted(exact, key=lambda name: (-exact[name], name))[:10]
        assert {name: found[name] for name in first} == {name: exact[name] for name in first}
        assert all(found.get(name) == exact.get(name) for name in also)
        assert len(found.keys() & exact.keys()) >= 0.8 * len(exact), turn
        # Vectors come, change and go, and are found or not as they stand now.
        packed.put(f"t{turn}", asked)
        packed.drop(f"t{turn + 100}")
        assert packed.nearest(asked, 5, None, ()).get(f"t{turn}", 0) > 0.98
        assert f"t{turn + 100}" not in packed.nearest(asked, 100, None, [f"t{turn + 100}"])


def test_among_some_names_only_they_are_found_however_far_they_are(of: Random) -> None:
    topics = [_vector(of) for _ in range(4)]
    packed = _packed(of, 600, topics)
    asked = _vector(of, topics[0])
    ranked = [*best_cosines(packed.cosines(asked), 600, None, ())]
    ranked.sort(key=lambda name: -packed.cosines(asked).of([name])[name])
    for among in (frozenset(ranked[-20:]), {*ranked[-200:]}, {*ranked[40:]}, {*ranked, "nothing"}):
        exact = best_cosines(packed.cosines(asked), 15, among, ())
        found = packed.nearest(asked, 15, among, ())
        assert found.keys() <= among
        assert len(found) == len(exact) == 15
        assert sum(found.values()) >= 0.9 * sum(exact.values())
        assert len(among) > 100 or found == exact


def test_what_a_query_arranges_does_not_grow_with_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "_MANY", 50)
    widths: list[int] = []
    spread = meaning._spread

    def noted(numbers: bytes) -> int:
        widths.append(len(numbers))
        return spread(numbers)

    monkeypatch.setattr(meaning, "_spread", noted)
    actions = "send read delete list create search update upload".split()
    tools = [
        ToolDefinition(f"{actions[n % 8]}_{n}", f"{actions[n % 8]} topic {n % 97}") for n in range(1_500)
    ]
    index = SearchIndex(tools, scorer=MeaningScorer())
    # Two clauses: their vectors are among those arranged for the whole.
    assert index.search("send a message about topic 7 to my friend, then delete the uploaded old files there")
    assert 0 < max(widths) < 700
    assert len({width for width in widths if width > 1}) == 1
