"""A round commits nothing that a call came to before its middleware has let it through."""

from __future__ import annotations

from typing import Literal

import pytest

from mcp_toolset import ToolCall, ToolResult, Toolset, tool
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.tool_round import ToolRoundPlan
from mcp_toolset.middleware import PermissionChecker
from mcp_toolset.rounds import CallResult, ToolRound


@tool
async def delete(path: str) -> str:
    """Delete."""
    return f"deleted {path}"


TOOLS = Toolset(delete)


async def under(decision: Literal["allow", "ask", "deny"]) -> ToolRoundPlan:
    round = ToolRound.from_calls([ToolCall("delete", {"path": "a"}, "c1")], TOOLS.view())
    return await round.apply(PermissionChecker(lambda call: decision))


@pytest.mark.anyio
async def test_u23_a_typed_call_does_not_go_around_middleware() -> None:
    plan = await under("deny")
    typed = TOOLS.decode(plan.pending[0], TOOLS.view())
    done = typed.complete(await typed.call())
    with pytest.raises(RoundError, match=r"call c1 \(delete\) has middleware that has not let it through"):
        plan.commit([done])
    await plan.run_pending()
    assert plan.commit().results[0].result.text.startswith("Rejected: delete is not permitted")


@pytest.mark.anyio
async def test_u23_a_question_of_middleware_is_not_answered_by_a_result() -> None:
    plan = await under("ask")
    report = await plan.run_pending()
    with pytest.raises(RoundError, match="has middleware that has not let it through"):
        plan.commit([CallResult("c1", "delete", {"path": "a"}, ToolResult.of_text("deleted a"))])
    assert plan.commit(report).questions


@pytest.mark.anyio
async def test_u23_the_application_may_refuse_a_call_before_its_middleware() -> None:
    plan = await under("allow")
    refused = ToolResult.of_error("not today")
    commit = plan.commit([CallResult("c1", "delete", {"path": "a"}, refused)])
    assert commit.results[0].result.text == "not today"


@pytest.mark.anyio
async def test_u23_what_was_let_through_is_committed() -> None:
    plan = await under("allow")
    assert plan.commit(await plan.run_pending()).results[0].result.text == "deleted a"
