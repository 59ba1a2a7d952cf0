"""A round that waits for an approval lies in a database, and another process goes on with it."""

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from mcp_toolset import Rules, ToolRound, Toolset, tool
from mcp_toolset.journal import JournalGuard, SqliteJournal
from mcp_toolset.middleware import PermissionChecker
from mcp_toolset.rounds import RoundContext, SuspendedRounds
from mcp_toolset.shared import SuspendedFile


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


def rules(journal: SqliteJournal) -> Rules:
    """Payments need an approval, and no call happens twice."""
    asked = PermissionChecker(lambda call: "ask" if call.name == "pay" else "allow")
    return Rules(middleware=[asked], guards=[JournalGuard(journal, served="worker")])


async def ask(folder: Path) -> None:
    """The process that has the model's reply: it keeps the round, and ends."""
    file = SuspendedFile(folder / "suspended.sqlite3")
    async with file.running(), SqliteJournal(folder / "calls.sqlite3") as journal:
        plan = await ToolRound.from_openai(REPLY, TOOLS.view()).apply(rules(journal))
        report = await plan.run_pending(context=ANN)
        print(report.questions[0].question)
        text = SuspendedRounds(file).suspend(plan, context=ANN)
    with sqlite3.connect(folder / "app.sqlite3") as database:
        database.execute("CREATE TABLE rounds (text TEXT)")
        database.execute("INSERT INTO rounds VALUES (?)", (text,))


async def go_on(folder: Path) -> None:
    """The process that hears days later that the payment is approved."""
    with sqlite3.connect(folder / "app.sqlite3") as database:
        (text,) = database.execute("SELECT text FROM rounds").fetchone()
    file = SuspendedFile(folder / "suspended.sqlite3")
    async with file.running(), SqliteJournal(folder / "calls.sqlite3") as journal:
        round = await SuspendedRounds(file).resume(text, TOOLS.view(), context=ANN, rules=rules(journal))
        round.plan.answer("call_2", True)
        report = await round.plan.run_pending(context=ANN)
        print([each.result.text for each in report])
        round.plan.commit()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(ask(Path(made)))
        asyncio.run(go_on(Path(made)))
