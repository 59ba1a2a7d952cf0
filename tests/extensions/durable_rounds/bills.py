"""A loop that pays bills as a workflow of DBOS; it is killed, and started again until it has ended.

    python bills.py FOLDER [--die before|in|after NUMBER]

`paid.txt` has a line for each payment. The last line that is printed is the answer of the loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
from dbos import DBOS, SetWorkflowID

from mcp_toolset import AskUser, Toolset, tool
from mcp_toolset.rounds import DurableRounds

FOLDER = Path(sys.argv[1])
DIE = sys.argv[3:5] if "--die" in sys.argv else []
BILLS = int(os.environ.get("BILLS", "4"))


def dies(place: str, bill: int) -> None:
    if DIE == [place, str(bill)]:
        os.kill(os.getpid(), signal.SIGKILL)


async def pause() -> None:
    if "SLOW" in os.environ:
        await anyio.sleep(random.random() * float(os.environ["SLOW"]))


@tool(destructive=True)
async def pay(bill: int) -> str:
    """Pay a bill."""
    dies("before", bill)
    await pause()
    with (FOLDER / "paid.txt").open("a") as file:
        file.write(f"{bill}\n")
    dies("in", bill)
    await pause()
    return f"paid {bill}"


@tool
def sign(bill: int) -> AskUser:
    """Have a bill signed."""
    return AskUser(f"Sign bill {bill}?")


rounds = DurableRounds(Toolset(pay, sign), FOLDER / "calls.sqlite3")


@DBOS.step()
async def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    done = [message for message in messages if message["role"] == "tool"]
    if len(done) > BILLS:
        return {"role": "assistant", "content": json.dumps([message["content"] for message in done])}
    dies("after", len(done) - 1)
    called = "sign" if len(done) == BILLS else "pay"
    function = {"name": called, "arguments": json.dumps({"bill": len(done)})}
    # The ids are those of a model that begins anew in each reply.
    call = {"id": "call_0", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@DBOS.workflow()
async def conversation() -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Pay the bills."}]
    while True:
        reply = await ask_model(messages)
        if not reply.get("tool_calls"):
            return str(reply["content"])
        messages += await rounds.openai(reply)


async def main() -> None:
    database = f"sqlite:///{FOLDER / 'dbos.sqlite3'}"
    DBOS(config={"name": "bills", "system_database_url": database, "console_log_level": "ERROR"})
    async with rounds:
        DBOS.launch()
        with SetWorkflowID("bills"):
            handle = await DBOS.start_workflow_async(conversation)
        await DBOS.send_async("bills", {"call_9": "yes"}, "mcp_toolset answers", idempotency_key="wrong")
        await DBOS.send_async("bills", {"call_0": "yes"}, "mcp_toolset answers", idempotency_key="right")
        sys.stdout.write(f"{await handle.get_result()}\n")
        DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main())
