"""The programs of docs/approvals.md and docs/limits.md do what the pages say."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.asking import Person, connected, text_of

from mcp_toolset import ToolsetServer
from mcp_toolset.cli.mount import load
from mcp_toolset.cli.target import ProgramFile
from mcp_toolset.config import load_config

ONCE = "allow once"

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"


def served(name: str) -> ToolsetServer:
    return load(
        ProgramFile(str(EXAMPLES / name / "server.py")), lambda found: isinstance(found, ToolsetServer)
    )


async def test_i8_the_program_of_the_page_asks_before_it_deletes():
    person = Person({"decision": ONCE})
    server = served("approvals")
    async with connected(server, "legacy", elicitation_callback=person) as client:
        assert text_of(await client.call_tool("read", {"path": "a"})) == "contents of a"
        assert not person.asked
        assert text_of(await client.call_tool("delete", {"path": "a"})) == "deleted a"
        assert len(person.asked) == 1


@pytest.mark.needs("approvals", "limits")
async def test_i8_the_program_of_the_page_limits_its_callers():
    server = served("limits")
    async with connected(server, "auto") as client:
        assert text_of(await client.call_tool("report", {"month": "May"})) == "Report of May"
        (guard,) = server._visibility.rules().guards
        (binding,) = server.bindings()
        assert len(guard.layers(binding)) == 3


def test_i8_the_configuration_of_the_page_asks_about_what_deletes():
    config = load_config(EXAMPLES / "approvals" / "mcp.json")
    assert not config.misconfigured and config.permissions is not None
