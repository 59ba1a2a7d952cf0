import asyncio
from collections import Counter
from typing import Any

from mcp_toolset import (
    CallReport,
    HookSet,
    Reject,
    Rules,
    RunNormally,
    ToolCall,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.rounds import ToolRound


@tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool
def archive(number: int) -> str:
    """Find an invoice in the archive."""
    return f"invoice {number}"


hooks = HookSet()


@hooks.execution("pay")
async def limit(call: ToolCall, input: dict[str, Any]) -> RunNormally | Reject:
    return RunNormally(input) if input["amount"] <= 100 else Reject("more than 100")


counts: Counter[tuple[str, str]] = Counter()


def count(report: CallReport) -> None:
    """A metric: how many calls of which tool ended how."""
    counts[report.tool or "?", report.outcome] += 1


def line(report: CallReport) -> None:
    """One line for each call."""
    name = report.called if report.called == report.tool else f"{report.called} → {report.tool or '?'}"
    print(f"{name}: {report.outcome}{report.reason and f' ({report.reason})'}")


rules = Rules(hooks=hooks, observers=[count, line])
tools = Toolset(pay, Toolset(archive).deferred())


async def main() -> None:
    async with ToolsetServer(tools, rules=rules) as server:
        await server.call_tool("pay", {"amount": 5})
        await server.call_tool("pay", {"amount": 500})
        resolved = await server.call_tool("resolve_tools", {"ids": ["archive"]})
        grant = resolved.structured["tools"][0]["grant"]
        await server.call_tool("call_tool", {"grant": grant, "arguments": {"number": 7}})

    calls = [ToolCall("pay", {"amount": amount}, f"c{amount}") for amount in (1, 101)]
    plan = await ToolRound.from_calls(calls, Toolset(pay).view()).apply(rules)
    await plan.run_pending()
    print(counts["pay", "refused"], "refused")


if __name__ == "__main__":
    asyncio.run(main())
