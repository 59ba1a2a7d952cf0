from typing import Any, Literal

import anyio

from mcp_toolset import (
    Descriptions,
    HookSet,
    Reject,
    Rules,
    RunNormally,
    ToolCall,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.middleware import PermissionChecker
from mcp_toolset.rounds import ToolRound


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


hooks = HookSet()


@hooks.execution("pay")
async def not_zero(call: ToolCall, input: dict[str, Any]) -> RunNormally | Reject:
    return RunNormally(input) if input["amount"] > 0 else Reject("the amount must be positive")


def policy(call: ToolCall) -> Literal["allow", "ask", "deny"]:
    amount = call.arguments["amount"]
    return "deny" if amount > 1000 else "ask" if amount > 100 else "allow"


rules = Rules(
    hooks=hooks,
    middleware=[PermissionChecker(policy)],
    descriptions=Descriptions({"pay": "Pay an amount in euros."}),
)
tools = Toolset(pay).prefixed("shop")


async def main() -> None:
    async with ToolsetServer(tools, rules=rules) as server:
        print((await server.call_tool("shop_pay", {"amount": 5000})).text)
    print((await tools.execute("shop_pay", {"amount": 0}, rules=rules)).text)

    view = await tools.view().with_texts(rules)
    print(view["shop_pay"].definition.description)
    calls = [ToolCall("shop_pay", {"amount": amount}, f"c{amount}") for amount in (5, 500, 5000)]
    plan = await ToolRound.from_calls(calls, view).apply(rules)
    for question in (await plan.run_pending()).questions:
        print(question.id, question.question)
        plan.answer(question.id, True)
    await plan.run_pending()
    print([done.result.text for done in plan.commit().results])


if __name__ == "__main__":
    anyio.run(main)
