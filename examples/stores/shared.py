"""Three servers of one service share a rate, cached results, and which tools are switched on."""

import asyncio

from database import Database

from mcp_toolset import Rules, Toolset, ToolsetServer, tool
from mcp_toolset.middleware import RateLimit, ResultCache


@tool(read_only=True)
def rate_of(currency: str) -> str:
    """The rate of a currency."""
    print("asked the bank")
    return f"{currency}: 1.1"


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


database = Database()


def process() -> ToolsetServer:
    """What each process of the service makes."""
    rules = Rules(
        middleware=[ResultCache(60, store=database)],
        tool_middleware={"pay": [RateLimit(3, 3600, store=database)]},
    )
    return ToolsetServer(Toolset(rate_of, pay), rules=rules, state=database)


async def main() -> None:
    async with process() as first:
        for amount in (1, 2):
            print((await first.call_tool("pay", {"amount": amount})).text)
        print((await first.call_tool("rate_of", {"currency": "EUR"})).text)
    async with process() as second:
        print((await second.call_tool("pay", {"amount": 3})).text)
        print((await second.call_tool("pay", {"amount": 4})).is_error)
        print((await second.call_tool("rate_of", {"currency": "EUR"})).text)
        await second.choose({"pay": False})
    async with process() as third:
        print([tool["name"] for tool in third.tools()])


if __name__ == "__main__":
    asyncio.run(main())
