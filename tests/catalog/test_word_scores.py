"""What a query's words score, added up in columns, against adding it up tool by tool."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from mcp_toolset import ToolDefinition
from mcp_toolset.catalog.search.lexical import ImpactColumn, LexicalScorer, highest
from mcp_toolset.search import CatalogEntry

_COMMON = "alpha bravo delta gamma kilo lima mango november oscar papa".split()


def _word(number: int) -> str:
    return "".join("bdfgklmn"[number // 8**place % 8] + "aeiou"[place] for place in range(4))


def _entry(number: int, edition: int = 0) -> CatalogEntry:
    of = Random(f"{number} {edition}")
    said = [of.choice(_COMMON) if of.random() < 0.6 else _word(of.randrange(400)) for _ in range(12)]
    return CatalogEntry(ToolDefinition(f"tool_{number}", " ".join(said)), f"tool_{number}", None)


def _plainly(scorer: LexicalScorer, query: str, names: Iterable[str]) -> dict[str, float]:
    """The shares of a query, from the impacts of each term, tool by tool."""
    asked = scorer.read(query)
    shares: dict[str, float] = dict.fromkeys(names, 0.0)
    for weight, posting in asked._clauses:
        for places, impacts in posting.parts():
            for place, impact in zip(places, impacts, strict=True):
                if place not in scorer.places.gone:
                    shares[scorer.places.names[place]] += weight * impact / asked.ceiling
    return {name: share for name, share in shares.items() if share}


def _agree(scorer: LexicalScorer, query: str, names: set[str], count: int) -> None:
    asked, plain = scorer.read(query), _plainly(scorer, query, names)
    # The weight of a term is rounded up to a hundred-thousandth of all.
    near = pytest.approx(plain, abs=2e-4)
    assert asked.shares(sorted(names)) == near
    best = asked.best(count)
    assert len(best) == min(count, len(plain))
    assert best == {name: pytest.approx(plain[name], abs=2e-4) for name in best}
    assert list(best.values()) == sorted(best.values(), reverse=True)
    lowest = min(best.values(), default=0.0)
    assert all(share <= lowest + 2e-4 for name, share in plain.items() if name not in best)
    among = set(sorted(names)[::3])
    assert asked.best(count, among) == dict(
        sorted(asked.shares(among).items(), key=lambda item: (-item[1], item[0]))[:count]
    )


def _queries(of: Random) -> list[str]:
    some = [" ".join(of.sample(_COMMON, of.randrange(1, 6))) for _ in range(3)]
    return [*some, _word(of.randrange(400)), f"{some[0]} {_word(of.randrange(400))}", "the unheard"]


@pytest.mark.parametrize("size", [1, 30, 700])
def test_scores_in_columns_are_those_of_each_tool_through_changes(size: int) -> None:
    of, scorer = Random(size), LexicalScorer()
    scorer.add(map(_entry, range(size)))
    names = {f"tool_{number}" for number in range(size)}
    for edition in range(6):
        for query in _queries(of):
            _agree(scorer, query, names, of.choice([1, 10, 100]))
        changed = of.sample(sorted(names), min(len(names), of.choice([1, 5, 90])))
        scorer.remove(changed)
        kept = changed[: of.randrange(len(changed) + 1)]
        names -= {*changed} - {*kept}
        fresh = [_entry(int(name.split("_")[1]), edition + 1) for name in kept]
        grown = [_entry(size + 10 * edition + more) for more in range(10)]
        scorer.add([*fresh, *grown])
        names |= {entry.public_name for entry in grown}


def test_columns_follow_a_change_instead_of_being_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = LexicalScorer()
    scorer.add(map(_entry, range(700)))
    scorer.read("alpha bravo delta").best(10)
    made: list[str] = []
    make = ImpactColumn.__init__

    def counting(self: ImpactColumn, *given: object) -> None:
        made.append("column")
        make(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(ImpactColumn, "__init__", counting)
    scorer.remove(["tool_3"])
    scorer.add([_entry(3, 1)])
    _agree(scorer, "alpha bravo delta", {f"tool_{number}" for number in range(700)}, 10)
    assert made == []


def test_of_many_common_terms_the_columns_asked_for_last_are_held() -> None:
    words = [_word(number) for number in range(300)]
    tools = [ToolDefinition(f"t{number}", " ".join(words)) for number in range(3)]
    scorer = LexicalScorer()
    scorer.add(CatalogEntry(tool, tool.name, None) for tool in tools)
    for word in words:
        assert len(scorer.read(word).best(5)) == 3
    held = [word for word in words if (posting := scorer.postings.get(word)) and posting.column is not None]
    assert held == words[-len(held) :]
    assert 24 <= len(held) <= 256


@pytest.mark.parametrize("count", [1, 7, 100, 5_000])
def test_the_highest_bytes_are_found_with_all_that_equal_the_lowest(count: int) -> None:
    numbers = bytes(int(Random(count).betavariate(1, 9) * 255) for _ in range(1_000))
    numbers = bytes(Random(f"{count} {place}").choice(numbers) for place in range(1_000))
    ranked = sorted(filter(None, numbers), reverse=True)
    bar = ranked[count - 1] if count <= len(ranked) else 1
    assert highest(numbers, count) == [place for place, number in enumerate(numbers) if number >= bar]
