"""A task over a long result: the call, a look into the result, and a call with the whole of it."""

import asyncio
from typing import Any

from server import tools

from mcp_toolset import ToolsetServer
from mcp_toolset.testing import Client


async def main() -> None:
    server = ToolsetServer(tools, large_results=20_000)
    async with Client(server) as client:

        async def call(name: str, arguments: dict[str, Any]) -> str:
            result = await client.call_tool(name, arguments)
            return "\n".join(getattr(block, "text", "") for block in result.content)

        shown = await call("orders", {"year": 2026})
        id = shown.split("kept as ")[1].split(" ")[0]
        print(f"{shown[:60]} … ({len(shown):,} characters)")
        print(await call("read_result", {"result": id, "find": '"id":1999'}))
        print(await call("revenue", {"orders": {"$result": id}}))


if __name__ == "__main__":
    asyncio.run(main())
