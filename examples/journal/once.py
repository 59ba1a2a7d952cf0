"""A loop that is cut off after a payment, and makes its calls again: the payment happens once."""

import asyncio
import tempfile
from pathlib import Path

from mcp_toolset import Rules, Toolset, tool
from mcp_toolset.journal import JournalGuard
from mcp_toolset.rounds import RoundContext, ToolRound

tills = {"north": 100, "south": 100}


@tool(destructive=True)
def pay(till: str, amount: int) -> str:
    """Pay an amount out of a till."""
    tills[till] -= amount
    return f"{tills[till]} left in {till}"


reply = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_8Zp4",
            "type": "function",
            "function": {"name": "pay", "arguments": '{"till": "north", "amount": 30}'},
        }
    ],
}


async def run(path: Path) -> None:
    """What a worker does with the reply of a model, before and after its process was replaced."""
    async with JournalGuard(path, served="worker") as guard:
        round = ToolRound.from_openai(reply, Toolset(pay).view())
        plan = await round.plan.apply(Rules(guards=[guard]))
        report = await plan.run_pending(context=RoundContext(session="conversation 17"))
        print(report.results[0].result.text)


async def main(path: Path) -> None:
    await run(path)
    await run(path)
    print(tills)


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder) / "calls.sqlite3"))
