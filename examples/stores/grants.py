"""Grants in a database, shared by two servers of one service."""

import asyncio

from database import Database

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.grants import GrantLedger


@tool
def archive(number: int) -> str:
    """Find an invoice in the archive."""
    return f"invoice {number}"


database = Database()


def process() -> ToolsetServer:
    """What each process of the service makes."""
    return ToolsetServer(Toolset(archive).deferred(), grants=GrantLedger(database, cache_ttl=10))


async def main() -> None:
    async with process() as first, process() as second:
        resolved = await first.call_tool("resolve_tools", {"ids": ["archive"]})
        call = {"grant": resolved.structured["tools"][0]["grant"], "arguments": {"number": 7}}
        for _ in range(3):
            before = database.requests
            result = await second.call_tool("call_tool", call)
            print(result.text, "after", database.requests - before, "requests")
        print(await second.grants.revoke_async(grant=call["grant"]), "taken back")
        print((await second.call_tool("call_tool", call)).text)


if __name__ == "__main__":
    asyncio.run(main())
