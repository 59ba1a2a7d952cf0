"""A gate that lacks something is asked again once that was fetched, so many times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.calling import tool_table

from mcp_toolset import ToolBinding, ToolCall, ToolContext, ToolView, tool
from mcp_toolset.errors import StoreError
from mcp_toolset.tools.binding import MAX_LOADS, StoreMiss

pytestmark = pytest.mark.anyio


@tool
async def add(a: int) -> int:
    return a + 1


class Lacking:
    """A gate that lacks so many things, one after the other."""

    def __init__(self, things: int) -> None:
        self.things = things
        self.fetched = 0

    def __call__(self, call: ToolCall, context: ToolContext) -> None:
        if self.fetched < self.things:
            raise StoreMiss(self.fetch)

    async def fetch(self) -> None:
        self.fetched += 1

    @property
    def binding(self) -> ToolBinding:
        return replace(add.bind(), gate=self)


async def test_a_gate_is_asked_again_as_often_as_it_lacks_something_and_not_for_ever():
    enough = Lacking(MAX_LOADS)
    assert (await tool_table([enough.binding]).call(ToolCall("add", {"a": 1}))).structured == {"result": 2}
    answer = await tool_table([Lacking(MAX_LOADS + 1).binding]).call(ToolCall("add", {"a": 1}))
    assert answer.is_error and "longer cache_ttl" in answer.text
    with pytest.raises(StoreError, match="longer cache_ttl"):
        await ToolView([Lacking(99).binding]).execute("add", {"a": 1})
