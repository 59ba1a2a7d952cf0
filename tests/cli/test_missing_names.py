"""`list --servers` shows the names that stand for no tool, in a configuration and in a program."""

from __future__ import annotations

import json

from tests.cli.commandline import CommandLine, answer, line

__all__ = ["line"]


def test_u20_a_configuration_that_excludes_no_tool_is_shown(line: CommandLine):
    kit = line.entry("serve", "kit.py")
    line.write(
        "mcp.json", json.dumps({"mcpServers": {"kit": {**kit, "exclude": ["bom", "nothing_*", "echo"]}}})
    )
    missing = answer(line, "list", "mcp.json", "--servers")["names"]
    assert [(one["where"], one["name"]) for one in missing] == [("exclude", "bom"), ("exclude", "nothing_*")]
    said = line.run("list", "mcp.json", "--servers").stdout
    assert "no such tool: exclude('bom'): there is no such tool of server 'kit'; did you mean boom?" in said
    assert "no tool fits this pattern of server 'kit'" in said
    assert (
        "exclude('bom') has no effect: there is no such tool of server 'kit'"
        in line.run("list", "mcp.json").stderr
    )


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


def test_u14_unknown_keys_are_told_by_every_command(line: CommandLine):
    kit = line.entry("serve", "kit.py") | {"zzz": 1}
    line.write("mcp.json", json.dumps({"mcpServers": {"kit": kit}}))
    for command in (["list"], ["search"], ["call"]):
        more = {"search": ["echo"], "call": ["kit_echo", "text=a"]}.get(command[0], [])
        said = line.run(*command, "mcp.json", *more).stderr
        assert said.count("mcp.json: mcpServers.kit: unknown keys are ignored: `zzz`") == 1, command
