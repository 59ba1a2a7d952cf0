"""An API by the address of its document, with a key, with retries, and with files to upload."""

import asyncio
import os

from mcp_toolset import OpenAPIToolset, ToolsetServer

crm = OpenAPIToolset(
    "https://crm.example.com/openapi.json",
    name="crm",
    credentials={"api_key": os.environ.get("CRM_KEY", "")},
    files="uploads",
    retries=2,
)


async def main() -> None:
    async with ToolsetServer(crm) as server:
        print((await server.call_tool("find_contact", {"name": "Ada"})).text)


if __name__ == "__main__":
    asyncio.run(main())
