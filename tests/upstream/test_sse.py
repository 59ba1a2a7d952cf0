"""An upstream over HTTP+SSE: its messages may be as big as over any other transport."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest
from mcp import Client
from tests.support.asking import text_of
from tests.support.served import served

from mcp_toolset import RemoteToolset, ToolContext, Toolset, ToolsetServer, tool

pytestmark = pytest.mark.anyio

BIG = 5 * 1024 * 1024


@tool
async def big(letter: str, context: ToolContext) -> str:
    """Report three steps, and return 5 MB."""
    for step in range(3):
        await context.progress(step + 1, 3, letter)
    return letter * BIG


@tool
def small(letter: str) -> str:
    """Return one letter."""
    return letter


@pytest.fixture
async def hub() -> AsyncGenerator[ToolsetServer]:
    """A server with a mount over SSE."""
    upstream = ToolsetServer(Toolset(big, small), name="upstream")
    async with served(upstream) as url:
        mount = RemoteToolset(f"{url}/sse", name="sse")
        async with ToolsetServer(Toolset(mount), name="hub") as server:
            await server.settled()
            yield server


async def test_a_result_of_five_megabytes_comes_over_sse_and_so_does_what_follows(hub: ToolsetServer) -> None:
    steps: list[float] = []
    results: dict[str, str] = {}
    states: list[str] = []
    (source,) = hub.registry.sources().values()
    source.on_change(lambda: states.append(source.status.state))

    async def step(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    with anyio.fail_after(60):
        async with Client(hub.lowlevel, mode="legacy", cache=None) as client:
            result = await client.call_tool("big", {"letter": "x"}, progress_callback=step)
            assert text_of(result) == "x" * BIG
            assert steps == [1, 2, 3]

            async def one(name: str, letter: str) -> None:
                results[letter] = text_of(await client.call_tool(name, {"letter": letter}))

            async with anyio.create_task_group() as group:
                for name, letter in (("big", "a"), ("small", "b"), ("big", "ä"), ("small", "d")):
                    group.start_soon(one, name, letter)
    assert results == {"a": "a" * BIG, "b": "b", "ä": "ä" * BIG, "d": "d"}
    assert "offline" not in states
