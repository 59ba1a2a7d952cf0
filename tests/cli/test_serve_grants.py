"""`serve --grants FILE`: a real process, its restart, and a file that is somebody else's (F37)."""

from __future__ import annotations

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import TextContent
from tests.cli.commandline import PATIENCE, CommandLine, environment, line

__all__ = ["line"]

pytestmark = pytest.mark.anyio

TOOLS = """
from mcp_toolset import Toolset, ToolsetServer
from kit import echo

tools = Toolset(echo).deferred()
server = ToolsetServer(tools)
"""


@pytest.mark.parametrize("target", ["app.py:tools", "app.py:server"])
async def test_f37_grants_outlive_the_process_in_the_file_that_is_named(
    line: CommandLine, target: str
) -> None:
    line.write("app.py", TOOLS)
    program, *arguments = line.command("serve", target, "--grants", "grants.db")
    parameters = StdioServerParameters(
        command=program, args=arguments, cwd=line.folder, env=environment(line.folder)
    )
    with anyio.fail_after(PATIENCE):
        async with Client(parameters, mode="auto") as client:
            answer = await client.call_tool("resolve_tools", {"ids": ["echo"]})
            assert answer.structured_content is not None
            grant = answer.structured_content["tools"][0]["grant"]
        async with Client(parameters, mode="auto") as client:
            result = await client.call_tool("call_tool", {"grant": grant, "arguments": {"text": "kept"}})
            assert isinstance(result.content[0], TextContent) and result.content[0].text == "kept"
            refused = await client.call_tool("call_tool", {"grant": f"{grant[:-1]}~"})
            assert refused.is_error


def test_f37_a_file_of_somebody_elses_ends_the_command_and_stays(line: CommandLine) -> None:
    notes = line.write("grants.db", "somebody's notes\n")
    done = line.run("serve", "kit.py:echo", "--grants", str(notes))
    assert done.returncode == 1 and done.stdout == ""
    assert str(notes) in done.stderr and "move it away" in done.stderr and "Traceback" not in done.stderr
    assert notes.read_text() == "somebody's notes\n"
