"""Thirteen servers that others wrote, mounted by one configuration file: what they list, and real calls."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import CallToolResult
from tests.peers.conftest import MODES
from tests.peers.mounted import LARGE, SMALL, hub_file
from tests.peers.processes import listening_process
from tests.peers.programs import browser, git, node, python_environments
from tests.peers.reading import names_of, text_of, value_of
from tests.support.warm import Warm

pytestmark = pytest.mark.anyio

PATIENCE = 90
FIXED = {"search_tools", "resolve_tools", "call_tool", "call_read_only_tool"}
LEGACY, MODERN = "2025-11-25", "2026-07-28"
SEEN: dict[str, tuple[int, str]] = {
    "everything": (13, LEGACY),
    "filesystem": (14, LEGACY),
    "memory": (9, LEGACY),
    "sequential-thinking": (1, LEGACY),
    "github": (26, "2024-11-05"),
    "time": (2, MODERN),
    "git": (12, MODERN),
    "fetch": (1, MODERN),
    "sqlite": (6, LEGACY),
    "playwright": (71, LEGACY),
    "chrome-devtools": (32, LEGACY),
    "notion": (24, LEGACY),
    "context7": (2, MODERN),
}
"""How many tools each has, and the revision that is spoken with it."""


@dataclass(frozen=True)
class Hub:
    """A hub that runs, with what its servers work on."""

    place: Path
    address: str
    deferred: bool

    @property
    def files(self) -> Path:
        return self.place / "files"

    @property
    def repository(self) -> Path:
        return self.place / "repository"


Run = Callable[..., Any]


@contextmanager
def hub(
    place: Path, names: tuple[str, ...], warm: Warm, *, deferred: bool, chromium: str = "chromium"
) -> Generator[Hub]:
    """Run a hub with these servers for the length of a block."""
    node()
    python_environments()
    config = hub_file(place, names, browser=chromium, deferred=deferred)
    command = warm.command("-m", "tests.peers.hub", str(config))
    with listening_process(command, r"at (http://\S+)", timeout=PATIENCE) as address:
        yield Hub(place, address, deferred)


@pytest.fixture(scope="module", params=["listed", "deferred"])
def small(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm: Warm
) -> Generator[Hub]:
    place = tmp_path_factory.mktemp("hub")
    with hub(place, SMALL, warm, deferred=request.param == "deferred") as running:
        make_repository(running.repository)
        yield running


@pytest.fixture(scope="module", params=["listed", "deferred"])
def browsing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, warm: Warm
) -> Generator[Hub]:
    place = tmp_path_factory.mktemp("browsing")
    names = ("playwright", "chrome-devtools")
    with hub(place, names, warm, deferred=request.param == "deferred", chromium=browser()) as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a page on loopback."""
    place = tmp_path_factory.mktemp("page")
    (place / "index.html").write_text("<h1>Quinces ripen late</h1><button>Pick</button>")
    handler = partial(SilentHandler, directory=str(place))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()
        thread.join(10)


class SilentHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def make_repository(place: Path) -> None:
    place.mkdir()
    who = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "--quiet"], [*who, "commit", "--quiet", "--allow-empty", "--message", "planted"]):
        subprocess.run([git(), *words], cwd=place, check=True, timeout=60)


@asynccontextmanager
async def calling(hub: Hub, era: str) -> AsyncGenerator[tuple[Client, Run]]:
    """A client of the era, and how it runs a tool: by its name, or by search and a grant."""
    with anyio.fail_after(PATIENCE):
        async with Client(hub.address, mode=MODES[era], cache=None) as client:

            async def by_name(tool: str, arguments: dict[str, Any], query: str) -> CallToolResult:
                return await client.call_tool(tool, arguments)

            async def by_grant(tool: str, arguments: dict[str, Any], query: str) -> CallToolResult:
                asked = {"query": query, "limit": 5, "resolve": 5}
                found = value_of(await client.call_tool("search_tools", asked))
                grants = {entry["id"]: entry["grant"] for entry in found["resolved"] if "grant" in entry}
                assert tool in grants, [hit["id"] for hit in found["hits"]]
                return await client.call_tool("call_tool", {"grant": grants[tool], "arguments": arguments})

            yield client, by_grant if hub.deferred else by_name


def test_n9_h24_thirteen_servers_are_listed_and_nothing_is_set_aside(tmp_path: Path) -> None:
    node()
    python_environments()
    config = hub_file(tmp_path, SMALL + LARGE)
    command = [sys.executable, "-m", "mcp_toolset", "list", str(config), "--servers", "--json"]
    done = subprocess.run(command, timeout=PATIENCE, check=True, stdout=subprocess.PIPE)
    report = json.loads(done.stdout)
    servers = {server["name"]: server for server in report["servers"]}
    seen = {name: (server["tools"], server["protocol_version"]) for name, server in servers.items()}
    assert seen == SEEN
    assert report["listed"]["tools"] == sum(tools for tools, _ in SEEN.values()) == 213
    assert [name for name, server in servers.items() if server["set_aside"]] == []


async def test_n9_x1_small_servers_are_listed_or_behind_search(small: Hub, era: str) -> None:
    async with calling(small, era) as (client, _):
        names = await names_of(client)
    if small.deferred:
        assert set(names) == FIXED
    else:
        assert len(names) == len(set(names)) == sum(SEEN[name][0] for name in SMALL) == 84


async def test_n9_x1_files_are_written_and_read(small: Hub, era: str) -> None:
    file = small.files / f"{era}.txt"
    async with calling(small, era) as (_, run):
        written = {"path": str(file), "content": "quince, Quitte, 🍐\n"}
        await ok(run("filesystem_write_file", written, "create a new file or overwrite it"))
        read = await ok(run("filesystem_read_text_file", {"path": str(file)}, "read a file as text"))
        outside = await run("filesystem_read_text_file", {"path": "/etc/hostname"}, "read a file as text")
    assert file.read_text() == "quince, Quitte, 🍐\n"
    assert "quince, Quitte, 🍐" in text_of(read)
    assert outside.is_error and "outside allowed directories" in text_of(outside)


async def test_n9_x1_a_graph_is_stored(small: Hub, era: str) -> None:
    tree = {"name": f"quince {era}", "entityType": "tree", "observations": ["ripens late"]}
    async with calling(small, era) as (_, run):
        await ok(run("memory_create_entities", {"entities": [tree]}, "create entities in a knowledge graph"))
        graph = await ok(run("memory_read_graph", {}, "read the whole knowledge graph"))
    stored = [json.loads(line) for line in (small.place / "memory.jsonl").read_text().splitlines()]
    assert {"type": "entity", **tree} in stored
    assert tree["name"] in text_of(graph)


async def test_n9_x1_a_repository_is_read(small: Hub, era: str) -> None:
    async with calling(small, era) as (_, run):
        log = await ok(run("git_log", {"repo_path": str(small.repository)}, "show the commit logs"))
    assert "planted" in text_of(log)


async def test_n9_x1_a_database_is_written_and_queried(small: Hub, era: str) -> None:
    async with calling(small, era) as (_, run):
        create = f"CREATE TABLE {era} (fruit TEXT)"
        await ok(run("sqlite_create_table", {"query": create}, "create a table in the sqlite database"))
        insert = f"INSERT INTO {era} VALUES ('quince')"
        await ok(run("sqlite_write_query", {"query": insert}, "execute INSERT, UPDATE or DELETE on sqlite"))
        select = {"query": f"SELECT fruit FROM {era}"}
        rows = await ok(run("sqlite_read_query", select, "execute a SELECT query on the sqlite database"))
    assert "quince" in text_of(rows)
    with sqlite3.connect(small.place / "notes.db") as database:
        assert database.execute(f"SELECT fruit FROM {era}").fetchall() == [("quince",)]
    database.close()


async def test_n9_x1_a_page_is_fetched(small: Hub, era: str, page: str) -> None:
    async with calling(small, era) as (_, run):
        fetched = await ok(run("fetch_fetch", {"url": page, "raw": True}, "fetch a URL as markdown"))
    assert "Quinces ripen late" in text_of(fetched)


async def test_n9_x1_thoughts_times_and_sums(small: Hub, era: str) -> None:
    thought = {"thought": "pick", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
    noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    async with calling(small, era) as (_, run):
        step = await ok(
            run("sequential-thinking_sequentialthinking", thought, "think in steps that can be revised")
        )
        later = await ok(run("time_convert_time", noon, "convert a time between time zones"))
        total = await ok(run("everything_get-sum", {"a": 2, "b": 3}, "the sum of two numbers"))
    assert value_of(step)["thoughtNumber"] == 1
    assert value_of(later)["time_difference"] == "+9.0h"
    assert "is 5" in text_of(total)


async def test_n9_x1_playwright_opens_a_page(browsing: Hub, era: str, page: str) -> None:
    async with calling(browsing, era) as (_, run):
        await ok(run("playwright_browser_navigate", {"url": page}, "playwright browser navigate to a URL"))
        seen = await ok(run("playwright_browser_snapshot", {}, "playwright accessibility snapshot"))
        picture = {"type": "png", "scale": "css"}
        shot = await ok(run("playwright_browser_take_screenshot", picture, "playwright take a screenshot"))
    assert "Quinces ripen late" in text_of(seen)
    assert [block.type for block in shot.content].count("image") == 1


async def test_n9_x1_devtools_opens_a_page(browsing: Hub, era: str, page: str) -> None:
    async with calling(browsing, era) as (_, run):
        opened = await ok(run("chrome-devtools_new_page", {"url": page}, "chrome devtools open a new page"))
        selected = re.search(r"^(\d+): .*\[selected\]", text_of(opened), re.MULTILINE)
        assert selected is not None, text_of(opened)
        which = {"pageId": int(selected[1])}
        seen = await ok(run("chrome-devtools_take_snapshot", which, "chrome devtools take a text snapshot"))
    assert "Quinces ripen late" in text_of(seen) and "button" in text_of(seen)


async def ok(call: Any) -> CallToolResult:
    result: CallToolResult = await call
    assert not result.is_error, text_of(result)
    return result
