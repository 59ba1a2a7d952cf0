from typing import Any

import anyio
from openai import AsyncOpenAI

from mcp_toolset import HookSet, RemoteToolset, Toolset, tool
from mcp_toolset.rounds import ToolAvailability, ToolRound


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    client, hooks = AsyncOpenAI(), HookSet()
    messages: list[Any] = [{"role": "user", "content": "What is 20 + 22, and what time is it in Bern?"}]
    async with Toolset(add, RemoteToolset(["mcp-server-time"], name="time")) as tools:
        view = tools.view(ToolAvailability.default_plus("get_current_time"))
        while True:
            reply = await client.chat.completions.create(
                model="gpt-5-mini", messages=messages, tools=view.to_openai()
            )
            message = reply.choices[0].message
            if not message.tool_calls:
                break
            round = ToolRound.from_openai(message, view)
            plan = await round.apply(hooks)
            messages += plan.commit(await plan.run_pending()).to_openai()
    print(message.content)


if __name__ == "__main__":
    anyio.run(main)
