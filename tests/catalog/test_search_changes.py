"""A changed tool costs the same in an index of any size, and the index answers like one built anew."""

from __future__ import annotations

from random import Random

import pytest

from mcp_toolset import ToolDefinition
from mcp_toolset.catalog.search import meaning
from mcp_toolset.catalog.search.lexical import Posting, SortedWords
from mcp_toolset.catalog.search.meaning import PackedVectors
from mcp_toolset.search import SearchIndex

_ACTIONS = "send read delete list create search update upload translate summarize".split()
_THINGS = "message file issue calendar image invoice weather payment contact playlist".split()
_QUERIES = (
    "send a mesage to someone",
    "what is the forecast for tomorrow",
    "delete_file_7",
    "creat",
    "remove old pictures and pay the bill",
    "playlst of songs",
)


def _tool(number: int, edition: int = 0) -> ToolDefinition:
    of = Random(f"{number} {edition}")
    action, thing = of.choice(_ACTIONS), of.choice(_THINGS)
    return ToolDefinition(
        f"tool_{number}" if number % 2 else f"{action}_{thing}_{number}",
        f"{action} a {thing}, or {of.choice(_ACTIONS)} the {of.choice(_THINGS)} word{of.randrange(50)}.",
    )


def _answers(index: SearchIndex) -> list[list[tuple[str, float]]]:
    return [[(hit.name, hit.score) for hit in index.search(query, limit=30)] for query in _QUERIES]


@pytest.mark.parametrize("seed", range(4))
def test_m2_an_index_that_changed_answers_like_one_built_anew(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meaning, "_RECENT", 12)
    chance = Random(seed)
    held = {tool.name: tool for tool in map(_tool, range(60))}
    index = SearchIndex(held.values())
    for _ in range(12):
        _answers(index)
        for _ in range(chance.choice((1, 1, 3, 20))):
            if held and chance.random() < 0.4:
                gone = chance.choice(sorted(held))
                del held[gone]
                index.remove([gone])
            else:
                tool = _tool(chance.randrange(90), chance.randrange(5))
                held[tool.name] = tool
                index.add([tool])
        assert _answers(index) == _answers(SearchIndex(held.values()))


def test_m2_one_changed_tool_costs_the_same_in_an_index_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    index = SearchIndex(map(_tool, range(1_500)))
    index.search("send a message")
    widths = {0}
    spread = meaning._spread

    def noted(numbers: bytes) -> int:
        widths.add(len(numbers))
        return spread(numbers)

    monkeypatch.setattr(meaning, "_spread", noted)
    name = _tool(1).name
    index.add([ToolDefinition(name, "Water the garden.")])
    assert index.search("water the garden")[0].name == name
    index.remove([name])
    assert all(hit.name != name for hit in index.search("water the garden"))
    # A search may arrange the vectors of its own candidates, a hundred at most.
    assert max(widths) <= 100


def test_m2_after_many_changes_the_vectors_are_arranged_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "_RECENT", 3)
    packed = PackedVectors(2)
    packed.put("a", (1, 0))
    packed.put("b", (0, 1))
    assert list(packed.cosines((1, 0)).best(5)) == ["a"]
    for turn in range(9):
        packed.put("b", (1, turn % 2))
        packed.put(f"c{turn}", (-1, 0))
        packed.drop(f"c{turn - 1}")
        similarity = packed.cosines((1, 0))
        assert list(similarity.best(5)) == (["a", "b"])
        assert sorted(similarity.names) == sorted(["a", "b", f"c{turn}"])
        assert similarity.of([f"c{turn}", f"c{turn - 1}", "b"]).keys() == {f"c{turn}", "b"}


@pytest.mark.parametrize("many", [1, 600])
def test_m2_words_stay_in_order_as_they_come_and_go(many: int) -> None:
    chance, known = Random(many), {f"w{number}": 0 for number in range(800)}
    words = SortedWords(known.keys())
    for _ in range(30):
        changed = [f"w{chance.randrange(1_200)}" for _ in range(many)]
        for word in changed:
            if known.pop(word, None) is None:
                known[word] = 0
        words.note(changed)
        assert words.beginning_with("w") == sorted(known)
        assert words.beginning_with("w1", 5) == sorted(word for word in known if word[:2] == "w1")[:5]


def test_m2_a_tool_leaves_a_posting_whatever_the_bytes_beside_it_are() -> None:
    posting = Posting("word")
    # Bytes of these impacts and of neighbouring numbers look like places.
    pairs = {1: 256, 256: 1, 65_536: 1 << 24, 0: 2, 2: 0, 1 << 24: 65_536, 257: 257}
    for pair in pairs.items():
        posting.put(*pair)
    for place in (2, 0, 256, 65_536, 257, 1, 1 << 24):
        del pairs[place]
        posting.drop({place})
        assert dict(zip(posting.places, posting.impacts, strict=True)) == pairs
    with pytest.raises(ValueError, match="not found"):
        posting.drop({3})
