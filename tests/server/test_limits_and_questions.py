"""A question uses up no limit: not one that is declined before the tool runs, and no run with its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import anyio
import pytest
from mcp import Client
from mcp_types import ElicitResult, TextContent

from mcp_toolset import RemoteToolset, Rules, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.middleware import RateLimit
from mcp_toolset.policy import CallLimits, Limits, Policy, PolicyGuard

pytestmark = [pytest.mark.anyio, pytest.mark.needs("approvals", "limits")]

ASK = Policy(ask=["pay"])
TWO = {"*": Limits(calls="2/day")}
Mode = Literal["legacy", "auto"]


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool(name="pay")
async def asks(context: ToolContext, amount: int) -> str:
    """Pay an amount, if the user says so."""
    answers = [await context.ask(f"Pay {amount}, {part}?") for part in ("really", "now")]
    return f"paid {amount}" if all(one.accepted for one in answers) else "declined"


def mounted() -> ToolsetServer:
    inner = ToolsetServer(Toolset(asks).granting("ask"), name="shop")
    return ToolsetServer(RemoteToolset(inner, name="shop"), limits=TWO)


async def called(server: ToolsetServer, mode: Mode, answers: Iterable[str]) -> list[str]:
    """The texts of calls whose user gives these answers to all questions of a call."""
    said = iter(answers)
    given = next(said, None)

    async def answer(context: Any, params: Any) -> ElicitResult:
        if given == "decline":
            return ElicitResult(action="decline")
        fields = params.requested_schema["properties"]
        return ElicitResult(
            action="accept", content={"decision": "allow once"} if "decision" in fields else {"answer": "yes"}
        )

    texts = list[str]()
    with anyio.fail_after(60):
        async with server, Client(server.lowlevel, mode=mode, elicitation_callback=answer) as client:
            while given is not None:
                result = await client.call_tool("pay", {"amount": 5})
                texts.append("".join(one.text for one in result.content if isinstance(one, TextContent)))
                given = next(said, None)
    return texts


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: ToolsetServer(Toolset(pay), policy=ASK, limits=TWO),
        lambda: ToolsetServer(Toolset(pay).carrying(Rules(guards=[PolicyGuard(ASK)])), limits=TWO),
        lambda: ToolsetServer(Toolset(pay), policy=ASK, rules=Rules(guards=[CallLimits(TWO)])),
        lambda: ToolsetServer(Toolset(pay), rules=Rules(guards=[CallLimits(TWO), PolicyGuard(ASK)])),
    ],
    ids=["of the server", "policy of the toolset", "limits of the program", "limits first"],
)
async def test_u123_a_call_that_the_user_does_not_allow_uses_up_no_limit(
    make: Callable[[], ToolsetServer], mode: Mode
) -> None:
    texts = await called(make(), mode, ["decline"] * 3 + ["accept"] * 3)
    assert all("the user did not allow it" in one for one in texts[:3])
    assert texts[3:5] == ["paid 5"] * 2 and "is limited to 2 calls" in texts[5]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: ToolsetServer(Toolset(asks).granting("ask"), limits=TWO),
        lambda: ToolsetServer(Toolset(asks).granting("ask"), rules=Rules(middleware=[RateLimit(2, 86400)])),
        mounted,
    ],
    ids=["limits", "middleware", "a mounted server"],
)
async def test_u123_a_call_with_questions_counts_once_in_both_eras(
    make: Callable[[], ToolsetServer], mode: Mode
) -> None:
    texts = await called(make(), mode, ["decline", "accept", "accept"])
    assert texts[:2] == ["declined", "paid 5"] and "is limited to 2 calls" in texts[2]
