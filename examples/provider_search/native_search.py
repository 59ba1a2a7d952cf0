"""The search of the provider, in a loop with OpenAI's Responses."""

import asyncio
from typing import Any

from openai import AsyncOpenAI
from tools import tools

from mcp_toolset.rounds import ToolRound


async def main() -> None:
    client = AsyncOpenAI()
    items: list[Any] = [{"role": "user", "content": "How will the weather be in Bern?"}]
    exported = tools.view(deferred=True).export("openai_responses")
    while True:
        reply = await client.responses.create(model="gpt-5.5", input=items, **exported.request())
        round = ToolRound.of(reply, exported)
        plan = await round.apply()
        items += plan.commit(await plan.run_pending()).to_openai_responses()
        if not round.calls:
            break
    print(reply.output_text)


if __name__ == "__main__":
    asyncio.run(main())
