"""The notes server as its users meet it: tools, resources, the wire and the command line."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from servers.notes.notes_server.resources import MAX_LISTED, NoteResources
from servers.notes.notes_server.server import default_path, note_server
from servers.notes.notes_server.store import NoteStore
from servers.notes.notes_server.tools import note_toolset

from mcp_toolset import ToolCall
from mcp_toolset.calls.dispatch import ToolDispatch
from mcp_toolset.tools.source import ResourceProvider

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).parents[2] / "servers" / "notes" / "notes.py"

CALLS: dict[str, dict[str, Any]] = {
    "add_note": {"title": "New", "body": "text", "tags": ["c"]},
    "get_note": {"id": 1},
    "search_notes": {"query": "first", "tag": "a"},
    "list_notes": {"limit": 1},
    "list_tags": {},
    "update_note": {"id": 1, "title": "Renamed", "body": "other", "tags": []},
    "append_to_note": {"id": 1, "text": "more"},
    "tag_note": {"id": 1, "tags": ["new"]},
    "untag_note": {"id": 1, "tags": ["a"]},
    "link_notes": {"source": 2, "target": 1},
    "unlink_notes": {"source": 1, "target": 2},
    "delete_note": {"id": 1},
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[NoteStore]:
    with NoteStore(tmp_path / "notes.db") as opened:
        opened.add("First", "first body", ["a", "b"])
        opened.add("Second", "second body", ["b"])
        opened.link(1, 2)
        yield opened


def facts(store: NoteStore) -> set[tuple[Any, ...]]:
    """Every single thing that the database says, so that taking something away shows as a missing fact."""
    connection = sqlite3.connect(store.path)
    said: set[tuple[Any, ...]] = set()
    for note, title, body in connection.execute("SELECT id, title, body FROM notes"):
        said |= {("note", note), ("title", note, title)}
        said |= {("line", note, number, line) for number, line in enumerate(body.split("\n"))}
    said |= {("tag", *row) for row in connection.execute("SELECT note_id, tag FROM note_tags")}
    said |= {("link", *row) for row in connection.execute("SELECT source, target FROM links")}
    connection.close()
    return said


async def call(store: NoteStore, name: str, **arguments: Any) -> dict[str, Any]:
    dispatch = ToolDispatch(note_toolset(store).bindings())
    with anyio.fail_after(40):
        return dict((await dispatch.call(ToolCall(name, arguments))).wire)


def test_every_tool_has_a_call_and_a_whole_description(store: NoteStore) -> None:
    definitions = note_toolset(store).view().definitions()
    assert {definition.name for definition in definitions} == CALLS.keys()
    for definition in definitions:
        assert definition.title
        assert definition.description
        assert all(field["description"] for field in definition.input_schema["properties"].values())
        assert definition.output_schema is not None
        assert definition.annotations is not None
        assert len(definition.annotations) == 4


@pytest.mark.parametrize("name", CALLS)
async def test_annotations_say_what_the_tool_does_to_the_database(store: NoteStore, name: str) -> None:
    hints = note_toolset(store).view()[name].definition.annotations
    assert hints is not None
    before = facts(store)
    assert "isError" not in await call(store, name, **CALLS[name])
    once = facts(store)
    await call(store, name, **CALLS[name])
    twice = facts(store)
    assert hints["readOnlyHint"] is (once == before)
    assert hints["destructiveHint"] is not (before <= once)
    assert hints["idempotentHint"] is (twice == once)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("get_note", {"id": 9}, "There is no note 9. The nearest ids are 1, 2."),
        ("update_note", {"id": 1}, "Nothing to change"),
        ("update_note", {"id": 1, "title": "x", "if_revision": 7}, "at revision 1, not 7"),
        ("link_notes", {"source": 1, "target": 9}, "There is no note 9"),
        ("list_notes", {"cursor": "elsewhere"}, "leave it out"),
        ("add_note", {"title": " "}, "The title is empty"),
        ("add_note", {"title": "x", "tags": "a"}, "Invalid arguments"),
        ("add_note", {"title": "x", "colour": "red"}, "Invalid arguments"),
        ("search_notes", {"query": "x", "limit": 1000}, "Invalid arguments"),
        ("tag_note", {"id": 1, "tags": []}, "Invalid arguments"),
    ],
)
async def test_n7_bad_input_is_an_error_that_the_model_can_act_on(
    store: NoteStore, name: str, arguments: dict[str, Any], message: str
) -> None:
    before = facts(store)
    result = await call(store, name, **arguments)
    assert result["isError"] is True
    assert message in result["content"][0]["text"]
    assert str(store.path) not in result["content"][0]["text"]
    assert facts(store) == before


async def test_a_note_lives_from_add_to_delete(store: NoteStore) -> None:
    added = (await call(store, "add_note", title="Trip", body="Pack.", tags=["#Travel"]))["structuredContent"]
    assert (added["id"], added["revision"], added["tags"], added["uri"]) == (3, 1, ["travel"], "note:///3")
    await call(store, "append_to_note", id=3, text="Book a hotel.")
    await call(store, "link_notes", source=3, target=1)
    changed = (await call(store, "update_note", id=3, title="Journey", if_revision=2))["structuredContent"]
    assert (changed["title"], changed["body"]) == ("Journey", "Pack.\nBook a hotel.")
    assert changed["links"] == [{"id": 1, "title": "First"}]
    found = (await call(store, "search_notes", query="hotels", tag="travel"))["structuredContent"]
    assert [hit["snippet"] for hit in found["hits"]] == ["Pack.\nBook a **hotel**."]
    backlinks = (await call(store, "get_note", id=1))["structuredContent"]["backlinks"]
    assert backlinks == [{"id": 3, "title": "Journey"}]
    gone = (await call(store, "delete_note", id=3))["structuredContent"]
    assert gone == {"id": 3, "title": "Journey", "revision": 3}
    assert (await call(store, "get_note", id=1))["structuredContent"]["backlinks"] == []


async def test_pages_reach_every_note_once(store: NoteStore) -> None:
    seen: list[int] = []
    arguments: dict[str, Any] = {"limit": 1}
    while True:
        page = (await call(store, "list_notes", **arguments))["structuredContent"]
        seen += [note["id"] for note in page["notes"]]
        assert len(seen) <= 2
        if page["next_cursor"] is None:
            break
        arguments["cursor"] = page["next_cursor"]
    assert seen == [2, 1]


async def test_each_note_is_a_resource(store: NoteStore) -> None:
    resources = NoteResources(store)
    assert isinstance(resources, ResourceProvider)
    listed = await resources.list_resources()
    assert [(item.uri, item.title, item.description) for item in listed] == [
        ("note:///2", "Second", "#b"),
        ("note:///1", "First", "#a, #b"),
    ]
    (content,) = await resources.read_resource("note:///1")
    assert content.mime_type == "text/markdown"
    _, head, body = content.text.split("---\n", 2)
    said = {key: json.loads(value) for key, value in (line.split(": ", 1) for line in head.splitlines())}
    assert (said["title"], said["tags"], said["links"]) == ("First", ["a", "b"], ["note:///2"])
    assert body == "\n# First\n\nfirst body"
    (template,) = await resources.list_resource_templates()
    assert template.uri_template == "note:///{id}"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("note:///99", "nearest ids"),
        ("note:///0", "has the form"),
        ("note:///1/../2", "has the form"),
        ("note://1", "has the form"),
        ("note:///1\n", "has the form"),
        ("note:///" + "9" * 400, "has the form"),
        ("file:///etc/passwd", "has the form"),
    ],
)
async def test_an_address_of_no_note_is_a_lookup_error(store: NoteStore, uri: str, message: str) -> None:
    with pytest.raises(LookupError, match=message):
        await NoteResources(store).read_resource(uri)


async def test_the_resource_list_is_capped_to_the_newest(store: NoteStore) -> None:
    for number in range(MAX_LISTED):
        store.add(f"Note {number}", "")
    listed = await NoteResources(store).list_resources()
    assert len(listed) == MAX_LISTED
    assert listed[0].title == f"Note {MAX_LISTED - 1}"
    assert "First" not in {item.title for item in listed}


async def test_the_list_is_announced_only_when_it_differs(store: NoteStore) -> None:
    resources = NoteResources(store)
    heard: list[str] = []
    end = resources.on_change(lambda: heard.append("changed"))
    await call(store, "tag_note", id=1, tags=["before anybody listed"])
    assert heard == []
    await resources.list_resources()
    await call(store, "append_to_note", id=1, text="more")
    await call(store, "get_note", id=1)
    assert heard == []
    await call(store, "add_note", title="Third")
    await call(store, "update_note", id=3, title="Renamed")
    await call(store, "delete_note", id=3)
    assert heard == ["changed"] * 3
    end()
    await call(store, "add_note", title="Fourth")
    assert heard == ["changed"] * 3


async def test_the_list_is_announced_in_the_event_loop(store: NoteStore) -> None:
    resources = NoteResources(store)
    threads: list[int] = []
    resources.on_change(lambda: threads.append(threading.get_ident()))
    await resources.list_resources()
    await call(store, "add_note", title="Third")
    assert threads == [threading.get_ident()]


async def test_a_subscriber_that_fails_does_not_fail_the_write(store: NoteStore) -> None:
    def fail() -> None:
        raise RuntimeError("the session is gone")

    resources = NoteResources(store)
    resources.on_change(fail)
    await resources.list_resources()
    assert "isError" not in await call(store, "add_note", title="Third")
    assert store.list().total == 3


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tools_and_resources_over_the_wire(store: NoteStore, mode: Any) -> None:
    server = note_server(store)
    with anyio.fail_after(40):
        async with server, Client(server.lowlevel, mode=mode) as client:
            assert {item.name for item in (await client.list_tools()).tools} == CALLS.keys()
            assert "search_notes before you add_note" in (client.instructions or "")
            added = await client.call_tool("add_note", {"title": "Third", "tags": ["x"]})
            assert added.structured_content is not None
            uri = added.structured_content["uri"]
            assert uri in {str(item.uri) for item in (await client.list_resources()).resources}
            content = (await client.read_resource(uri)).contents[0].model_dump()
            assert content["text"].endswith("# Third\n\n")
            assert content["mime_type"] == "text/markdown"
            templates = (await client.list_resource_templates()).resource_templates
            assert [item.uri_template for item in templates] == ["note:///{id}"]
            refused = await client.call_tool("get_note", {"id": 77})
            assert refused.is_error
            with pytest.raises(MCPError, match="no note 77"):
                await client.read_resource("note:///77")


async def test_the_program_serves_over_stdio_and_keeps_the_notes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "notes.db"
    environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    program = StdioServerParameters(
        command=sys.executable, args=[str(PROGRAM), "--db", str(path)], env=environment
    )
    with anyio.fail_after(60):
        async with Client(program) as client:
            await client.call_tool("add_note", {"title": "Kept", "body": "between runs"})
        async with Client(program) as client:
            found = await client.call_tool("search_notes", {"query": "run"})
    assert found.structured_content is not None
    assert [hit["title"] for hit in found.structured_content["hits"]] == ["Kept"]


def test_a_database_that_cannot_be_served_is_one_line_and_exit_1(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("not a database at all\n" * 50)
    run = subprocess.run(
        [sys.executable, str(PROGRAM), "--db", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.count("\n") == 1
    assert str(path) in run.stderr
    assert path.read_text() == "not a database at all\n" * 50


def test_the_default_path_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "mcp-toolset" / "notes.db"
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_path() == tmp_path / "home" / ".local" / "share" / "mcp-toolset" / "notes.db"
