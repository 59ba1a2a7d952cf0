"""Tools that start a long import, show all imports, and wait for one or cancel it."""

import asyncio
import os
import sys
from dataclasses import asdict
from typing import Any

import anyio

from mcp_toolset import RunningProcess, ToolContext, Toolset, ToolsetServer, tool


async def copy_rows(process: RunningProcess, rows: int) -> str:
    """The work: it gets its process first, then the arguments of `start`."""
    for row in range(rows):
        if row % 100 == 0:
            await process.emit("copied", {"rows": row})
        await anyio.sleep(0.001)  # copy the row here
    return f"{rows} rows copied"


@tool
async def start_import(context: ToolContext, rows: int) -> str:
    """Start an import; returns its id."""
    process = await context.processes.start("import", copy_rows, rows)
    return process.id


@tool(read_only=True)
async def imports(context: ToolContext) -> list[dict[str, Any]]:
    """Show the imports, the newest first."""
    return [asdict(process) for process in await context.processes.list()]


@tool(read_only=True)
async def progress(context: ToolContext, id: str) -> list[Any]:
    """Show what an import has copied so far."""
    return [event.data for event in await context.processes.events(id)]


@tool(read_only=True)
async def wait_for_import(context: ToolContext, id: str) -> str:
    """Wait up to 20 seconds for the result of an import."""
    return await context.processes.result(id, timeout=20)


@tool
async def cancel_import(context: ToolContext, id: str) -> str:
    """Cancel an import; returns its state."""
    return (await context.processes.cancel(id)).state


server = ToolsetServer(
    Toolset(start_import, imports, progress, wait_for_import, cancel_import),
    name="imports",
    capabilities=["processes"],
    processes=os.environ.get("IMPORTS", "imports.sqlite3"),
)


async def demo() -> None:
    async with server:
        for process in (await server.call_tool("imports", {})).structured["result"]:
            print(process["name"], "is", process["state"])
        short = (await server.call_tool("start_import", {"rows": 250})).text
        print((await server.call_tool("wait_for_import", {"id": short})).text)
        print((await server.call_tool("progress", {"id": short})).text)
        await server.call_tool("start_import", {"rows": 1_000_000})
        os.kill(os.getpid(), 9)  # as if the machine lost its power


if __name__ == "__main__":
    asyncio.run(demo() if "demo" in sys.argv else server.run_stdio())
