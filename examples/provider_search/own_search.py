"""Our search in a loop with Anthropic's Messages."""

import asyncio
from typing import Any

from anthropic import AsyncAnthropic
from tools import tools

from mcp_toolset.rounds import ToolRound, ToolSearch


async def main() -> None:
    client, search = AsyncAnthropic(), ToolSearch(tools)
    messages: list[Any] = [{"role": "user", "content": "How will the weather be in Bern?"}]
    while True:
        exported = search.export("anthropic")
        reply = await client.messages.create(
            model="claude-sonnet-5", max_tokens=1000, messages=messages, **exported.request()
        )
        if reply.stop_reason != "tool_use":
            break
        plan = await ToolRound.of(reply, exported).apply()
        messages += plan.commit(await plan.run_pending()).to_anthropic()
    print(*(block.text for block in reply.content if block.type == "text"))


if __name__ == "__main__":
    asyncio.run(main())
