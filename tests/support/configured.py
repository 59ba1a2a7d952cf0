"""A folder with a configuration of plain servers, and clients of what serves it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp import Client
from mcp.client.sse import sse_client
from tests.support.served import listening

from mcp_toolset import ToolsetServer, load_toolset
from mcp_toolset.config import load_config

PLAIN = str(Path(__file__).with_name("plain_server.py"))
BOUND = 60
"""Seconds for anything that waits for processes on a busy machine."""

NEWS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
    "notifications/resources/updated": "updated",
}


class Folder:
    """Where a configuration lies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "mcp.json"

    def entry(self, *tools: str, env: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
        """A server of `plain_server.py`."""
        arguments = [PLAIN, json.dumps({"tools": tools, **options})]
        return {"command": sys.executable, "args": arguments, **({"env": env} if env else {})}

    def write(self, servers: dict[str, Any], **section: Any) -> None:
        draft = self.path / "draft"
        draft.write_text(json.dumps({"mcpServers": servers, "toolset": section}))
        draft.replace(self.config)

    def gate(self, name: str) -> str:
        path = self.path / name
        os.mkfifo(path)
        return str(path)

    def server(self) -> ToolsetServer:
        return ToolsetServer(load_toolset(load_config(self.config)))


async def release(gate: str) -> None:
    """Let whoever waits at a gate go on; waits for somebody to wait there."""
    with anyio.fail_after(BOUND):
        await anyio.to_thread.run_sync(_opened, gate, abandon_on_cancel=True)


def _opened(gate: str) -> None:
    with open(gate, "w"):
        pass


def names(server: ToolsetServer) -> list[str]:
    return [shown["name"] for shown in server.tools()]


async def said(server: ToolsetServer, name: str) -> tuple[str, str]:
    """The label of the server that answers, and its process."""
    return label_of((await server.call_tool(name)).text)


def label_of(text: str) -> tuple[str, str]:
    assert " of " in text and " by " in text, text
    label, _, process = text.partition(" of ")[2].partition(" by ")
    return label, process.split()[0]


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


class Told(list[str]):
    """What a client was told: `tools`, `prompts`, `resources`, `updated`."""

    async def hear(self, message: Any) -> None:
        if kind := NEWS.get(getattr(message, "method", "")):
            self.append(kind)


@asynccontextmanager
async def targets(server: ToolsetServer, transport: str) -> AsyncGenerator[Callable[[], Any]]:
    """What clients connect to, over `memory`, `http` or `sse`."""
    if transport == "memory":
        yield lambda: server.lowlevel
        return
    async with listening(server.http_app()) as url:
        yield lambda: sse_client(f"{url}/sse") if transport == "sse" else f"{url}/mcp"


@asynccontextmanager
async def visitor(
    target: Any, era: str, *watched: str, **options: Any
) -> AsyncGenerator[tuple[Client, Told]]:
    """A client that hears of everything that changes."""
    told = Told()
    mode: Any = "legacy" if era == "legacy" else "auto"
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(target, mode=mode, cache=None, message_handler=told.hear, **options)
        )
        if era == "legacy":
            for uri in watched:
                await client.session.send_request(
                    types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri)), types.EmptyResult
                )
        else:
            await stack.enter_async_context(
                client.listen(
                    tools_list_changed=True,
                    prompts_list_changed=True,
                    resources_list_changed=True,
                    resource_subscriptions=watched,
                )
            )
        yield client, told
