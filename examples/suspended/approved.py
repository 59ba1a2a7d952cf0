"""A round that waits for an approval lies in a database, and another process goes on with it."""

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from mcp_toolset import Rules, Toolset, tool
from mcp_toolset.journal import JournalGuard
from mcp_toolset.middleware import PermissionChecker
from mcp_toolset.rounds import RoundContext, SuspendedRounds, ToolRound


@tool(read_only=True)
def invoice(number: int) -> str:
    """Read an invoice."""
    print("reads")
    return f"invoice {number}: 70"


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    print("pays")
    return f"paid {amount}"


TOOLS = Toolset(invoice, pay)
ANN = RoundContext(principal="ann", session="conversation 17")
REPLY = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "invoice", "arguments": '{"number": 7}'}},
        {"id": "call_2", "type": "function", "function": {"name": "pay", "arguments": '{"amount": 70}'}},
    ],
}


def rules(guard: JournalGuard) -> Rules:
    """Payments need an approval, and no call happens twice."""
    asked = PermissionChecker(lambda call: "ask" if call.name == "pay" else "allow")
    return Rules(middleware=[asked], guards=[guard])


def opened(folder: Path) -> tuple[SuspendedRounds, JournalGuard]:
    return (
        SuspendedRounds(folder / "suspended.sqlite3"),
        JournalGuard(folder / "calls.sqlite3", served="worker"),
    )


async def ask(folder: Path) -> None:
    """The process that has the model's reply: it keeps the round, and ends."""
    rounds, guard = opened(folder)
    async with rounds, guard:
        plan = await ToolRound.from_openai(REPLY, TOOLS.view()).apply(rules(guard))
        report = await plan.run_pending(context=ANN)
        print(report.questions[0].question)
        text = rounds.suspend(plan, context=ANN)
    with sqlite3.connect(folder / "app.sqlite3") as database:
        database.execute("CREATE TABLE rounds (text TEXT)")
        database.execute("INSERT INTO rounds VALUES (?)", (text,))


async def go_on(folder: Path) -> None:
    """The process that hears days later that the payment is approved."""
    with sqlite3.connect(folder / "app.sqlite3") as database:
        (text,) = database.execute("SELECT text FROM rounds").fetchone()
    rounds, guard = opened(folder)
    async with rounds, guard:
        round = await rounds.resume(text, TOOLS.view(), context=ANN, rules=rules(guard))
        round.plan.answer("call_2", True)
        report = await round.plan.run_pending(context=ANN)
        print([each.result.text for each in report])
        round.plan.commit()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(ask(Path(made)))
        asyncio.run(go_on(Path(made)))
