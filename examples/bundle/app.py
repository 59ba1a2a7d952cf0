"""The toolset under another name, behind search, beside others: what it carries still applies."""

import asyncio

from crm import crm

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.testing import Client


@tool(read_only=True)
def today() -> str:
    """Say which day it is."""
    return "2026-11-22"


async def main() -> None:
    server = ToolsetServer(Toolset(today, crm.prefixed("crm")), instructions="A shop.")
    async with Client(server, mode="legacy") as client:
        print(client.instructions)
        for name, arguments in (
            ("crm_change_order", {"customer": "Ann", "order": 1}),
            ("crm_find_customer", {"name": "Ann"}),
            ("crm_change_order", {"customer": "Ann", "order": 1}),
        ):
            result = await client.call_tool(name, arguments)
            print(*(getattr(block, "text", "")[:60] for block in result.content), sep=" ")


if __name__ == "__main__":
    asyncio.run(main())
