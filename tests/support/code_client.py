"""A client that runs code: it finds tools, has them granted, and runs snippets with the grants."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from tests.support.asking import text_of

from mcp_toolset import Toolset, ToolsetServer

DEADLINE = 60


class CodeClient:
    """One client of one server."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.grants: list[str] = []

    async def grant(self, *names: str) -> list[str]:
        result = await self.client.call_tool("resolve_tools", {"ids": list(names)})
        made = [one["grant"] for one in (result.structured_content or {})["tools"]]
        self.grants += made
        return made

    async def run(self, code: str, *, tool: str = "run_code", **options: Any) -> dict[str, Any]:
        """What a snippet comes to; with `error` if it is an error."""
        arguments = {"code": code, "grants": self.grants, **options}
        with anyio.fail_after(DEADLINE):
            result = await self.client.call_tool(tool, arguments)
        text = text_of(result)
        if not text.startswith("{"):
            return {"error": text, "calls": []}
        told = json.loads(text)
        assert told == result.structured_content
        assert result.is_error is ("error" in told)
        return told

    async def value(self, code: str, **options: Any) -> Any:
        told = await self.run(code, **options)
        assert "error" not in told, told
        return told["value"]


@asynccontextmanager
async def code_client(
    toolset: Toolset, *names: str, mode: str = "2026-07-28", alone: bool = True, **options: Any
) -> AsyncGenerator[tuple[CodeClient, ToolsetServer]]:
    """A client in memory, with some tools granted; if it is alone, no process of the sandbox is left."""
    client_options = {key: options.pop(key) for key in list(options) if key.endswith("_callback")}
    server = ToolsetServer(toolset.deferred(code=True), **options)
    async with server, Client(server.lowlevel, mode=mode, cache=None, **client_options) as client:
        one = CodeClient(client)
        if names:
            await one.grant(*names)
        yield one, server
    assert not alone or workers() == []


def workers(of: int | None = None) -> list[int]:
    """The processes of the sandbox that a process has, this one unless another is named."""
    found: list[int] = []
    for task in Path(f"/proc/{of or os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return [pid for pid in found if _is_worker(pid)]


def _is_worker(pid: int) -> bool:
    try:
        return b"monty" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
