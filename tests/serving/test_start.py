"""What a server loads when it starts: what it needs, and nothing that only others need."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError

LOCAL = """
from mcp_toolset import ToolsetServer, Toolset, tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

server = ToolsetServer(Toolset(add{verb}))
"""

OPENED = """
import anyio, json, sys

async def main():
    async with server:
        names = [tool["name"] for tool in server.tools()]
    print(json.dumps([names, sorted(sys.modules)]))

anyio.run(main)
"""


def printed(program: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def loaded_by(verb: str) -> tuple[list[str], set[str]]:
    names, modules = printed(LOCAL.format(verb=verb) + OPENED)
    return names, set(modules)


NOT_NEEDED = {
    "docstring_parser",
    "mcp_toolset.upstream.connection",
    "mcp_toolset.transports.http.app",
    "mcp_toolset.catalog.deferred.catalog",
    "mcp_toolset.catalog.pins.policy",
    "mcp_toolset.catalog.search.index",
    "mcp_toolset.config",
    "numpy",
}


def test_a_server_with_a_local_tool_loads_neither_search_nor_mounts() -> None:
    names, modules = loaded_by("")
    assert names == ["add"]
    assert not modules & NOT_NEEDED


def test_a_deferred_tool_brings_the_search() -> None:
    names, modules = loaded_by(").deferred(")
    assert "search_tools" in names
    assert {"mcp_toolset.catalog.deferred.catalog", "mcp_toolset.catalog.search.index"} <= modules


@pytest.mark.parametrize("switched", ["enable", "disable"])
def test_loading_leaves_garbage_collection_as_it_was(switched: str) -> None:
    program = f"import gc, json; gc.{switched}(); from mcp_toolset import serve; print(gc.isenabled() * 1)"
    assert printed(program) == (switched == "enable")


def test_an_access_policy_that_waits_is_refused_before_anything_is_deferred() -> None:
    async def access(binding: object, context: object) -> None:
        """Wait."""

    with pytest.raises(DefinitionError, match="asynchronous|plain function"):
        ToolsetServer(Toolset(), access=access)  # pyright: ignore[reportArgumentType]


@pytest.mark.anyio
async def test_the_host_searches_a_server_that_defers_nothing_and_finds_nothing() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with ToolsetServer(Toolset(add)) as server:
        assert server.search("add numbers") == []
