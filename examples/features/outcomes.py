import json

import anyio

from mcp_toolset import AskUser, Halt, ToolCall, Toolset, tool
from mcp_toolset.errors import DefinitionError, RoundError
from mcp_toolset.rounds import ToolRound


@tool
async def book(table: int) -> str | AskUser:
    """Book a table."""
    return AskUser("For how many people?")


@tool
async def close() -> Halt:
    """Close the shop for today."""
    return Halt("closed", "Good night.")


@tool
async def broken() -> str:
    """Fail."""
    raise RuntimeError("no power")


@tool(manual=True)
def sign(contract: str) -> str:
    """Sign a contract."""
    raise AssertionError("the application answers these calls")


VIEW = Toolset(book, close, broken, sign).view()


async def main() -> None:
    calls = [
        ToolCall("book", {"table": 4}, id="c1"),
        ToolCall("close", {}, id="c2"),
        ToolCall("broken", {}, id="c3"),
        ToolCall("sign", {"contract": "lease"}, id="c4"),
    ]
    round = ToolRound.from_calls(calls, VIEW)
    report = await round.plan.run_pending(on_tool_error="continue")
    print([(one.id, one.result.text.splitlines()[0]) for one in report])
    print([call.id for call in round.plan.manual], report.halt and report.halt.reason)
    print(round.status, [asked.question for asked in round.plan.questions])
    try:
        round.plan.submit("c2", "by hand")
    except RoundError as fault:
        print(fault)
    stored = json.dumps(round.to_state())

    resumed = ToolRound.from_state(json.loads(stored), VIEW)
    resumed.plan.answer("c1", "For two.")
    resumed.plan.submit("c4", "signed")
    print(resumed.status, [one.result.text for one in resumed.plan.commit().results])
    try:
        Halt("completed")
    except DefinitionError as fault:
        print(fault)


if __name__ == "__main__":
    anyio.run(main)
