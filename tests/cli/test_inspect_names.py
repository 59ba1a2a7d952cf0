"""`inspect` shows the names that stand for no tool, in a configuration and in a program."""

from __future__ import annotations

import json
import sys

from tests.cli.commandline import CommandLine, answer, line

__all__ = ["line"]


def test_u20_a_configuration_that_excludes_no_tool_is_shown(line: CommandLine):
    kit = {"command": sys.executable, "args": ["-m", "mcp_toolset", "serve", "kit.py"]}
    line.write(
        "mcp.json", json.dumps({"mcpServers": {"kit": {**kit, "exclude": ["bom", "nothing_*", "echo"]}}})
    )
    missing = answer(line, "inspect", "mcp.json")["names"]
    assert [(one["where"], one["name"]) for one in missing] == [
        ("filtered", "bom"),
        ("filtered", "nothing_*"),
    ]
    said = line.run("inspect", "mcp.json").stdout
    assert "no such tool: filtered('bom'): there is no such tool of server 'kit'; did you mean boom?" in said
    assert "no tool fits this pattern of server 'kit'" in said


def test_u20_a_local_program_with_a_hook_for_no_tool_does_not_start(line: CommandLine):
    line.write(
        "hooked.py",
        "from mcp_toolset import HookSet, Reject, serve, tool\n"
        "hooks = HookSet()\n"
        "@hooks.execution('ad')\n"
        "async def no(call, input): return Reject('no')\n"
        "@tool\n"
        "def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
        "serve(add, hooks=hooks)\n",
    )
    done = line.run("list", "hooked.py")
    assert done.returncode == 1 and done.stdout == ""
    assert "hooks.execution('ad') has no effect: there is no such tool; did you mean add?" in done.stderr
    assert "Traceback" not in done.stderr
