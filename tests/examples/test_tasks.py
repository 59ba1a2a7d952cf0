"""The program and the configuration of the page on tasks."""

from __future__ import annotations

import runpy
from pathlib import Path

import anyio
import pytest
from tests.interaction.raw_client import raw_client

from mcp_toolset import ToolsetServer
from mcp_toolset.config import load_config

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"


@pytest.mark.needs("tasks")
async def test_j3_the_program_of_the_page_serves_a_tool_as_a_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.extensions.tasks.jobs import call, until

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    server = runpy.run_path(str(EXAMPLES / "report.py"))["server"]
    assert isinstance(server, ToolsetServer)
    with anyio.fail_after(60):
        async with server, raw_client(server, "modern") as client:
            begun = await call(client, "report", topic="bees")
            ended = await until(client, begun["taskId"], "completed")
            assert ended["result"]["content"][0]["text"] == "A report on bees"


@pytest.mark.needs("task_handles", "tasks")
def test_j3_the_configuration_of_the_page_is_read() -> None:
    found = load_config(EXAMPLES / "mcp.json")
    assert found.extensions["suspended"] is not None and not found.warnings
    assert [server.task_timeout for server in found.servers] == [600]
