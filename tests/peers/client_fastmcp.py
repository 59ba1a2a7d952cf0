"""FastMCP's client, as `client.mjs`; it runs in an environment of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client  # pyright: ignore[reportMissingImports]


async def visit(url: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    results: list[dict[str, Any]] = []
    async with Client(url) as client:
        tools = [tool.name for tool in await client.list_tools()]
        found = None
        for name, given in calls:
            arguments = {**given, "grant": found} if given.get("grant") == "found" else given
            try:
                result = await client.call_tool(name, arguments, raise_on_error=False)
            except Exception as fault:
                results.append({"text": str(fault), "code": getattr(fault, "code", None)})
                continue
            resolved = (result.structured_content or {}).get("resolved")
            found = resolved[0]["grant"] if resolved else found
            text = "\n".join(getattr(block, "text", "") for block in result.content)
            results.append({"text": text, "error": result.is_error})
    print(json.dumps({"tools": tools, "results": results}))  # noqa: T201


async def main(visits: list[dict[str, Any]]) -> None:
    for one in visits:
        await visit(one["url"], one["calls"])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(main(given["visits"]))
