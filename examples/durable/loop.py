"""A loop that resumes in another process: requests to the model and rounds of tools are steps of DBOS."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

from mcp_toolset import Toolset, tool
from mcp_toolset.rounds import DurableRounds

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")


@tool(destructive=True)
def pay(till: str, amount: int) -> str:
    """Pay an amount out of a till."""
    with (FOLDER / "paid.txt").open("a") as file:
        file.write(f"{till} {amount}\n")
    return f"paid {amount} out of {till}"


rounds = DurableRounds(Toolset(pay), FOLDER / "calls.sqlite3")


@DBOS.step()
async def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Ask the model of your choice here; this one pays two bills, one after the other."""
    bills = [("north", 30), ("south", 12)]
    done = sum(message["role"] == "tool" for message in messages)
    if done == len(bills):
        return {"role": "assistant", "content": "Both bills are paid."}
    till, amount = bills[done]
    arguments = f'{{"till": "{till}", "amount": {amount}}}'
    call = {"id": f"call_{done}", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@DBOS.workflow()
async def conversation(prompt: str) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    while True:
        reply = await ask_model(messages)
        if not reply.get("tool_calls"):
            return str(reply["content"])
        messages += await rounds.openai(reply)


async def main() -> None:
    database = f"sqlite:///{FOLDER / 'dbos.sqlite3'}"
    DBOS(config={"name": "bills", "system_database_url": database, "console_log_level": "WARNING"})
    async with rounds:
        DBOS.launch()  # what another process has begun goes on here
        with SetWorkflowID("bills of November"):
            handle = await DBOS.start_workflow_async(conversation, "Pay the bills.")
        print(await handle.get_result())
        DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main())
