"""The index of a search is made by one replica, and the others begin with it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest

from mcp_toolset import Tool, Toolset, ToolsetServer
from mcp_toolset.catalog.search.lexical import LexicalScorer
from mcp_toolset.search import CatalogEntry
from mcp_toolset.shared import SharedState

pytestmark = pytest.mark.anyio


def tools() -> Toolset:
    made = [
        Tool.from_schema(f"tool_{at}", {"type": "object"}, description=f"Send letter {at} to office {at}.")
        for at in range(150)
    ]
    return Toolset(*made).deferred()


async def search(url: str, folder: Path) -> list[str]:
    """What a replica finds that has no file of its own."""
    with anyio.fail_after(60):
        async with ToolsetServer(tools(), shared=SharedState(url), keep=folder) as server:
            told = await server.call_tool("search_tools", {"query": "office of letter 33"})
            return [each["id"] for each in told.structured["hits"]]


@pytest.mark.needs("kept_indexes")
async def test_r1_a_replica_begins_with_the_index_that_another_one_has_made(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    add = LexicalScorer.add

    def noted(scorer: LexicalScorer, entries: Iterable[CatalogEntry]) -> None:
        entries = list(entries)
        read.extend(entry.public_name for entry in entries)
        add(scorer, entries)

    monkeypatch.setattr(LexicalScorer, "add", noted)
    first = await search(url, tmp_path / "one")
    assert len(read) == 150
    read.clear()
    assert await search(url, tmp_path / "other") == first
    assert read == []
    (one,), (other,) = ([*(tmp_path / name).glob("*.index")] for name in ("one", "other"))
    assert one.name == other.name and one.read_bytes() == other.read_bytes()


async def test_r1_an_index_of_another_program_is_not_taken(url: str, tmp_path: Path) -> None:
    first = await search(url, tmp_path / "one")
    shared = SharedState(url)
    async with shared.running():
        run, key = shared.connection.run, shared.connection.key("kept index", "*")
        for each in await run("KEYS", key, to="look"):
            await run("HSET", each, "value", b"AAAA", to="write")
    assert await search(url, tmp_path / "other") == first
