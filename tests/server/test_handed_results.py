"""A long result goes from one mounted server to a tool of another that asks, and to and from code, unread."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.extensions.large_results.test_large_results import id_in, rows
from tests.support.asking import Person, text_of
from tests.support.served import listening

from mcp_toolset import RemoteToolset, ToolContext, Toolset, ToolsetServer, tool

pytestmark = [pytest.mark.anyio, pytest.mark.needs("code", "large_results")]

SOON = 30
SIZE = {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]}
ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


@tool
async def total(context: ToolContext, rows: list[dict[str, int]]) -> str:
    """Add up rows, in a size."""
    answer = await context.ask("Which size?", SIZE)
    return f"{sum(row['total'] for row in rows)} {answer.content['size']}"


class Caller:
    """A client of a hub of two mounts, one that makes long results and one that takes them and asks."""

    def __init__(self, client: Client, grants: dict[str, str]) -> None:
        self.client = client
        self.grants = grants

    async def call(self, name: str, **arguments: Any) -> Any:
        given = {"grant": self.grants[name], "arguments": arguments}
        return await self.client.call_tool("call_tool", given)

    async def run(self, code: str) -> Any:
        grants = list(self.grants.values())
        return await self.client.call_tool("run_code", {"code": code, "grants": grants})


@asynccontextmanager
async def hub(mode: str, upstream: Any, person: Person) -> AsyncGenerator[Caller]:
    sink = ToolsetServer(Toolset(total), capabilities=["ask"])
    with anyio.fail_after(SOON):
        rows_app, sink_app = ToolsetServer(Toolset(rows)).http_app(), sink.http_app()
        async with listening(rows_app) as first, listening(sink_app) as second:
            mounts = (
                RemoteToolset(f"{first}/mcp", name="first", protocol=upstream, timeout=SOON),
                RemoteToolset(f"{second}/mcp", name="second", protocol=upstream, timeout=SOON),
            )
            server = ToolsetServer(Toolset(*mounts).deferred(code=True), large_results=500)
            async with server:
                await server.settled()
                way = Client(server.lowlevel, mode=mode, cache=None, elicitation_callback=person)
                async with way as client:
                    found = await client.call_tool("resolve_tools", {"ids": ["rows", "total"]})
                    told = (found.structured_content or {})["tools"]
                    yield Caller(
                        client, dict(zip(("rows", "total"), (one["grant"] for one in told), strict=True))
                    )


@ERAS
@pytest.mark.parametrize("upstream", ["legacy", "modern"])
async def test_m7_a_result_of_a_mount_goes_to_a_tool_of_another_that_asks(mode: str, upstream: str) -> None:
    person = Person({"size": "L"}, {"size": "M"})
    async with hub(mode, upstream, person) as caller:
        id = id_in(await caller.call("rows", n=500))
        assert text_of(await caller.call("total", rows={"$result": id})) == "374250 L"
        kept = id_in(await caller.run("await rows(n=400)"))
        reference = {"$result": kept, "path": "value.result"}
        assert text_of(await caller.call("total", rows=reference)) == "239400 M"
        assert len(person.asked) == 2


@ERAS
async def test_m7_code_hands_a_kept_result_to_a_tool_that_asks(mode: str) -> None:
    person = Person({"size": "S"})
    async with hub(mode, "modern", person) as caller:
        id = id_in(await caller.call("rows", n=500))
        one = await caller.run(f"await total(rows={{'$result': '{id}'}})")
        assert one.structured_content["value"] == "374250 S"
        missing = await caller.run("await total(rows={'$result': 'r_0000000000000000'})")
        assert missing.is_error and "there is no result 'r_0000000000000000'" in text_of(missing)
        nowhere = f"rows={{'$result': '{id}', 'path': 'none'}}"
        caught = f"try:\n    x = await total({nowhere})\nexcept RuntimeError as fault:\n    x = str(fault)\nx"
        assert "the result has no such path" in (await caller.run(caught)).structured_content["value"]
