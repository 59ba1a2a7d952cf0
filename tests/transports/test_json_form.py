"""What an application says without a JSON form does not end its client's connection (F22)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from tests.support.asking import text_of
from tests.support.served import served

from mcp_toolset import Prompts, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.errors import InvalidOutputError

pytestmark = pytest.mark.anyio
LONE = "\ud800"


@tool
async def whisper(context: ToolContext) -> str:
    """Report and log what no JSON can carry."""
    for say in (
        lambda: context.progress(1, 2, LONE),
        lambda: context.log("info", {LONE: LONE}),
        lambda: context.log("info", object()),
    ):
        try:
            await say()
        except InvalidOutputError as fault:
            assert "no JSON form" in str(fault)
    return "went on"


@tool
def fails() -> str:
    """Fail with a text that no JSON can carry."""
    raise ValueError(LONE)


class Shelf:
    """A provider whose resource has a text that no JSON can carry."""

    def on_change(self, callback: Any) -> Any:
        return lambda: None

    async def list_resources(self) -> Sequence[types.Resource]:
        return [types.Resource(uri="a://1", name="one")]

    async def list_resource_templates(self) -> Sequence[types.ResourceTemplate]:
        return []

    async def read_resource(self, uri: str) -> Sequence[types.TextResourceContents]:
        return [types.TextResourceContents(uri=uri, text=LONE)]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("transport", ["memory", "http", "sse"])
async def test_f22_what_has_no_json_form_is_an_error_of_its_own_request(transport: str, mode: str) -> None:
    prompts = Prompts()
    prompts.add(name="odd")(lambda: LONE)
    server = ToolsetServer(Toolset(whisper, fails), prompts=prompts, resources=Shelf())

    async def note(progress: float, total: float | None, message: str | None) -> None:
        return

    async def use(client: Client) -> None:
        told = await client.call_tool("fails", {})
        assert told.is_error
        for odd in (partial(client.get_prompt, "odd"), partial(client.read_resource, "a://1")):
            with pytest.raises(MCPError, match="no JSON form") as fault:
                await odd()
            assert fault.value.code == types.INTERNAL_ERROR
        assert text_of(await client.call_tool("whisper", {}, progress_callback=note)) == "went on"

    async with served(server) as url:
        ways = {"memory": server.lowlevel, "http": f"{url}/mcp", "sse": sse_client(f"{url}/sse")}
        async with Client(ways[transport], mode=mode, cache=None) as client:
            await use(client)
