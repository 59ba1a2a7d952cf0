"""A server whose tools wait, ask and die: `code_upstream.py LOG`, over stdio; it notes what calls come to."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio

from mcp_toolset import ToolContext, Toolset, ToolsetServer, serve, tool

SIZE = {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]}


def made(log: Path) -> ToolsetServer:
    def note(line: str) -> None:
        with log.open("a") as file:
            file.write(f"{line}\n")

    @tool
    async def stuck(name: str) -> str:
        """Wait for ever."""
        note(f"began {name}")
        try:
            await anyio.sleep_forever()
        finally:
            note(f"ended {name}")
        return ""

    @tool
    async def order(context: ToolContext, item: str) -> dict[str, Any]:
        """Order an item in a size."""
        answer = await context.ask("Which size?", SIZE)
        note(f"ordered {item}")
        return {"item": item, "size": answer.content["size"]}

    @tool
    def die() -> str:
        """End the process."""
        os._exit(3)

    @tool(read_only=True)
    def hello(name: str) -> dict[str, str]:
        """Greet."""
        return {"hello": name}

    return ToolsetServer(Toolset(stuck, order, die, hello), capabilities=["ask"])


if __name__ == "__main__":
    serve(made(Path(sys.argv[1])))
