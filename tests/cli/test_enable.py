"""`mcp-toolset enable` and `disable` switch servers and tools in a file, and change nothing else in it."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.commandline import CommandLine, line
from tests.support.config import config_of
from tests.support.configured import PLAIN

from mcp_toolset.cli.formats import with_member
from mcp_toolset.cli.switching import switched
from mcp_toolset.config.jsonc import decode
from mcp_toolset.errors import ConfigError

__all__ = ["line"]

UNKNOWN = ", if the server has such a tool (it has listed none here yet)"

FILE = """\
{
  // the servers of the team
  "mcpServers": {
    "git": {
      "command": "git-server", // keep
      "args": ["-r", "."]
    },
    "web": {"url": "https://host/mcp", "disabled": true}
  }
}
"""


def read(text: str, tmp_path: Path):
    return {one.name: one for one in config_of(decode(text, ""), source=tmp_path / "mcp.json").servers}


def test_e2_a_server_is_switched_off_and_on_again(tmp_path: Path) -> None:
    off, now = switched(FILE, "git", "mcp.json", on=False)
    assert now == "git is off" and read(off, tmp_path)["git"].disabled
    assert "// keep" in off and "// the servers of the team" in off
    assert switched(off, "git", "mcp.json", on=True)[0] == FILE
    assert not read(switched(FILE, "web", "mcp.json", on=True)[0], tmp_path)["web"].disabled


def test_e2_a_tool_is_switched_off_and_on_again(tmp_path: Path) -> None:
    off = switched(FILE, "git/git_reset", "mcp.json", on=False)[0]
    assert read(off, tmp_path)["git"].exclude == ("git_reset",)
    both = switched(off, "git/delete_*", "mcp.json", on=False)[0]
    assert read(both, tmp_path)["git"].exclude == ("git_reset", "delete_*")
    assert switched(both, "git/delete_one", "mcp.json", on=False)[0] == both, "it is off already"
    again = switched(switched(both, "git/delete_*", "", on=True)[0], "git/git_reset", "", on=True)[0]
    assert again == FILE


def test_e2_a_tool_that_a_list_does_not_include_is_added_to_it(tmp_path: Path) -> None:
    text = json.dumps(
        {"mcpServers": {"git": {"command": "g", "include": ["read_*"], "disabledTools": ["log"]}}}
    )
    on = read(switched(text, "git/log", "mcp.json", on=True)[0], tmp_path)["git"]
    assert (on.include, on.exclude) == (("read_*", "log"), ())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gitt", "has no server 'gitt'; did you mean `git`?"),
        ("zzz", "has no server 'zzz'; it has git, web"),
        ("git/", "'git/' names no tool; write git/TOOL, or git for the whole server"),
    ],
)
def test_e2_a_name_that_is_none_is_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
        switched(FILE, name, "mcp.json", on=False)


def test_e2_a_pattern_that_leaves_others_out_too_is_named() -> None:
    text = switched(FILE, "git/delete_*", "mcp.json", on=False)[0]
    with pytest.raises(ConfigError, match=r"mcpServers.git.exclude: 'delete_\*' leaves delete_one out"):
        switched(text, "git/delete_one", "mcp.json", on=True)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    rest=st.dictionaries(st.text(min_size=1, max_size=3), plain, max_size=3),
    indent=st.sampled_from([None, 2, "\t"]),
    value=st.booleans() | st.lists(st.text(max_size=3), min_size=1, max_size=2),
)
def test_e2_a_member_is_added_and_removed_and_the_text_is_as_before(
    rest: dict[str, object], indent: int | str | None, value: object
) -> None:
    rest.pop("disabled", None)
    text = json.dumps({"mcpServers": {"git": {"command": "g", **rest}}, "z": 1}, indent=indent)
    path = ("mcpServers", "git", "disabled")
    added = with_member(text, path, value, "")
    assert json.loads(added)["mcpServers"]["git"] == {"command": "g", **rest, "disabled": value}
    assert with_member(added, path, None, "") == text


def test_e2_the_command_changes_the_file_and_keeps_a_backup(line: CommandLine) -> None:
    path = line.write("mcp.json", FILE)
    off = f"git/git_reset is off{UNKNOWN}\n"
    done = line.run("disable", "mcp.json", "git/git_reset", "git/git_commit")
    assert (done.returncode, done.stdout) == (
        0,
        f"git/git_reset is off{UNKNOWN}\ngit/git_commit is off{UNKNOWN}\n",
    )
    assert (line.folder / "mcp.json.1.bak").read_text() == FILE
    assert line.run("disable", "mcp.json", "git/git_reset").stdout == f"{off.strip()} already\n"
    line.run("enable", "mcp.json", "git/git_reset", "git/git_commit")
    assert path.read_text() == FILE
    refused = line.run("enable", "nowhere.json", "git")
    assert refused.returncode == 1 and "nowhere.json: no such file; check the path" in refused.stderr


@pytest.mark.parametrize("server", ["@scope/server", "io.github.me/files", "a/b/c"])
def test_e2_a_name_of_a_server_may_have_slashes(server: str, tmp_path: Path) -> None:
    text = json.dumps({"mcpServers": {server.split("/")[0]: {"command": "x"}, server: {"command": "x"}}})
    off, now = switched(text, server, "mcp.json", on=False)
    assert now == f"{server} is off" and read(off, tmp_path)[server].disabled
    off = switched(text, f"{server}/delete_*", "mcp.json", on=False)[0]
    assert read(off, tmp_path)[server].exclude == ("delete_*",)


def test_e2_an_entry_that_is_no_object_is_named_as_one() -> None:
    with pytest.raises(ConfigError, match=r"mcpServers.git: must be an object; write it as"):
        switched('{"mcpServers": {"git": 5}}', "git", "mcp.json", on=False)


def test_u125_a_program_is_no_configuration_that_can_be_switched(line: CommandLine) -> None:
    line.write("app.py", "from mcp_toolset import serve\n")
    done = line.run("disable", "app.py", "a")
    assert done.returncode == 1
    assert "app.py: is a program, and this command changes configuration files" in done.stderr
    assert ".off(…)" in done.stderr


@pytest.mark.parametrize("cwd", ["./gone", "/no/such/folder", "~/gone"])
def test_u125_a_folder_that_is_missing_fails_the_check_and_is_the_reason_of_list(
    line: CommandLine, cwd: str
) -> None:
    line.write("gone.json", json.dumps({"mcpServers": {"a": {"command": sys.executable, "cwd": cwd}}}))
    checked, listed = line.run("check", "gone.json"), line.run("list", "gone.json")
    assert checked.returncode == 1 and "`cwd` names a folder that does not exist" in checked.stdout
    assert "`cwd` names a folder that does not exist" in listed.stderr


NAMED = """{"mcpServers": {
  "git": {"command": "g", "names": {"wipe": "clean_up"}},
  "my_git": {"command": "m"},
  "web": {"url": "https://host/mcp", "prefix": "www"},
  "bare": {"command": "b", "prefix": false}
}}"""


@pytest.mark.parametrize(
    ("name", "server", "tool"),
    [
        ("git_log", "git", "log"),
        ("clean_up", "git", "wipe"),
        ("my_git__log", "my_git", "log"),
        ("www_get_page", "web", "get_page"),
    ],
)
def test_u124_a_tool_is_switched_by_its_public_name(
    name: str, server: str, tool: str, tmp_path: Path
) -> None:
    off, now = switched(NAMED, name, "mcp.json", on=False)
    assert now == f"{server}/{tool} is off{UNKNOWN}"
    assert read(off, tmp_path)[server].exclude == (tool,)
    assert not read(switched(off, name, "mcp.json", on=True)[0], tmp_path)[server].exclude


def test_u124_a_name_of_no_server_is_no_public_name() -> None:
    for name in ("svn_log", "web_get_page", "bare_log"):
        with pytest.raises(ConfigError, match="has no server"):
            switched(NAMED, name, "mcp.json", on=False)


def test_u73_a_tool_that_the_server_has_not_listed_is_not_off(line: CommandLine) -> None:
    run = partial(line.run, env={"MCP_TOOLSET_CACHE": str(line.folder / "cache")})
    entry = {"command": sys.executable, "args": [PLAIN, json.dumps({"tools": ["destroy", "look"]})]}
    line.write("mcp.json", json.dumps({"mcpServers": {"a": entry}}))
    assert UNKNOWN in run("disable", "mcp.json", "a/destroy").stdout
    assert run("enable", "mcp.json", "a/destroy").returncode == 0
    assert run("list", "mcp.json").returncode == 0
    before = (line.folder / "mcp.json").read_text()
    for name, mend in (
        ("a/destory", "did you mean `destroy`?"),
        ("a/a_destroy", "did you mean `a/destroy`?"),
        ("a/wipe_*", "it has destroy, look"),
    ):
        refused = run("disable", "mcp.json", name)
        assert refused.returncode == 1 and "mcpServers.a: lists no tool" in refused.stderr, refused.stderr
        assert mend in refused.stderr
        assert (line.folder / "mcp.json").read_text() == before
    for name in ("a_destroy", "a/l*"):
        done = run("disable", "mcp.json", name)
        assert done.returncode == 0 and done.stdout.endswith(" is off\n")


@pytest.mark.parametrize("tool", ["!log", "{log,reset}", "^git_", "log,reset", "a|b"])
def test_u73_a_pattern_in_another_notation_switches_nothing_off(tool: str) -> None:
    with pytest.raises(ConfigError, match="which a pattern does not have; use"):
        switched(FILE, f"git/{tool}", "mcp.json", on=False)


def test_u73_a_listed_tool_with_an_odd_name_is_switched_by_a_pattern(tmp_path: Path) -> None:
    off = switched(FILE, "git/log (all)", "mcp.json", on=False, listed=lambda _: ["log (all)"])[0]
    assert read(off, tmp_path)["git"].exclude == ("log??all?",)
    assert switched(off, "git/log (all)", "mcp.json", on=True)[0] == FILE


def test_e2_a_dry_run_says_what_would_be_switched_and_changes_nothing(line: CommandLine) -> None:
    path = line.write("mcp.json", FILE)
    done = line.run("disable", "mcp.json", "git", "--dry-run")
    assert (done.returncode, done.stdout) == (0, "would be: git is off\n")
    assert line.run("enable", "mcp.json", "git", "--dry-run").stdout == "git is on already\n"
    assert path.read_text() == FILE and [one.name for one in line.folder.glob("mcp.json*")] == ["mcp.json"]
