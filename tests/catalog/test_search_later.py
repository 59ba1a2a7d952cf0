"""Tools whose words an index reads when the first search comes."""

from __future__ import annotations

from mcp_toolset import ToolDefinition
from mcp_toolset.search import CatalogEntry, SearchIndex


def test_m1_tools_that_are_added_for_later_are_found_replaced_and_removed_like_others() -> None:
    index = SearchIndex()
    index.add(
        [ToolDefinition(f"tool_{number}", f"Count {number} sheep.") for number in range(40)], later=True
    )
    assert index.remove(["tool_1"]) == {"tool_1"}
    index.add([ToolDefinition("tool_2", "Water the garden.")])
    assert (len(index), "tool_1" in index) == (39, False)
    steps = index.catch_up()
    next(steps)
    index.add([ToolDefinition("tool_3", "Weed the garden."), ToolDefinition("tool_39", "Feed the cat.")])
    assert index.remove(["tool_4", "tool_38"]) == {"tool_4", "tool_38"}
    assert index.search("feed the cat")[0].name == "tool_39"
    assert {hit.name for hit in index.search("garden")} >= {"tool_2", "tool_3"}
    assert list(steps) == []
    held = [each for each in index._entries.values() if isinstance(each, CatalogEntry)]
    plain = SearchIndex([each.definition for each in held])
    assert len(plain) == len(index)
    for query in ("count sheep", "tool_7", "garden", "count 39 sheep"):
        assert [hit.name for hit in index.search(query)] == [hit.name for hit in plain.search(query)]
