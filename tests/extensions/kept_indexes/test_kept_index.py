"""The index of a server's search is kept from one run to the next, and each tool is compared with it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.contexts import OnWire

from mcp_toolset import SourceStatus, Tool, ToolCall, ToolContext, ToolDefinition, Toolset, ToolsetServer
from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
from mcp_toolset.catalog.search.lexical import LexicalScorer
from mcp_toolset.concurrency.atomic_file import locked
from mcp_toolset.extensions.kept_indexes import IndexKeeper, kept_indexes
from mcp_toolset.extensions.kept_indexes.kept_indexes import KeptIndexes
from mcp_toolset.grants import GrantLedger
from mcp_toolset.search import CatalogEntry, SearchIndex

pytestmark = pytest.mark.anyio

TOOLS = [ToolDefinition(f"tool_{at}", f"Send letter {at} to the office of number {at}.") for at in range(120)]
QUERIES = ("send a letter", "tool_7", "office of number 33", "water the garden")


class Reading:
    """The names of the tools whose words were read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        add = LexicalScorer.add

        def noted(scorer: LexicalScorer, entries: Iterable[CatalogEntry]) -> None:
            entries = list(entries)
            self.names += [entry.public_name for entry in entries]
            add(scorer, entries)

        monkeypatch.setattr(LexicalScorer, "add", noted)

    def taken(self) -> list[str]:
        names, self.names = self.names, []
        return sorted(names)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(monkeypatch)


def _index(folder: Path | None, tools: Iterable[ToolDefinition] = TOOLS) -> tuple[SearchIndex, IndexKeeper]:
    index, keeper = SearchIndex(), IndexKeeper(lambda: folder)
    keeper.rest(index, lambda entry: False)
    index.add(tools, later=True)
    return index, keeper


async def _run(folder: Path | None, tools: Iterable[ToolDefinition] = TOOLS) -> list[object]:
    """The answers of one run, which keeps its index."""
    index, keeper = _index(folder, tools)
    async with keeper.running():
        return [index.search(query, limit=40) for query in QUERIES]


def _tool(definition: ToolDefinition) -> Tool[..., object]:
    return Tool.from_schema(definition.name, definition.input_schema, description=definition.description)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.index"))


async def _search(server: ToolsetServer, query: str) -> Sequence[str]:
    found = await server.call(ToolCall("search_tools", {"query": query}), OnWire("one"))
    return [hit["signature"].partition("(")[0] for hit in found.structured["hits"]]


async def test_m2_the_second_run_of_a_server_reads_no_tool(tmp_path: Path, reading: Reading) -> None:
    tools = [*map(_tool, TOOLS)]
    found = []
    for _ in range(2):
        async with ToolsetServer(Toolset(*tools).deferred(), keep=tmp_path) as server:
            found.append(await _search(server, "send letter 33"))
            found.append(await _search(server, "tool_7"))
        read = reading.taken()
        assert len(read) in (0, len(TOOLS))
    assert read == []
    assert found[:2] == found[2:]
    assert found[1][0] == "tool_7"
    (path,) = _files(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_m2_a_tool_that_has_changed_meanwhile_is_read_alone(tmp_path: Path, reading: Reading) -> None:
    await _run(tmp_path)
    reading.taken()
    changed = [*TOOLS[2:], ToolDefinition("tool_1", "Water the garden."), ToolDefinition("new", "Weed it.")]
    answers = await _run(tmp_path, changed)
    assert reading.taken() == ["new", "tool_1"]
    assert answers == await _run(None, changed)
    assert len(_files(tmp_path)) == 1
    reordered = replace(TOOLS[5], input_schema={"type": "object", "properties": {"b": {}, "a": {}}})
    await _run(tmp_path, [*TOOLS, reordered])
    swapped = replace(TOOLS[5], input_schema={"type": "object", "properties": {"a": {}, "b": {}}})
    reading.taken()
    assert await _run(tmp_path, [*TOOLS, swapped]) == await _run(None, [*TOOLS, swapped])


async def test_m2_many_changes_make_a_new_file_and_old_ones_are_removed(
    tmp_path: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_indexes, "EDITIONS", 2)
    for turn in range(4):
        some = [ToolDefinition(f"other_{turn}_{at}", "Feed the cat.") for at in range(30)]
        await _run(tmp_path, [*TOOLS, *some])
        reading.taken()
        await _run(tmp_path, [*TOOLS, *some])
        assert reading.taken() == []
    assert len(_files(tmp_path)) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "empty"])
async def test_m2_a_damaged_file_is_told_and_made_anew(
    tmp_path: Path, damage: str, reading: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    answers = await _run(tmp_path)
    (path,) = _files(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes({"cut": content[:999], "flipped": content, "foreign": b"x" * 999, "empty": b""}[damage])
    reading.taken()
    assert await _run(tmp_path) == answers
    assert len(reading.taken()) == len(TOOLS)
    assert [record.levelno for record in caplog.records if str(path) in record.getMessage()] == [
        logging.WARNING
    ]
    assert await _run(tmp_path) == answers
    assert reading.taken() == []


async def test_m2_a_file_that_others_may_write_is_not_used(
    tmp_path: Path, reading: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    await _run(tmp_path)
    (path,) = _files(tmp_path)
    path.chmod(0o666)
    reading.taken()
    await _run(tmp_path)
    assert len(reading.taken()) == len(TOOLS)
    assert "chmod it to 600" in caplog.text


async def test_m2_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert await _run(tmp_path / "file" / "kept") == await _run(None)
    assert "the index of the search cannot be kept" in caplog.text


async def test_m2_while_another_process_writes_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_indexes, "LOCK_TIMEOUT", 0.0)
    with locked(tmp_path / ".lock", 1):
        await _run(tmp_path)
    assert _files(tmp_path) == []
    await _run(tmp_path)
    assert len(_files(tmp_path)) == 1


async def test_m2_few_tools_and_tools_without_a_search_make_no_file(tmp_path: Path) -> None:
    await _run(tmp_path, TOOLS[:20])
    _, keeper = _index(tmp_path)
    async with keeper.running():
        pass
    assert _files(tmp_path) == []


async def test_m2_a_change_while_the_file_is_prepared_throws_it_away(tmp_path: Path) -> None:
    index, keeper = _index(tmp_path)
    async with keeper.running():
        index.search("send a letter")
        steps = index.saving(KeptIndexes(tmp_path), lambda entry: False)
        next(steps)
        index.add([ToolDefinition("tool_1", "Water the garden.")])
        assert [*steps] == []
        assert index.is_worth_storing


async def test_m2_a_change_before_the_first_search_does_not_waste_the_file(
    tmp_path: Path, reading: Reading
) -> None:
    await _run(tmp_path)
    index, _ = _index(tmp_path, TOOLS[:60])
    reading.taken()
    index.add(TOOLS[60:])
    index.add([ToolDefinition("tool_1", "Water the garden.")])
    index.remove(["tool_2"])
    assert index.search("water the garden")[0].name == "tool_1"
    assert reading.taken() == ["tool_1"]
    plain = SearchIndex([*TOOLS[3:], TOOLS[0], ToolDefinition("tool_1", "Water the garden.")])
    assert [index.search(query, limit=40) for query in QUERIES] == [
        plain.search(query, limit=40) for query in QUERIES
    ]


async def test_m2_a_server_more_is_read_alone_and_a_strange_file_is_left(
    tmp_path: Path, reading: Reading
) -> None:
    async def run(entries: Iterable[CatalogEntry]) -> list[str]:
        index, keeper = SearchIndex(), IndexKeeper(lambda: tmp_path)
        keeper.rest(index, lambda entry: False)
        index.add(entries, later=True)
        reading.taken()
        async with keeper.running():
            index.search("send a letter")
        return reading.taken()

    mail = [CatalogEntry(one, one.name, "mail") for one in TOOLS]
    more = [CatalogEntry(one, f"more_{one.name}", "more") for one in TOOLS[:9]]
    assert len(await run(mail)) == len(mail)
    assert await run([*mail, *more]) == sorted(entry.public_name for entry in more)
    strange = [CatalogEntry(one, f"other_{one.name}", "other") for one in TOOLS]
    assert len(await run(strange)) == len(strange)
    assert await run(strange) == []


async def test_m2_two_searches_at_once_begin_with_one_file(tmp_path: Path, reading: Reading) -> None:
    answers = await _run(tmp_path)
    reading.taken()
    index, _ = _index(tmp_path)
    first, second = index.catch_up(), index.catch_up()
    next(first)
    for _ in second:
        pass
    assert [*first] == []
    assert reading.taken() == []
    assert [index.search(query, limit=40) for query in QUERIES] == answers


class Secretive:
    """A source with a secret."""

    status = SourceStatus("ready")

    def scrubbed(self, text: str) -> str:
        return text.replace("hunter2", "***")


async def test_m2_no_file_has_a_tool_of_one_caller_or_a_secret_of_a_server(
    tmp_path: Path, reading: Reading
) -> None:
    class Personal:
        def exists(self, context: ToolContext) -> bool:
            return True

        def definition(self, context: ToolContext) -> ToolDefinition:
            return TOOLS[4]

    said = [replace(TOOLS[3], description="Log in with hunter2, kindly."), *TOOLS[4:]]
    tools = Toolset(*map(_tool, said)).view().values()
    bindings = [replace(one, source="mail") for one in tools]
    bindings[1] = replace(bindings[1], personal=Personal())
    for _ in range(2):
        keeper = IndexKeeper(lambda: tmp_path)
        catalog = DeferredCatalog(GrantLedger(), lambda: {"mail": cast("Any", Secretive())})
        keeper.rest(catalog.index, catalog.is_private)
        catalog.update(bindings)
        reading.taken()
        async with keeper.running():
            assert catalog.search("log in kindly")[0].name == "tool_3"
    assert reading.taken() == ["tool_3", "tool_4"]
    (path,) = _files(tmp_path)
    content = path.read_bytes()
    assert b'"tool_5"' in content
    assert not [word for word in (b"hunter", b"kind", b'"tool_3"', b'"tool_4"') if word in content]


async def test_m2_a_server_outlives_a_file_that_is_cut_short_in_place(tmp_path: Path) -> None:
    answers = await _run(tmp_path)
    index, _ = _index(tmp_path)
    index.search("tool_7")
    (path,) = _files(tmp_path)
    os.truncate(path, 0)
    assert [index.search(query, limit=40) for query in QUERIES] == answers
