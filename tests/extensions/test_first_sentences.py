"""The first sentence of each tool that this package makes: what to do with it, in at most 80 characters.

Clients that defer tools show a model the first sentence, or about 80 characters of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from mcp_toolset import Toolset, ToolsetServer, tool
from mcp_toolset._index import homes
from mcp_toolset.extending.extension import find, overrides
from mcp_toolset.tools.compact import compact_listing
from mcp_toolset.tools.view import ToolView

pytestmark = pytest.mark.anyio

LONGEST = 80
VERBS = frozenset("Cancel Find Get List Read Resolve Run Search Show".split())
TURNED_ON: Mapping[str, Any] = {"code": True, "large_results": True, "task_after": 5.0}
"""The extensions that have tools, each with what turns it on."""


@tool
def behind(text: str) -> str:
    """Look at a text, which may be as long as you like, and then say in many words what is there to find."""
    return text


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0]


def judged(tools: Mapping[str, str]) -> dict[str, str]:
    """The first sentences that are too long, or do not begin with what to do."""
    first = {name: first_sentence(text) for name, text in tools.items()}
    return {
        name: text
        for name, text in first.items()
        if not 0 < len(text) <= LONGEST or text.split()[0].rstrip(".,") not in VERBS
    }


def with_tools() -> set[str]:
    """The keys of the extensions of this package that have tools."""
    kinds = {key: find(key) for key in homes("key")}
    made = {key: kind.__new__(kind) for key, kind in kinds.items() if kind is not None}
    return {key for key, one in made.items() if overrides(one, "tools") or overrides(one, "catalog_tools")}


async def test_k2_the_tools_of_a_server_and_of_all_extensions_say_what_to_do() -> None:
    there = with_tools()
    assert there <= TURNED_ON.keys()
    extensions: dict[str, Any] = {key: said for key, said in TURNED_ON.items() if key in there}
    async with ToolsetServer(Toolset(behind).deferred(), **extensions) as server:
        tools = {one["name"]: one["description"] for one in server.tools()}
    assert len(tools) >= 4 + len(there)
    assert judged(tools) == {}


async def test_k2_the_stub_of_a_tool_is_short_whatever_the_tool_says() -> None:
    stubs = compact_listing(ToolView([behind.bind()]))
    (summary,) = [(one.description or "").partition(" Arguments: ")[0] for one in stubs]
    assert len(summary) <= LONGEST
    assert summary.startswith("Look at a text, which may be")


@pytest.mark.needs("model_loop")
async def test_k2_the_search_of_a_loop_says_what_to_do() -> None:
    from mcp_toolset.rounds import ToolSearch

    search = ToolSearch(Toolset(behind).deferred())
    assert judged({"search_tools": next(iter(search.view().values())).definition.description or ""}) == {}


def test_k2_a_sentence_that_is_too_long_or_says_nothing_to_do_is_found() -> None:
    assert judged({"a": "Run it.", "b": "The tool of this.", "c": f"Run {'x' * 80}."}).keys() == {"b", "c"}
