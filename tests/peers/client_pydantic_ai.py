"""pydantic-ai's toolset over MCP, as `client.mjs`; it runs in an environment of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from pydantic_ai import RunContext  # pyright: ignore[reportMissingImports]
from pydantic_ai.mcp import MCPToolset  # pyright: ignore[reportMissingImports]
from pydantic_ai.models.test import TestModel  # pyright: ignore[reportMissingImports]
from pydantic_ai.usage import RunUsage  # pyright: ignore[reportMissingImports]


async def visit(url: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    results: list[dict[str, Any]] = []
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    async with MCPToolset(url, tool_error_behavior="error") as toolset:
        tools = await toolset.get_tools(context)
        found = None
        for name, given in calls:
            arguments = {**given, "grant": found} if given.get("grant") == "found" else given
            if name not in tools:
                results.append({"text": f"Unknown tool: {name}", "code": -32602})
                continue
            try:
                value: Any = await toolset.call_tool(name, arguments, context, tools[name])
            except Exception as fault:
                results.append({"text": str(fault), "error": True})
                continue
            found = value["resolved"][0]["grant"] if "resolved" in value else found
            results.append({"text": value if isinstance(value, str) else json.dumps(value), "error": False})
    print(json.dumps({"tools": list(tools), "results": results}))  # noqa: T201


async def main(visits: list[dict[str, Any]]) -> None:
    for one in visits:
        await visit(one["url"], one["calls"])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(main(given["visits"]))
