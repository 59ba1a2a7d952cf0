"""A server is spoken to in the era of the client that calls, as far as the server has it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from tests.faults.harness import children
from tests.interaction.lines import relays
from tests.support.asking import Person, text_of

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
Command = Callable[[str], list[str]]
MODERN = "2026-07-28"


@pytest.fixture(scope="module")
def both() -> Generator[Command]:
    """The command of a server of both eras, or of the modern one alone."""
    with relays(str(HERE / "both_eras.py")) as command:
        yield command


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of servers from other tests."""
    monkeypatch.setenv("MCP_TOOLSET_CACHE", str(tmp_path))


@asynccontextmanager
async def bridged(
    command: list[str], mode: str, *answers: str, **options: Any
) -> AsyncGenerator[tuple[Client, RemoteToolset]]:
    up = RemoteToolset(command, name="up", **options)
    person = Person(*({"word": answer} for answer in answers))
    with anyio.fail_after(120):
        async with (
            ToolsetServer(Toolset(up)) as server,
            Client(server.lowlevel, mode=mode, cache=None, elicitation_callback=person) as client,
        ):
            yield client, up


async def said(client: Client, name: str) -> Any:
    return json.loads(text_of(await client.call_tool(name, {})))


async def test_u34_a_legacy_client_uses_tools_that_ask_in_either_way(both: Command) -> None:
    async with bridged(both("both"), "legacy", "one", "two", "three") as (client, _):
        assert await said(client, "elicit") == "one"
        assert await said(client, "hinted") == "two"
        assert (await said(client, "runs"))["version"] == "2025-11-25"
        with pytest.raises(MCPError, match="asks by multi-round trips .* from the next call on"):
            await client.call_tool("rounds", {})
        # The call that failed has run once and was not repeated.
        assert (await said(client, "runs"))["rounds"] == 1
        assert await said(client, "rounds") == "three"


async def test_u34_a_modern_client_is_spoken_for_in_its_own_era(both: Command) -> None:
    async with bridged(both("both"), MODERN, "one") as (client, up):
        assert await said(client, "rounds") == "one"
        assert (await said(client, "runs"))["version"] == MODERN
        assert not len(up.connection.pool)


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_u39_a_list_that_only_2026_has_as_structured_content_reaches_a_legacy_client_as_text(
    both: Command, mode: str
) -> None:
    async with bridged(both("both"), mode) as (client, _):
        result = await client.call_tool("numbers", {})
        assert (result.is_error, text_of(result)) == (False, "[1, 2]")
        assert result.structured_content == (None if mode == "legacy" else [1, 2])


async def test_u34_tools_that_are_named_go_in_the_era_that_they_need(both: Command) -> None:
    eras = {"elicit": "legacy", "rounds": "modern"}
    async with bridged(both("both"), "legacy", "one", "two", eras=eras) as (client, _):
        assert [await said(client, "rounds"), await said(client, "elicit")] == ["one", "two"]
    async with bridged(both("both"), MODERN, "one", "two", eras=eras) as (client, _):
        assert [await said(client, "rounds"), await said(client, "elicit")] == ["one", "two"]


async def test_u34_a_server_without_the_older_era_is_tried_once_and_then_known(both: Command) -> None:
    for opened in (1, 0):
        async with bridged(both("modern-only"), "legacy", "one") as (client, up):
            before = children()
            assert await said(client, "rounds") == "one"
            assert up.connection.pool.routing.facts.legacy is False
            assert next(up.connection.pool._serials) - 1 == opened
            assert children() == before
