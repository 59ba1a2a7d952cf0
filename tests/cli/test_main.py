"""The command line as a person meets it: the real command, in a process of its own."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.commandline import CALC, KIT, PATIENCE, CommandLine, answer, command, environment, line
from tests.support.piped import handshake
from tests.support.warm import Warm

from mcp_toolset._index import homes
from mcp_toolset.cli.main import COMMANDS

__all__ = ["line"]

WIRE_AND_SEARCH = (
    "mcp",
    "starlette",
    "uvicorn",
    "mcp_toolset.catalog",
    "mcp_toolset.server",
    "mcp_toolset.upstream",
    "mcp_toolset.transports",
    "mcp_toolset.protocol",
    "mcp_toolset.sdk",
    "mcp_toolset.context",
    "mcp_toolset.hub",
    "mcp_toolset.serving",
    "rich",
    "pydantic",
)


def names(line: CommandLine, *arguments: str) -> list[str]:
    return [tool["name"] for tool in answer(line, "list", *arguments)["tools"]]


@contextmanager
def served(
    line: CommandLine, *arguments: str, own: bool = False
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server over HTTP and its address, from the line that says so; `own` is a process from its start."""
    start = line.start if own else line.fork
    process = start("serve", *arguments, "--port", "0")
    assert process.stderr is not None
    try:
        said = next((said for said in iter(process.stderr.readline, "") if said.startswith("serving")), "")
        address = re.search(r"http://\S+", said)
        assert address is not None, said
        yield process, address[0]
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def test_help_loads_neither_wire_nor_search(line: CommandLine):
    program = (
        "import sys\nfrom mcp_toolset.cli.main import main\n"
        "code = main(sys.argv[1:])\nprint(*sys.modules, sep='\\n', file=sys.stderr)\nsys.exit(code)"
    )
    for arguments in (["--help"], ["serve", "--help"], ["list", "nowhere.json"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            env=environment(line.folder),
            cwd=line.folder,
            timeout=PATIENCE,
        )
        loaded = done.stderr.splitlines()
        assert "mcp_toolset.cli.main" in loaded
        heavy = [name for name in loaded for part in WIRE_AND_SEARCH if f"{name}.".startswith(f"{part}.")]
        assert heavy == []


def test_help_names_every_command(line: CommandLine):
    done = line.run("--help")
    assert done.returncode == 0
    listed = re.findall(r"^  ([a-z]+)  ", done.stdout, re.MULTILINE)
    assert listed == [*COMMANDS, *homes("commands")]


def test_the_shortest_program_is_a_target(line: CommandLine):
    assert names(line, "calc.py") == ["add"]
    assert answer(line, "call", "calc.py", "add", "a=1", "b=2")["structuredContent"] == {"result": 3}


def test_what_target_code_prints_goes_to_stderr(line: CommandLine):
    done = line.run("call", "calc.py", "add", "a=1", "b=2")
    assert done.stdout == "3\n"
    assert "a line that the module prints" in done.stderr
    assert "a line that the tool prints" in done.stderr


@pytest.mark.parametrize("target", ["kit.py:echo", "kit:echo"])
def test_an_attribute_of_a_file_or_module_is_a_target(line: CommandLine, target: str):
    assert names(line, target) == ["echo"]
    assert line.run("call", target, "echo", "text=hello").stdout == "hello\n"


def test_a_command_after_the_dashes_is_a_target(line: CommandLine):
    target = ("--", *line.command("serve", "kit.py:echo"))
    assert "echo  " in line.run("list", *target).stdout
    assert line.run("call", "echo", "text=hello", *target).stdout == "hello\n"


def test_a_configuration_is_a_target_and_its_servers_are_told_apart(hub: CommandLine):
    listed = answer(hub, "list", "mcp.json")
    assert [tool["name"] for tool in listed["tools"] if tool["name"].startswith("calc")] == ["calc_add"]
    assert listed["servers"]["calc"]["state"] == "ready"
    assert listed["servers"]["gone"]["state"] == "offline"
    assert "command not found" in listed["servers"]["gone"]["reason"]
    assert listed["deferred"] == {"total": 5, "servers": {"kit": 5}}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Iterator[dict[str, str]]:
    """The addresses of two servers, one process each for all tests of this file."""
    line = CommandLine(tmp_path_factory.mktemp("served"), warm)
    line.write("calc.py", CALC)
    line.write("kit.py", KIT)
    with (
        served(line, "calc.py", "--transport", "http") as (_, calc),
        served(line, "kit.py", "--transport", "http") as (_, kit),
    ):
        yield {"calc": calc, "kit": kit}


@pytest.fixture
def hub(line: CommandLine, servers: dict[str, str]) -> CommandLine:
    """A folder with a configuration: a server that is listed, one behind search, and one that is down."""
    entries = {
        "calc": {"url": servers["calc"]},
        "kit": {"url": servers["kit"], "deferred": True},
        "gone": {"command": "no-such-program"},
    }
    line.write("mcp.json", json.dumps({"mcpServers": entries}))
    return line


def test_f6_a_server_that_is_down_is_named_and_the_others_serve(hub: CommandLine):
    done = hub.run("call", "mcp.json", "calc_add", "a=1", "b=2")
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert "gone (command no-such-program): command not found" in done.stderr


def test_a_deferred_tool_is_found_and_called_by_the_owner_of_the_command_line(hub: CommandLine):
    found = answer(hub, "search", "mcp.json", "sort", "names", "alphabetically")["hits"]
    assert found[0]["name"] == "kit_sort_names"
    assert (found[0]["server"], found[0]["state"]) == ("kit", "available")
    called = answer(hub, "call", "mcp.json", "kit_sort_names", "names=b", "names=a")
    assert called["structuredContent"] == {"result": ["a", "b"]}


def test_search_by_server_and_limit(hub: CommandLine):
    hits = answer(hub, "search", "mcp.json", "add two numbers", "--limit", "1")["hits"]
    assert [hit["name"] for hit in hits] == ["calc_add"]
    elsewhere = answer(hub, "search", "mcp.json", "add two numbers", "--server", "kit")["hits"]
    assert "calc_add" not in [hit["name"] for hit in elsewhere]


def test_deferred_and_no_deferred_turn_everything_mounted(hub: CommandLine):
    behind = answer(hub, "list", "mcp.json", "--deferred")
    assert behind["deferred"]["total"] == 6
    assert [tool["name"] for tool in behind["tools"]] == [
        "search_tools",
        "resolve_tools",
        "call_tool",
        "call_read_only_tool",
    ]
    shown = answer(hub, "list", "mcp.json", "--no-deferred")
    assert shown["deferred"]["total"] == 0
    assert len(shown["tools"]) == 6


def test_inspect_says_how_servers_are_reached_and_what_tools_cost(hub: CommandLine):
    report = answer(hub, "list", "mcp.json", "--servers")
    calc, kit, gone = report["servers"]
    assert (calc["transport"], calc["era"], calc["state"], calc["tools"]) == ("http", "modern", "ready", 1)
    assert (kit["name"], kit["tools"]) == ("kit", 5)
    assert (gone["state"], gone["era"]) == ("offline", None)
    sizes = {tool["name"]: tool for tool in report["tools"]}
    assert sizes["kit_sort_names"]["deferred"] and sizes["kit_sort_names"]["read_only"]
    listed = answer(hub, "list", "mcp.json")["tools"]
    compact = json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode()
    assert report["listed"]["bytes"] == len(compact)
    assert report["listed"]["tokens_estimate"] == -(-len(compact) // 4)


def test_h23_a_name_for_a_tool_that_is_not_there_is_reported(line: CommandLine):
    kit = line.entry("serve", "kit.py")
    names = {"echo": "say", "ecko": "shout", "boom": "bang"}
    line.write("mcp.json", json.dumps({"mcpServers": {"kit": {**kit, "names": names, "exclude": ["boom"]}}}))
    (unused,) = answer(line, "list", "mcp.json", "--servers")["set_aside"]
    assert unused["name"] == "ecko" and "'shout', but server 'kit' lists no such tool" in unused["reason"]
    assert "set aside: ecko: " in line.run("list", "mcp.json", "--servers").stdout
    assert "kit/ecko: `names` calls it 'shout'" in line.run("list", "mcp.json", "-v").stderr


BROKEN = """
import json, sys
tools = [
    {"name": "good", "inputSchema": {"type": "object"}},
    {"name": "bad", "inputSchema": {"type": "object", "properties": 5}},
    {"name": "shy", "description": "clear\\u001b[2Jscreen", "inputSchema": {"type": "object"}},
]
for line in sys.stdin:
    request = json.loads(line)
    match request.get("method"):
        case "initialize":
            about = {"name": "b", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            result = {"tools": tools}
        case _:
            result = None
    if "id" in request:
        error = {"error": {"code": -32601, "message": "no such method"}}
        body = error if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)
"""


def test_f17_a_tool_that_was_set_aside_is_shown_with_its_reason(line: CommandLine):
    line.write("broken.py", BROKEN)
    target = ("--", sys.executable, "broken.py")
    done = line.run("list", "--servers", "--json", *target)
    (server,) = json.loads(done.stdout)["servers"]
    assert (server["transport"], server["era"], server["protocol_version"]) == (
        "stdio",
        "legacy",
        "2025-06-18",
    )
    assert [aside["name"] for aside in server["set_aside"]] == ["bad"]
    assert "inputSchema" in server["set_aside"][0]["reason"]
    assert "set aside: python" in line.run("list", "--servers", *target).stdout.replace(
        server["name"], "python"
    )


OUTPUTS = """[
    {"name": "numbers", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}},
    {"name": "either", "inputSchema": {"type": "object"}, "outputSchema": {"anyOf": [{"type": "object"}]}},
    {"name": "plain", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}},
    {"name": "silent", "inputSchema": {"type": "object"}},
]
"""


def test_h24_list_counts_the_tools_that_are_lowered_for_the_legacy_era(line: CommandLine):
    line.write("outputs.py", re.sub(r"(?s)\[.*?\n\]\n", lambda found: OUTPUTS, BROKEN, count=1))
    target = ("--", sys.executable, "outputs.py")
    done = line.run("list", "--servers", "--json", *target)
    assert json.loads(done.stdout)["lowered"] == ["numbers", "either"], done.stderr
    assert (
        "lowered: 2 (numbers, either): clients up to 2025-11-25"
        in line.run("list", "--servers", *target).stdout
    )
    # Nothing is said where nothing is lowered.
    assert "lowered" not in line.run("list", "kit.py:echo", "--servers").stdout


def test_f23_a_terminal_is_not_given_escape_sequences_of_strangers(line: CommandLine):
    line.write("broken.py", BROKEN)
    done = line.run("list", "--", sys.executable, "broken.py")
    assert "clearscreen" in done.stdout
    assert "\x1b" not in done.stdout and "[2J" not in done.stdout


def test_u62_a_reader_that_leaves_is_no_error_to_speak_of(line: CommandLine):
    process = line.start("list", "kit.py", "--json")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(PATIENCE) == 141
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()


def request(number: int, method: str, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def test_f45_nothing_but_the_protocol_reaches_stdout_on_stdio(line: CommandLine):
    process = line.start("serve", "calc.py")
    assert process.stdin is not None and process.stdout is not None
    about = {"name": "test", "version": "1"}
    for number, said in enumerate(
        [
            request(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=about),
            request(1, "tools/list"),
            request(2, "tools/call", name="add", arguments={"a": 1, "b": 2}),
        ]
    ):
        process.stdin.write(said + "\n")
        process.stdin.flush()
        heard = json.loads(process.stdout.readline())
        assert heard["id"] == number
        if number == 0:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
    assert heard["result"]["structuredContent"] == {"result": 3}
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "")
    assert "a line that the module prints" in err
    assert "a line that the tool prints" in err


@pytest.mark.parametrize("transport", ["http", "sse"])
def test_a_url_is_a_target_and_a_signal_ends_its_server(line: CommandLine, transport: str):
    with served(line, "kit.py:echo", "--transport", transport, own=True) as (process, address):
        assert names(line, address) == ["echo"]
        (server,) = answer(line, "list", address, "--servers")["servers"]
        # A path may be a secret.
        assert (server["transport"], server["address"]) == (transport, address.rpartition("/")[0] + "/…")
        done = line.run("call", address, "echo", "text=hello")
        assert done.stdout == "hello\n", done.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_h24_a_configured_server_that_is_down_does_not_stop_the_start(line: CommandLine):
    line.write("down.json", json.dumps({"mcpServers": {"gone": {"command": "no-such-program"}}}))
    with served(line, "down.json", "--transport", "http", "--name", "hub") as (_, address):
        listed = answer(line, "list", address, "--servers")
        assert listed["listed"]["tools"] == 0
        assert listed["servers"][0]["server"]["name"] == "hub"


@pytest.mark.needs("sdk_mounts")
def test_an_sdk_server_of_a_module_is_a_target(line: CommandLine):
    text = (
        "from mcp.server import MCPServer\napp = MCPServer('demo')\n@app.tool()\ndef hi(name: str) -> str:\n"
    )
    line.write("demo.py", text + "    return 'hi ' + name\n")
    assert line.run("call", "demo.py", "hi", "name=you").stdout == "hi you\n"


def test_a_served_program_takes_the_name_that_the_command_line_gives(line: CommandLine):
    asked = json.dumps(handshake(1))
    done = line.run("serve", "calc.py", "--name", "other", stdin=asked + "\n")
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "other"


def test_tables_are_drawn_on_a_terminal(line: CommandLine):
    screen = on_terminal(line, "list", "kit.py")
    assert "sort_names" in screen and "─" in screen
    assert "─" not in line.run("list", "kit.py").stdout


def on_terminal(line: CommandLine, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            command(*arguments),
            cwd=line.folder,
            env=environment(line.folder),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        shown = b""
        while select.select([screen], [], [], PATIENCE)[0]:
            try:
                part = screen.read(65536)
            except OSError:
                break
            if not part:
                break
            shown += part
        assert process.wait(PATIENCE) == 0
    return shown.decode()


def test_p7_what_is_installed_serves_and_can_be_taken_out_again(line: CommandLine):
    file = line.folder / ".cursor" / "mcp.json"
    planned = answer(line, "install", "cursor", "kit.py", "--dry-run")
    assert (planned["changed"], planned["applied"], file.exists()) == (True, False, False)
    assert str(file) in line.run("install", "cursor", "kit.py", "--env", "KEY=value").stdout
    entry = json.loads(file.read_text())["mcpServers"]["kit"]
    assert entry["env"] == {"KEY": "value"}
    done = line.run("call", "echo", "text=installed", "--", entry["command"], *entry["args"])
    assert done.stdout == "installed\n", done.stderr
    removed = answer(line, "uninstall", "cursor", "kit.py")
    assert removed["applied"] and Path(removed["backup"]).exists()
    assert json.loads(file.read_text())["mcpServers"] == {}


def test_p7_a_command_is_installed_under_its_own_name(line: CommandLine):
    done = line.run("install", "claude-code", "--dry-run", "--", "npx", "-y", "@scope/server-git@1.2")
    assert done.returncode == 0, done.stderr
    assert '"server-git"' in done.stdout


def test_h24_inspect_starts_a_lazy_server_whose_list_is_stored(line: CommandLine) -> None:
    kept = {"MCP_TOOLSET_CACHE": str(line.folder / "cache")}
    entry = {**line.entry("serve", str(line.folder / "calc.py")), "start": "lazy"}
    line.write("mcp.json", json.dumps({"mcpServers": {"calc": entry}, "toolset": {"list_timeout": 60}}))
    asked = [
        {
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"},
            },
        },
        {"method": "tools/list"},
    ]
    messages = [json.dumps({"jsonrpc": "2.0", "id": id, **one}) for id, one in enumerate(asked)]
    with line.fork("serve", "mcp.json", env=kept) as serving:
        assert serving.stdin is not None and serving.stdout is not None
        serving.stdin.write("\n".join(messages) + "\n")
        serving.stdin.flush()
        assert any("calc_add" in answered for answered in serving.stdout)
        serving.stdin.close()
    assert list((line.folder / "cache").rglob("*.json"))
    (found,) = json.loads(line.run("list", "mcp.json", "--json", "--servers", env=kept).stdout)["servers"]
    assert found["state"] == "ready" and found["protocol_version"]


@pytest.mark.needs("approvals", "audit", "journal")
@pytest.mark.parametrize(
    ("action", "own", "others"),
    [
        ("approvals grant", "Usage: mcp-toolset approvals grant [OPTIONS] ID…", "refuse"),
        ("approvals refuse", "Usage: mcp-toolset approvals refuse [OPTIONS] ID…", "grant"),
        ("journal list", "--unknown", "--done"),
        ("journal show", "Usage: mcp-toolset journal show [OPTIONS] ID", "--never"),
        ("journal settle", "--never", "--unknown"),
        ("audit verify", "Usage: mcp-toolset audit verify [OPTIONS] FILE…", "--since"),
    ],
)
def test_u125_the_help_of_an_action_is_a_page_of_that_action(
    line: CommandLine, action: str, own: str, others: str
):
    page, parent = line.run(*action.split(), "--help"), line.run(action.split()[0], "--help")
    assert page.returncode == 0 and own in page.stdout and others not in page.stdout
    assert page.stdout != parent.stdout and action.split()[1] in parent.stdout


@pytest.mark.needs("journal")
def test_u125_options_may_stand_before_the_action_and_without_one(line: CommandLine):
    for words in (["--json"], ["list", "--json"], ["--json", "list"], ["--unknown", "--json"]):
        assert line.run("journal", *words).stdout == "[]\n"
    assert "'lst'; did you mean list?" in line.run("journal", "lst").stderr
