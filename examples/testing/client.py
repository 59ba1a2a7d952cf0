import asyncio

from mcp_toolset import Toolset, tool
from mcp_toolset.testing import Client


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    async with Client(Toolset(add)) as client:
        result = await client.call_tool("add", {"a": 2, "b": 3})
        print(result.structured_content)


if __name__ == "__main__":
    asyncio.run(main())
