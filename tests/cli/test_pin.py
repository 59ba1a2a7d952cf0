"""`mcp-toolset pin` as a person and a pipeline meet it: the real command, real servers (P8, F24)."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commandline import CommandLine, answer, line
from tests.faults.harness import hostile, tool

from mcp_toolset import ToolDefinition
from mcp_toolset.catalog.pins.canonical import canonical
from mcp_toolset.catalog.pins.lockfile import LockFile

__all__ = ["line"]

ADD = tool("add", inputSchema={"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}})
GREEDY = ADD | {
    "description": "Add.\u200b",
    "inputSchema": {"type": "object", "properties": {"a": {}, "b": {}}},
}
HIDE = tool("hide")


def lists(line: CommandLine, name: str, *tools: dict[str, Any]) -> list[str]:
    """Let a server list these tools; returns its command."""
    return hostile(tools_file=str(line.write(f"{name}.tools", json.dumps(tools))))


def configure(line: CommandLine, *names: str, **section: Any) -> None:
    servers = {}
    for name in names:
        command = hostile(tools_file=str(line.folder / f"{name}.tools"))
        servers[name] = {"command": command[0], "args": command[1:]}
    line.write("mcp.json", json.dumps({"mcpServers": servers, "toolset": section}))


@pytest.fixture
def lock(line: CommandLine) -> Path:
    """Two servers, pinned."""
    lists(line, "one", ADD, HIDE)
    lists(line, "two", ADD)
    configure(line, "one", "two")
    path = line.folder / "mcp.lock.json"
    pins = {"one": (ADD, HIDE), "two": (ADD,)}
    servers = {name: {tool["name"]: _canonical(tool) for tool in tools} for name, tools in pins.items()}
    LockFile(path).update(lambda _: servers)
    return path


def _canonical(tool: dict[str, Any]) -> dict[str, Any]:
    return canonical(ToolDefinition.from_wire(tool))


def pinned(lock: Path) -> dict[str, list[str]]:
    return {name: sorted(tools) for name, tools in json.loads(lock.read_text())["servers"].items()}


def test_p8_the_first_run_pins_what_is_mounted_and_the_second_finds_it_so(line: CommandLine, lock: Path):
    written = lock.read_bytes()
    lock.unlink()
    done = line.run("pin", "mcp.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 definitions" in done.stdout and lock.read_bytes() == written
    before = lock.stat()
    assert line.run("pin", "mcp.json").stdout == "one: as pinned, 2 tools\ntwo: as pinned, 1 tool\n"
    assert lock.stat() == before


def test_p8_before_the_first_run_a_check_fails_and_writes_nothing(line: CommandLine):
    lists(line, "one", ADD)
    configure(line, "one")
    assert line.run("pin", "mcp.json", "--check").returncode == 1
    assert not (line.folder / "mcp.lock.json").exists()


def test_p8_differences_are_shown_for_people_and_programs_and_accepted_one_by_one(
    line: CommandLine, lock: Path
):
    lists(line, "one", GREEDY, tool("fresh"))
    before = lock.read_bytes()
    shown = line.run("pin", "mcp.json")
    assert shown.returncode == 0
    for said in (
        "one: 3 of its tools differ",
        "gained: it takes a new parameter `b`",
        "gained: `a`: maximum was 9 and is gone",
        "+ Add.\\u{200b}",
        "fresh: new",
        "hide: gone",
        "two: as pinned",
    ):
        assert said in shown.stdout
    report = answer(line, "pin", "mcp.json", "--check", code=1)
    assert [change["change"] for change in report["servers"][0]["changes"]] == ["changed", "new", "gone"]
    assert lock.read_bytes() == before

    assert answer(line, "pin", "mcp.json", "--accept", "one/a*")["accepted"] == ["one/add"]
    assert answer(line, "pin", "mcp.json", "--check", code=1)["servers"][0]["changes"][0]["name"] == "fresh"
    assert line.run("pin", "mcp.json", "--accept").returncode == 0
    assert pinned(lock) == {"one": ["add", "fresh"], "two": ["add"]}
    assert line.run("pin", "mcp.json", "--check").returncode == 0


def test_x5_what_is_held_is_seen_in_inspect_with_its_difference(line: CommandLine, lock: Path):
    lists(line, "one", GREEDY, HIDE)
    one, _ = answer(line, "list", "mcp.json", "--servers")["servers"]
    (change,) = one["changes"]
    assert (change["name"], change["held"], one["set_aside"][0]["name"]) == ("add", True, "add")
    assert {"path": "description", "before": "Tool add.", "after": "Add.\u200b"} in change["differences"]
    assert "one/add: changed (held back)" in line.run("list", "mcp.json", "--servers").stdout
    assert answer(line, "list", "mcp.json")["servers"]["one"]["changes"] == one["changes"]


def test_p8_servers_come_and_go(line: CommandLine, lock: Path):
    lists(line, "three", ADD)
    configure(line, "one", "three")
    done = line.run("pin", "mcp.json", "--check")
    assert done.returncode == 1
    assert "three: not pinned yet" in done.stdout and "two: pinned, but no longer configured" in done.stdout
    assert line.run("pin", "mcp.json", "--accept").returncode == 0
    assert pinned(lock) == {"one": ["add", "hide"], "three": ["add"]}
    disabled = json.loads((line.folder / "mcp.json").read_text())
    disabled["mcpServers"]["three"]["disabled"] = True
    line.write("mcp.json", json.dumps(disabled))
    assert line.run("pin", "mcp.json", "--check").returncode == 0


def test_f6_a_server_that_is_down_keeps_its_pins_and_fails_a_check(line: CommandLine, lock: Path):
    config = json.loads((line.folder / "mcp.json").read_text())
    config["mcpServers"]["two"]["command"] = "no-such-command"
    line.write("mcp.json", json.dumps(config))
    done = line.run("pin", "mcp.json", "--accept")
    assert done.returncode == 0 and "two: not reached, its pins stay" in done.stdout
    assert pinned(lock)["two"] == ["add"]
    assert line.run("pin", "mcp.json", "--check").returncode == 1


def test_p8_a_command_is_pinned_in_the_working_folder_and_served_by_it(line: CommandLine):
    command = lists(line, "one", ADD)
    assert line.run("pin", "--", *command).returncode == 0
    assert (line.folder / "mcp-toolset.lock.json").exists()
    lists(line, "one", GREEDY, HIDE)
    assert line.run("pin", "--check", "--", *command).returncode == 1
    shown = line.run("list", "--json", "--", *command)
    assert json.loads(shown.stdout)["tools"] == []
    assert line.run("pin", "--accept", "add", "--", *command).returncode == 0
    assert [
        one["name"] for one in json.loads(line.run("list", "--json", "--", *command).stdout)["tools"]
    ] == ["add"]


def test_u73_pins_that_nothing_reads_are_told(line: CommandLine, lock: Path):
    lock.rename(line.folder / "old.lock.json")
    says = "old.lock.json has pins of one, two, which are not read here: rename it to mcp.lock.json"
    checked = line.run("check", "mcp.json", "--strict")
    assert checked.returncode == 1 and says in checked.stdout + checked.stderr
    assert says in line.here("serve", "mcp.json").stderr
    line.write("old.json", "{}")  # the lock file of another configuration
    assert says not in line.here("serve", "mcp.json").stderr

    done = line.run("pin", "mcp.json", "--lock", "pins.json")
    assert done.returncode == 0 and "pinned in pins.json" in done.stdout
    assert 'write "lock": "pins.json" into the section `toolset` of mcp.json' in done.stderr
    configure(line, "one", "two", lock="pins.json")
    again = line.run("pin", "mcp.json", "--lock", "pins.json", "--accept")
    assert again.returncode == 0 and again.stderr == ""
    command = hostile(tools_file=str(line.folder / "one.tools"))
    alone = line.run("pin", "--lock", "own.json", "--", *command)
    assert alone.returncode == 0 and "own.json is not read where this is served" in alone.stderr
    line.write("app.py", "from mcp_toolset import tool\n@tool\ndef add() -> str: ...\n")
    program = line.run("pin", "app.py", "--lock", "own.json")
    assert program.returncode == 2 and "--lock is not for a program" in program.stderr


def test_p8_the_file_and_the_policies_can_be_configured(line: CommandLine):
    lists(line, "one", ADD)
    configure(line, "one", lock="pins/own.lock.json", pins="warn", hidden_text="refuse")
    (line.folder / "pins").mkdir()
    assert line.run("pin", "mcp.json").returncode == 0
    assert pinned(line.folder / "pins/own.lock.json") == {"one": ["add"]}
    lists(line, "one", GREEDY, HIDE)
    one = answer(line, "list", "mcp.json", "--servers")["servers"][0]
    assert [change["held"] for change in one["changes"]] == [False, False]
    assert [aside["name"] for aside in one["set_aside"]] == ["add"]


MISTAKES = {
    "nothing to pin": (["pin"], 2, "TARGET is missing"),
    "names without accepting": (["pin", "mcp.json", "add"], 2, "add --accept"),
    "a check that accepts": (["pin", "mcp.json", "--check", "--accept"], 2, "--check changes nothing"),
    "a name that has not changed": (["pin", "mcp.json", "--accept", "nope"], 1, "nope: nothing of that name"),
    "tools of one's own alone": (["pin", "kit.py"], 1, "nothing to pin"),
    "a lock where none can be": (["pin", "mcp.json", "--lock", "none/x.json"], 1, "cannot be written"),
    "a lock of another program": (
        ["pin", "mcp.json", "--lock", "mcp.json"],
        1,
        "not a lock file of mcp-toolset",
    ),
}


@pytest.mark.parametrize(("arguments", "code", "says"), MISTAKES.values(), ids=MISTAKES)
def test_p8_a_mistake_is_one_line_and_changes_nothing(
    arguments: list[str], code: int, says: str, line: CommandLine, lock: Path
):
    before = lock.read_bytes()
    done = line.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr and done.stderr.count("\n") == 1
    assert lock.read_bytes() == before


@pytest.mark.parametrize("command", ["pin", "list"])
def test_f37_a_broken_lock_stops_every_command_and_stays(command: str, line: CommandLine, lock: Path):
    lock.write_text(lock.read_text().replace("Tool add.", "Tool odd."))
    before = lock.read_bytes()
    done = line.run(command, "mcp.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "mcp.lock.json: one/add: the definition does not fit its digest" in done.stderr
    assert lock.read_bytes() == before


def test_f42_a_secret_of_a_mount_is_not_in_the_lock(line: CommandLine):
    command = hostile(tools=[tool("add", description="Logged in with tok-4711-secret.")])
    entry = {"command": command[0], "args": command[1:], "env": {"API_TOKEN": "tok-4711-secret"}}
    line.write("mcp.json", json.dumps({"mcpServers": {"one": entry}}))
    assert line.run("pin", "mcp.json").returncode == 0
    assert "4711" not in (line.folder / "mcp.lock.json").read_text()
    assert line.run("pin", "mcp.json", "--check").returncode == 0


def test_p8_a_dry_run_pins_and_accepts_nothing(line: CommandLine, lock: Path):
    before = lock.read_bytes()
    lists(line, "one", ADD)
    done = line.run("pin", "mcp.json", "--accept", "--dry-run")
    assert done.returncode == 0 and "would be accepted in" in done.stdout, done.stderr
    assert lock.read_bytes() == before
    lock.unlink()
    assert "would be pinned in" in line.run("pin", "mcp.json", "--dry-run").stdout
    assert not lock.exists()
