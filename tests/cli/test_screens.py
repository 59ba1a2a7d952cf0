"""What the command line looks like at 60, 80 and 120 columns; the texts are in `screens`, see `screening`."""

import io
import json
import os
import re
import sys
from pathlib import Path

import click
import pytest
from tests.cli.commandline import CommandLine, line
from tests.cli.pseudo import terminal
from tests.cli.screening import COMMANDS, SCREENS, WIDTHS, drawn, plain

from mcp_toolset import SourceStatus
from mcp_toolset.cli.main import cli
from mcp_toolset.cli.output import Column, aligned, draw
from mcp_toolset.serving.serve import progress, progress_line
from mcp_toolset.tools.screen import counted

__all__ = ["line"]

STATES = (Column("server"), Column("state", state=True), Column("note", prose=True))


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return drawn(tmp_path_factory.mktemp("screens"))


@pytest.mark.needs("*")
def test_u61_every_screen_is_as_it_was_read_and_kept(screens: dict[str, str]):
    kept = {path.stem: path.read_text() for path in SCREENS.glob("*.txt")}
    again = "read what has changed, then keep it with: python -m tests.cli.screening"
    assert {name: plain(screen) for name, screen in screens.items()} == kept, again
    assert len(kept) == len(WIDTHS) * len(COMMANDS)


@pytest.mark.parametrize("width", WIDTHS)
def test_u61_no_line_is_longer_than_the_terminal(screens: dict[str, str], width: int):
    # A terminal would cut a longer line in the middle of a word. One long word cannot be helped.
    for name, screen in screens.items():
        if name.endswith(f"-{width}"):
            long = [line for line in plain(screen).split("\n") if len(line) > width and " " in line.strip()]
            assert long == [], name


def test_u61_below_100_columns_there_is_a_block_for_each_hit(screens: dict[str, str]):
    narrow, wide = plain(screens["search-60"]), plain(screens["search-120"])
    assert "\nwh_find_orders\n  server warehouse, available, score" in narrow
    assert "─" not in narrow and "─" in wide
    assert "available" in narrow and "available" in wide


def test_u61_states_have_colours(screens: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    assert "\x1b[32mready\x1b[0m" in screens["list-60"] and "\x1b[31moffline\x1b[0m" in screens["list-60"]
    rows = [["git", "ready", ""], ["notion", "offline", "it is asleep"]]
    for variables, coloured in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            screen = Tty()
            draw(screen, STATES, rows)
        assert ("\x1b[32m" in screen.getvalue()) is coloured
    assert "\x1b" not in aligned(STATES, rows)


def test_u61_one_is_not_counted_as_many():
    assert (counted(1, "tool"), counted(2, "tool"), counted(0, "tool")) == ("1 tool", "2 tools", "0 tools")


def test_u61_while_servers_start_they_are_counted_and_named():
    names = ["git", "files", "time", "notion", "github"]
    statuses = {name: SourceStatus("ready") for name in names[:3]}
    statuses |= {name: SourceStatus("starting") for name in names[3:]}
    assert progress(statuses) == "3 of 5 servers ready: waiting for notion, github"
    many = {f"s{number}": SourceStatus() for number in range(20)} | {"gone": SourceStatus("offline")}
    assert progress(many) == "0 of 21 servers ready, 1 down: waiting for s0, s1, s2 and 17 more"
    assert progress({"git": SourceStatus("ready")}) == "1 of 1 server ready"


@pytest.mark.parametrize(
    ("room", "line"),
    [
        (97, "3 of 7 ready, 1 down: waiting for notion, github, a-name-that-is-long"),
        (57, "3 of 7 ready, 1 down: waiting for notion and 2 more"),
        (37, "3 of 7 ready, 1 down: waiting for no…"),
    ],
)
def test_u61_the_line_that_counts_servers_stays_one_line(room: int, line: str):
    statuses = {name: SourceStatus("ready") for name in ("git", "files", "time")}
    statuses |= {name: SourceStatus("starting") for name in ("notion", "github", "a-name-that-is-long")}
    statuses["gone"] = SourceStatus("offline")
    assert progress_line(statuses, room) == line
    done = {name: SourceStatus("ready") for name in statuses}
    assert progress_line(done, room) == "7 of 7 ready"


SLOW = """
import os, sys
os.read(os.open("go", os.O_RDONLY), 1)  # waits until the test writes
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (60, "1 of 4 ready, 1 down: waiting for notion and 1 more"),
        (100, "1 of 4 ready, 1 down: waiting for notion, a-server-with-a-name-that-is-long"),
    ],
)
def test_u61_a_terminal_counts_servers_while_they_start(line: CommandLine, columns: int, shown: str):
    kit = line.entry("serve", "kit.py")
    slow = {"command": sys.executable, "args": ["-S", str(line.write("slow.py", SLOW))]}
    slow["args"] += [kit["command"], *kit["args"]]
    named = {"kit": kit, "dead": {"command": "no-such-program"}, "notion": slow}
    servers = {**named, "a-server-with-a-name-that-is-long": slow}
    line.write("mcp.json", json.dumps({"mcpServers": servers}))
    os.mkfifo(line.folder / "go")
    go = os.open(line.folder / "go", os.O_RDWR)
    listing = line.command("list", "mcp.json")
    with os.fdopen(go, "wb", 0), terminal(listing, line.folder, {"NO_COLOR": "1"}, columns=columns) as person:
        person.shows(shown)
        os.write(go, b"gg")
        person.shows("1 of 4 servers is down: dead")
        assert person.end() == 0 and person.intact()
    lines = [re.sub(r"\x1b\[[?\d]*[a-zA-Z]", "", each) for each in re.split(r"[\r\n]", person.screen)]
    assert max(len(each) for each in lines if " of 4 ready" in each) < columns
    assert re.search(r"\x1b\[3\dm", person.screen) is None


def test_u61_every_help_has_examples_and_cuts_nothing(screens: dict[str, str]):
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert "mcp-toolset " in (command.epilog or ""), name
    for width in WIDTHS:
        assert re.search(r"\w\.\.\.", screens[f"help-{width}"]) is None
        assert re.search(r"(?m)^  Examples:\n    mcp-toolset ", screens[f"help-{width}"])
        assert re.search(r"(?m)^    mcp-toolset serve app.py$", screens[f"help-serve-{width}"])


def test_u61_a_page_says_how_words_are_completed():
    page = (Path(__file__).parents[2] / "docs" / "commandline.md").read_text()
    assert "_MCP_TOOLSET_COMPLETE=bash_source mcp-toolset" in page


WRITE = ("disable", "enable", "install", "uninstall", "logout", "pin", "secret set")


@pytest.mark.needs("upstream_access")
@pytest.mark.parametrize("command", WRITE)
def test_u125_each_command_that_writes_has_a_dry_run_in_the_same_words(line: CommandLine, command: str):
    page = " ".join(line.run(*command.split(), "--help").stdout.split())
    assert "--dry-run Show what would change, and change nothing." in page


def test_u125_usage_lines_have_one_word_for_a_file_and_one_for_what_is_served(line: CommandLine):
    context = click.Context(cli)
    for name in cli.list_commands(context):
        assert "CONFIG" not in line.run(name, "--help").stdout.upper().split("\n")[0]


def test_u125_the_options_of_serve_stand_in_groups(line: CommandLine):
    page = line.run("serve", "--help").stdout
    titles = re.findall(r"(?m)^([A-Z]\w+):$", page)
    assert titles == ["Options", "Security", "HTTP", "Catalog", "Log"]
    assert page.index("Security:") < page.index("--insecure") < page.index("HTTP:") < page.index("--port")
