"""A mounted server whose tool needs a model, for clients that lend none."""

import asyncio
from typing import Annotated

from mcp.server.mcpserver import MCPServer, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent

from mcp_toolset import RemoteToolset, SampledMessage, SamplingRequest, Toolset, ToolsetServer

library = MCPServer("library")


def written(title: str) -> Sample:
    wish = TextContent(type="text", text=f"A blurb for {title}")
    return Sample([SamplingMessage(role="user", content=wish)], max_tokens=50)


@library.tool()
def blurb(title: str, message: Annotated[CreateMessageResult, Resolve(written)]) -> str:
    """Write a blurb for a book."""
    return message.content.text if isinstance(message.content, TextContent) else ""


async def own_model(request: SamplingRequest) -> SampledMessage:
    """Call the model of your choice here."""
    wish = request.messages[0]["content"]["text"]
    return SampledMessage.of(f"{wish}, which {request.server} wants", usage={"output": 9})


server = ToolsetServer(Toolset(RemoteToolset(library, name="library", sampler=own_model)))


async def main() -> None:
    async with server:
        result = await server.call_tool("blurb", {"title": "Walden"})
        print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
