"""A changed tool costs the same in an index of any size, and the index answers like one built anew."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from mcp_toolset import ToolDefinition
from mcp_toolset.catalog.search import meaning
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


@pytest.mark.parametrize(("size", "turns", "scorer"), [(60, 20, "built-in"), (700, 5, None)])
def test_m2_an_index_that_changed_answers_like_one_built_anew(
    size: int, turns: int, scorer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many tools the scores of words are added up in columns."""
    monkeypatch.setattr(meaning, "_RECENT", 12)
    chance = Random(size)
    held = {tool.name: tool for tool in map(_tool, range(size))}
    index = SearchIndex(held.values(), scorer=scorer)
    for _ in range(turns):
        _answers(index)
        for _ in range(chance.choice((1, 1, 3, 20))):
            if held and chance.random() < 0.4:
                gone = chance.choice(sorted(held))
                del held[gone]
                index.remove([gone])
            else:
                tool = _tool(chance.randrange(size + 30), chance.randrange(5))
                held[tool.name] = tool
                index.add([tool])
        assert _answers(index) == _answers(SearchIndex(held.values(), scorer=scorer))


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


@pytest.mark.parametrize("many", [1, 600])
def test_m2_a_word_that_came_later_is_found_by_its_beginning(many: int) -> None:
    index = SearchIndex([ToolDefinition("play", "Play music.")], scorer=None)
    assert index.search("xylopho") == index.search("orchestr") == []
    index.add(ToolDefinition(f"tune_{at}", f"Tune the xylophone{at or ''} number{at}.") for at in range(many))
    index.add([ToolDefinition("orchestrate", "Conduct.")])
    assert index.search("xylopho")[0].name == "tune_0"
    assert index.search("orchestr")[0].name == "orchestrate"
    index.remove(["tune_0", "orchestrate"])
    assert "tune_0" not in [hit.name for hit in index.search("xylopho", limit=100)]
    assert index.search("orchestr") == []


def test_m2_a_removed_tool_takes_no_other_with_it_whatever_their_numbers() -> None:
    """The bytes of 256 and 512 side by side look like those of 1."""
    said = {at: "Hear the zephyr." if at in (256, 512) else "Nothing." for at in range(600)}
    index = SearchIndex((ToolDefinition(f"t{at}", text) for at, text in said.items()), scorer=None)
    index.remove(["t1"])
    index.add([ToolDefinition("t1", "Hear the zephyr.")])
    index.remove(["t1"])
    assert {hit.name for hit in index.search("zephyr")} == {"t256", "t512"}
