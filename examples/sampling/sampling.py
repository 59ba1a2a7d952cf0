"""A tool that needs a model, for clients that lend theirs and for clients that do not."""

import asyncio

from mcp_toolset import (
    CallReport,
    Rules,
    SampledMessage,
    SamplingRequest,
    ToolContext,
    Toolset,
    ToolsetServer,
    tool,
)


@tool(read_only=True)
async def summarize(context: ToolContext, text: str) -> str:
    """Summarize a text in one sentence."""
    message = await context.sample(f"Summarize in one sentence:\n{text}", max_tokens=100)
    return message.text


async def own_model(request: SamplingRequest) -> SampledMessage:
    """Call the model of your choice here; this one takes the first sentence."""
    text = str(request.messages[0]["content"]["text"]).split("\n", 1)[1]
    usage = {"input": len(text) // 4, "output": 5}
    return SampledMessage.of(text.split(". ")[0] + ".", model="first-sentence", usage=usage)


def bill(report: CallReport) -> None:
    if report.usage:
        print(f"{report.tool}: {dict(report.usage)}")


server = ToolsetServer(
    Toolset(summarize), capabilities=["sample"], sampler=own_model, rules=Rules(observers=[bill])
)


async def main() -> None:
    async with server:
        result = await server.call_tool("summarize", {"text": "Ships are late. Ports are full of them."})
        print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
