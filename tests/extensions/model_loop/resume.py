"""A second process of a loop: it takes up a stored round, has it answered, and finishes with the model.

`python -m tests.extensions.model_loop.resume PROVIDER STATE_FILE`, with the endpoint in `OPENAI_BASE_URL` or
`ANTHROPIC_BASE_URL`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
from tests.extensions.model_loop.loop_tools import TOOLS

from mcp_toolset.rounds import ToolRound


async def main(provider: str, stored: dict[str, Any]) -> None:
    round = ToolRound.from_state(stored["round"], TOOLS.view())
    plan = round.plan
    sys.stderr.write(f"{round.status}\n")
    await plan.run_pending()
    for asked in plan.questions:
        plan.answer(asked.id, f"yes to {asked.question}")
    for call in plan.manual:
        plan.submit(call.id, {"receipt": call.arguments["amount"]})
    committed = plan.commit()
    messages: list[Any] = stored["messages"]
    # The libraries take a second to import: only the one that is used.
    if provider == "openai":
        from openai import AsyncOpenAI

        messages += committed.to_openai()
        reply = await AsyncOpenAI().chat.completions.create(model="m", messages=messages)
        text = reply.choices[0].message.content or ""
    elif provider == "responses":
        from openai import AsyncOpenAI

        messages += committed.to_openai_responses()
        text = (await AsyncOpenAI().responses.create(model="m", input=messages)).output_text
    else:
        from anthropic import AsyncAnthropic

        messages += committed.to_anthropic()
        said = await AsyncAnthropic().messages.create(model="m", max_tokens=100, messages=messages)
        text = "".join(block.text for block in said.content if block.type == "text")
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], json.loads(Path(sys.argv[2]).read_text()))
