"""Small things that users expect: a hook of the call alone, a bare text as description, bytes, a client."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from mcp_toolset import HookSet, Reject, RunNormally, ToolCall, Toolset, tool
from mcp_toolset.errors import InvalidOutputError

pytestmark = pytest.mark.anyio


@tool
def find(
    query: Annotated[str, "What to look for."],
    limit: Annotated[int, "Not shown.", Field(description="How many.", ge=1)] = 3,
) -> str:
    """Find."""
    return query * limit


async def test_u31_a_bare_text_in_an_annotation_describes_the_parameter():
    shown = find.input_schema["properties"]
    assert shown["query"]["description"] == "What to look for."
    assert shown["limit"]["description"] == "How many." and shown["limit"]["minimum"] == 1
    assert (await find.execute({"query": "a", "limit": 2})).text == "aa"


@pytest.mark.needs("model_loop")
async def test_u31_a_hook_may_take_the_call_alone():
    from mcp_toolset.rounds import ToolRound

    hooks, seen = HookSet(), list[str]()

    @hooks.execution("*")
    async def look(call: ToolCall) -> RunNormally | Reject:
        seen.append(call.name)
        return Reject("no") if call.arguments["query"] == "b" else RunNormally(call.arguments)

    calls = [ToolCall("find", {"query": one}, one) for one in "ab"]
    plan = await ToolRound.from_calls(calls, Toolset(find).view()).apply(hooks)
    assert ([call.id for call in plan.pending], [done.call.id for done in plan.rejected]) == (["a"], ["b"])
    assert seen == ["find", "find"]


async def test_u31_bytes_are_refused_with_the_mend():
    @tool
    def draw() -> bytes:
        """Draw."""
        return b"\xff\x00"

    with pytest.raises(InvalidOutputError, match=r"return bytes as content, such as ToolResult\.of_content"):
        await draw.execute()
