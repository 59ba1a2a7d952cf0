"""A server whose tools run as tasks until the test lets them end, and clients that take tasks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from tests.interaction.raw_client import RawClient, raw_client

from mcp_toolset import RemoteToolset, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.errors import UpstreamProtocolError

TASKS: Final = "io.modelcontextprotocol/tasks"
CAPABILITIES: Final[dict[str, Any]] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}}
DECLARED: Final[dict[str, Any]] = {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
NAME: Final[dict[str, Any]] = {"type": "object", "properties": {"name": {"type": "string"}}}


class Jobs:
    """The tools, and what became of their calls."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.running = anyio.Event()
        self.started = 0
        self.cancelled = anyio.Event()

    def toolset(self, describes: str = "Build something.") -> Toolset:
        @tool(task="optional", description=describes)
        async def build(what: str, context: ToolContext) -> str:
            self.started += 1
            self.running.set()
            try:
                await context.progress(1, 2, "half of it")
                await self.go.wait()
            except anyio.get_cancelled_exc_class():
                self.cancelled.set()
                raise
            return f"built {what}"

        @tool(task="optional")
        async def greet(context: ToolContext) -> str:
            """Greet the user by name."""
            return f"Hello, {(await context.ask('Your name?', NAME)).content['name']}!"

        @tool(task="required")
        async def only() -> str:
            """Run only as a task."""
            return "ran as a task"

        @tool(task="required")
        async def broken(code: int = -32603) -> str:
            """End with an error of the protocol."""
            page = {"mode": "url", "message": "Open.", "url": "javascript:alert(1)", "elicitationId": "1"}
            raise UpstreamProtocolError("job", code, "out of order", {"elicitations": [page]})

        @tool
        def plain() -> str:
            """Answer at once."""
            return "at once"

        return Toolset(build, greet, only, broken, plain)

    def server(self, describes: str = "Build something.", **options: Any) -> ToolsetServer:
        return ToolsetServer(self.toolset(describes), name="jobs", capabilities=["ask"], **options)


@asynccontextmanager
async def served(
    jobs: Jobs, *, mounted: bool, era: str = "modern", task_timeout: float | None = None, **options: Any
) -> AsyncGenerator[RawClient]:
    """A client of the server, or of a bridge before it."""
    own = jobs.server() if mounted else jobs.server(**options)
    wait: dict[str, Any] = {} if task_timeout is None else {"task_timeout": task_timeout}
    bridge = ToolsetServer(Toolset(RemoteToolset(own, name="jobs", **wait)), **options) if mounted else own
    with anyio.fail_after(60):
        async with bridge, raw_client(bridge, era, CAPABILITIES if era == "legacy" else None) as client:
            yield client


async def call(client: RawClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer to a call of a client that takes tasks."""
    return await client.ask("tools/call", name=tool, arguments=arguments, _meta=dict(DECLARED))


async def about(client: RawClient, method: str, id: str, **params: Any) -> dict[str, Any]:
    """The answer to a request about a task."""
    return await client.ask(method, taskId=id, **params, _meta=dict(DECLARED))


async def until(client: RawClient, id: str, *statuses: str) -> dict[str, Any]:
    """The state of a task, once it is one of these."""
    while (state := await about(client, "tasks/get", id)).get("status") not in statuses:
        assert state.get("status") in ("working", "input_required"), state
        await anyio.lowlevel.checkpoint()
    return state
