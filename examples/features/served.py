from typing import Any

import anyio
from mcp_types import ElicitResult, TextContent

from mcp_toolset import (
    AskUser,
    HookSet,
    Reject,
    RunNormally,
    ToolCall,
    ToolContext,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.testing import Client


@tool(manual=True, timeout=5)
def sign(contract: str) -> str:
    """Sign a contract."""
    raise AssertionError("the application answers these calls")


@tool
async def book(table: int) -> str | AskUser:
    """Book a table."""
    return AskUser("For how many people?")


@tool
async def greet(context: ToolContext) -> str:
    """Greet whoever is there."""
    answer = await context.ask("What is your name?")
    return f"Hello {answer.content['answer']}."


hooks = HookSet()


@hooks.execution("*")
async def no_lease(call: ToolCall, input: dict[str, Any]) -> RunNormally | Reject:
    return Reject("leases are signed on paper") if input.get("contract") == "lease" else RunNormally(input)


async def person(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"answer": f"[{params.message}]"})


async def shown(client: Client, name: str, arguments: dict[str, Any]) -> None:
    (block,) = (await client.call_tool(name, arguments)).content
    print(block.text if isinstance(block, TextContent) else block)


async def main() -> None:
    server = ToolsetServer(Toolset(sign, book, Toolset(greet).granting("ask")), hooks=hooks)
    async with Client(server, mode="auto", elicitation_callback=person) as client:
        async with anyio.create_task_group() as group:

            async def application() -> None:
                waiting = await server.next_pending()
                server.submit_result(waiting.id, f"{waiting.arguments['contract']}: signed")

            group.start_soon(application)
            await shown(client, "sign", {"contract": "loan"})
        await shown(client, "sign", {"contract": "lease"})
        await shown(client, "book", {"table": 4})
        await shown(client, "greet", {})
    async with ToolsetServer(Toolset(greet)) as refusing:
        print((await refusing.call_tool("greet")).text)


if __name__ == "__main__":
    anyio.run(main)
