"""A gate that lacks something is asked again once that was fetched, wherever it is asked, with an end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_toolset import Reject, ToolBinding, ToolCall, ToolContext, ToolView, tool
from mcp_toolset.calls.dispatch import ToolDispatch
from mcp_toolset.calls.hook_chain import run_execution_hooks
from mcp_toolset.errors import StoreError
from mcp_toolset.tools.binding import MAX_LOADS, StoreMiss
from mcp_toolset.tools.call import LOCAL_CONTEXT

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


CALL = ToolCall("add", {"a": 1}, "c1")


@pytest.mark.parametrize("things", [0, 1, 3, MAX_LOADS])
async def test_what_a_gate_lacks_is_fetched_before_the_call_is_admitted(things: int):
    for_dispatch, for_view, for_round = (Lacking(things) for _ in range(3))
    assert (await ToolDispatch([for_dispatch.binding]).call(CALL)).structured == {"result": 2}
    assert (await ToolView([for_view.binding]).execute("add", {"a": 1})).structured == {"result": 2}
    assert await run_execution_hooks(CALL, for_round.binding, (), LOCAL_CONTEXT) == CALL
    assert [gate.fetched for gate in (for_dispatch, for_view, for_round)] == [things] * 3


async def test_a_gate_that_lacks_something_for_ever_refuses():
    gate = Lacking(MAX_LOADS + 1)
    answer = await ToolDispatch([gate.binding]).call(CALL)
    assert answer.is_error and "longer cache_ttl" in answer.text
    with pytest.raises(StoreError, match="longer cache_ttl"):
        await ToolView([Lacking(99).binding]).execute("add", {"a": 1})
    refused = await run_execution_hooks(CALL, Lacking(99).binding, (), LOCAL_CONTEXT)
    assert isinstance(refused, tuple) and isinstance(refused[1], Reject)
    assert "longer cache_ttl" in refused[1].reason
