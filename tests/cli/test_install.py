"""Installing changes one entry of a client's file, and nothing else about it (P7)."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.desk import CLIENTS, ClientName, Desk, installing
from tests.support.config import config_of

from mcp_toolset.cli.formats import concealed, entries, with_entry, without_entry
from mcp_toolset.config.jsonc import plain_json
from mcp_toolset.errors import ConfigError, TargetError

ENTRY = {"type": "stdio", "command": "/opt/bin/mcp-toolset", "args": ["serve", "https://host/mcp"]}


CLINE = "globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"


apply = installing.apply


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, scope=None).folders()


@pytest.mark.parametrize(
    ("client", "scope", "platform", "path"),
    [
        (
            "claude-desktop",
            None,
            "darwin",
            "home/Library/Application Support/Claude/claude_desktop_config.json",
        ),
        ("claude-desktop", None, "win32", "home/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("claude-desktop", None, "linux", "home/.config/Claude/claude_desktop_config.json"),
        ("claude-code", None, "linux", "project/.mcp.json"),
        ("claude-code", "user", "linux", "home/.claude.json"),
        ("cursor", None, "darwin", "home/.cursor/mcp.json"),
        ("cursor", "project", "win32", "project/.cursor/mcp.json"),
        ("vscode", None, "linux", "project/.vscode/mcp.json"),
        ("vscode", "user", "linux", "home/.config/Code/User/mcp.json"),
        ("vscode", "user", "darwin", "home/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "user", "win32", "home/AppData/Roaming/Code/User/mcp.json"),
        ("copilot-cli", None, "linux", "home/.copilot/mcp-config.json"),
        ("copilot-cli", "project", "win32", "project/.github/mcp.json"),
        ("opencode", None, "darwin", "home/.config/opencode/opencode.jsonc"),
        ("opencode", "project", "linux", "project/opencode.jsonc"),
        ("cline", None, "linux", f"home/.config/Code/User/{CLINE}"),
        ("cline", None, "win32", f"home/AppData/Roaming/Code/User/{CLINE}"),
        ("cline-cli", None, "darwin", "home/.cline/data/settings/cline_mcp_settings.json"),
        ("kiro", None, "linux", "home/.kiro/settings/mcp.json"),
        ("kiro", "project", "linux", "project/.kiro/settings/mcp.json"),
        ("junie", None, "win32", "home/.junie/mcp/mcp.json"),
        ("junie", "project", "linux", "project/.junie/mcp/mcp.json"),
    ],
)
def test_p7_every_client_has_its_file(client: ClientName, scope: Any, platform: str, path: str) -> None:
    assert Desk(Path(), client, scope, platform).file() == Path(path)


def test_p7_the_environment_moves_files(tmp_path: Path) -> None:
    environ = {
        "APPDATA": "/r",
        "XDG_CONFIG_HOME": "/x",
        "CLAUDE_CONFIG_DIR": "/c",
        "LOCALAPPDATA": str(tmp_path),
    }
    windows, linux = (Desk(Path("r"), platform=name, environ=environ) for name in ("win32", "linux"))
    assert windows.file("vscode") == Path("/r/Code/User/mcp.json")
    assert linux.file("vscode") == Path("/x/Code/User/mcp.json")
    assert linux.file("claude-code") == Path("/c/.claude.json")
    packaged = tmp_path / "Packages" / "Claude_abc" / "LocalCache" / "Roaming" / "Claude"
    packaged.mkdir(parents=True)
    assert windows.file("claude-desktop").parent == packaged


def test_p7_a_scope_the_client_lacks_is_refused(desk: Desk) -> None:
    with pytest.raises(click.UsageError, match="Claude Desktop has no such scope; use --scope user"):
        desk.install("claude-desktop", scope="project")


@pytest.mark.parametrize("client", list(CLIENTS))
def test_p7_install_writes_a_file_that_we_can_read_ourselves(desk: Desk, client: ClientName) -> None:
    plan = desk.install(client, env={"KEY": "v"})
    assert not plan.path.exists(), "planning must not write"
    assert apply(plan) is None
    entry = desk.entries(client)["hub"]
    ours = CLIENTS[client].form.standard(entry)
    (server,) = config_of({"mcpServers": {"hub": ours}}, source=plan.path, environ={}).servers
    assert (server.command, server.args) == (ENTRY["command"], ("serve", "https://host/mcp"))
    assert (server.name, server.env) == ("hub", {"KEY": "v"})
    typed = ("claude-code", "cursor", "vscode", "vscode-insiders", "goose", "cline", "cline-cli")
    kinds = {**dict.fromkeys(typed, "stdio"), "copilot-cli": "local", "opencode": "local"}
    assert entry.get("type") == kinds.get(client)


def test_p7_a_second_install_changes_nothing_and_backs_up_nothing(desk: Desk) -> None:
    apply(desk.install("cursor"))
    again = desk.install("cursor")
    assert (again.changed, again.diff, apply(again)) == (False, "", None)
    assert [file.name for file in again.path.parent.iterdir()] == ["mcp.json"]


VSCODE = """\
{
    // servers of the team
    "inputs": [],
    "servers": {
        "web": {"type": "http", "url": "https://web/mcp"}, // keep
    },
    "zzz": [1, 2]
}
"""
VSCODE_AFTER = """\
{
    // servers of the team
    "inputs": [],
    "servers": {
        "web": {"type": "http", "url": "https://web/mcp"}, // keep
        "hub": {
            "type": "stdio",
            "command": "/opt/bin/mcp-toolset",
            "args": [
                "serve",
                "https://host/mcp"
            ]
        },
    },
    "zzz": [1, 2]
}
"""


def written(desk: Desk, text: str, client: ClientName = "vscode") -> Path:
    return desk.write(text, client)


def test_p7_comments_order_and_layout_survive(desk: Desk) -> None:
    path = written(desk, VSCODE)
    backup = apply(desk.install("vscode"))
    assert path.read_text() == VSCODE_AFTER
    assert backup is not None and backup == path.with_name("mcp.json.1.bak")
    assert backup.read_text() == VSCODE
    assert apply(desk.uninstall("vscode")) == path.with_name("mcp.json.2.bak")
    assert path.read_text() == VSCODE


def test_p7_the_diff_is_the_change(desk: Desk) -> None:
    written(desk, VSCODE)
    diff = desk.install("vscode").diff
    changed = [line for line in diff.splitlines()[2:] if line.startswith(("+", "-"))]
    assert changed[0].strip("+ ") == '"hub": {' and not any(line.startswith("-") for line in changed)


def test_f42_a_plan_shows_no_secret_of_another_server(desk: Desk) -> None:
    others = {
        "gh": {"command": "x", "args": ["--token=s3cret"], "env": {"K": "s3cret"}, "n": [{"a": "s3cret"}]}
    }
    text = json.dumps({"apiKey": "s3cret", "mcpServers": others, "last": ["s3cret", 's3cret"']})
    written(desk, text, "cursor")
    plan = desk.install("cursor", env={"MINE": "s3cret"})
    assert "https://host/mcp" in plan.diff and '"MINE"' in plan.diff
    assert "s3cret" not in plan.diff + repr(plan)


def test_f42_a_change_of_a_hidden_value_is_still_announced(desk: Desk) -> None:
    apply(desk.install("cursor", env={"K": "old"}))
    plan = desk.install("cursor", env={"K": "new"}, force=True)
    assert plan.changed and "mcpServers.hub.env" in plan.diff and "new" not in plan.diff


def test_p7_another_server_of_that_name_is_kept_unless_forced(desk: Desk) -> None:
    servers = '"hub": {"url": "https://x"}, // theirs\n    "b": {"url": "https://y"}'
    text = f'{{\n  "mcpServers": {{\n    {servers}\n  }}\n}}'
    path = written(desk, text, "cursor")
    with pytest.raises(ConfigError, match=r"mcpServers\.hub: another server.*--force"):
        desk.install("cursor")
    with pytest.raises(ConfigError, match="not a server of mcp-toolset.*--force"):
        desk.uninstall("cursor")
    apply(desk.install("cursor", force=True))
    assert entries(path.read_text(), "mcpServers", "f")["hub"] == ENTRY
    assert "// theirs" in path.read_text()
    apply(desk.uninstall("cursor"))
    assert list(entries(path.read_text(), "mcpServers", "f")) == ["b"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"servers": {', "line 1 column 14: not valid JSON"),
        ("[]", "must hold an object"),
        ('{"servers": []}', "servers: must be an object"),
    ],
)
def test_p7_a_broken_file_is_refused_in_one_line_and_untouched(desk: Desk, text: str, part: str) -> None:
    path = written(desk, text)
    for plan in (desk.install, desk.uninstall):
        with pytest.raises(ConfigError) as caught:
            plan("vscode")
        assert part in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert path.read_text() == text and [file.name for file in path.parent.iterdir()] == ["mcp.json"]


def test_p7_a_name_that_stands_twice_is_left_to_its_owner(desk: Desk) -> None:
    twice = f'{{"servers": {{"hub": {{"command": "a"}}, "hub": {json.dumps(ENTRY)}}}}}'
    written(desk, twice)
    with pytest.raises(ConfigError, match="written twice"):
        desk.uninstall("vscode")


def test_p7_uninstall_of_what_is_not_there_changes_nothing(desk: Desk) -> None:
    assert not desk.uninstall("cursor").changed
    path = written(desk, "{}", "cursor")
    assert apply(desk.uninstall("cursor")) is None and path.read_text() == "{}"


@pytest.mark.parametrize("text", ["", "  \n", "{}", "\ufeff{}", "{ /* nothing yet */ }", '{"servers":{}}'])
def test_p7_an_empty_file_is_filled(desk: Desk, text: str) -> None:
    path = written(desk, text)
    apply(desk.install("vscode"))
    after = path.read_text()
    assert after.startswith("\ufeff") == text.startswith("\ufeff")
    assert ("nothing yet" in after) == ("nothing yet" in text)
    assert entries(after.removeprefix("\ufeff"), "servers", "f") == {"hub": ENTRY}


def test_p7_windows_line_ends_are_kept(desk: Desk) -> None:
    path = written(desk, VSCODE.replace("\n", "\r\n"))
    apply(desk.install("vscode"))
    assert path.read_bytes() == VSCODE_AFTER.replace("\n", "\r\n").encode()


def test_p7_mode_and_link_are_kept(desk: Desk) -> None:
    real = desk.project / "dotfiles.json"
    real.write_text('{"mcpServers": {}}')
    real.chmod(0o640)
    link = desk.home / ".cursor" / "mcp.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    backup = apply(desk.install("cursor"))
    assert link.is_symlink() and "hub" in real.read_text()
    assert backup is not None and backup.parent == real.parent
    assert [stat.S_IMODE(file.stat().st_mode) for file in (real, backup)] == [0o640, 0o600]


def test_u83_a_backup_is_for_the_user_alone(desk: Desk) -> None:
    path = desk.home / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {"gh": {"command": "gh", "env": {"TOKEN": "a-secret-token"}}}}')
    path.chmod(0o644)
    backup = apply(desk.install("cursor"))
    assert backup is not None and "a-secret-token" in backup.read_text()
    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, backup)] == [0o644, 0o600]


def _yaml_bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    return "\n".join(lines) + "\nextensions: {}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (_yaml_bomb(), "its anchors .* stand for more than 100000 values"),
        ("a: " + "[" * 400 + "]" * 400, "is nested too deep"),
    ],
    ids=["bomb", "deep"],
)
def test_u83_a_yaml_file_that_never_ends_is_refused(desk: Desk, text: str, told: str) -> None:
    path = desk.write(text, "goose")
    with pytest.raises(ConfigError, match=told):
        desk.install("goose")
    assert path.read_text() == text


SECRET = "S3CRETvalue0123456789"


@pytest.mark.parametrize(
    ("client", "text", "told"),
    [
        ("goose", "extensions:\n  s: {envs: {KEY: SECRET\n", "YAML: ParserError in line 3, column 1"),
        ("goose", "extensions:\n  KEY: @SECRET\n", "YAML: ScannerError in line 2, column 8"),
        ("goose", "extensions: *SECRET\n", "YAML: ComposerError in line 1, column 13"),
        ("goose", "extensions: 1\nextensions: SECRET\n", "YAML: DuplicateKeyError in line 2, column 1"),
        ("goose", "extensions: !!int SECRET\n", "YAML: ValueError"),
        ("codex", "[a]\nKEY=SECRET\n", "TOML: UnexpectedCharError in line 2, column"),
        ("codex", '[a]\nSECRET="a"\nSECRET="b"\n', "TOML: KeyAlreadyPresent"),
    ],
)
def test_u83_a_file_that_cannot_be_parsed_is_not_quoted(
    desk: Desk, client: ClientName, text: str, told: str
) -> None:
    desk.write(text.replace("SECRET", SECRET), client)
    with pytest.raises(ConfigError) as refused:
        desk.install(client)
    assert f"not valid {told}" in str(refused.value) and "S3CRET" not in str(refused.value)


def test_u83_anchors_of_a_usual_yaml_file_stay(desk: Desk) -> None:
    path = desk.write("common: &c {TZ: UTC}\nextensions:\n  a: {cmd: a, envs: *c}\n", "goose")
    apply(desk.install("goose"))
    assert "&c" in path.read_text() and "*c" in path.read_text()


def test_p7_a_new_file_for_the_user_alone_is_private(desk: Desk) -> None:
    private, shared = desk.install("cursor"), desk.install("claude-code")
    umask = os.umask(0o022)
    try:
        apply(private)
        apply(shared)
    finally:
        os.umask(umask)
    modes = [stat.S_IMODE(plan.path.stat().st_mode) for plan in (private, shared)]
    assert modes == [0o600, 0o644]


def test_p7_a_file_that_changed_after_planning_is_not_overwritten(desk: Desk) -> None:
    path = written(desk, VSCODE)
    plan = desk.install("vscode")
    path.write_text("{}")
    with pytest.raises(ConfigError, match="changed since it was read; run the command again"):
        apply(plan)
    assert path.read_text() == "{}" and not list(path.parent.glob("*.bak"))


def test_p7_a_write_that_fails_leaves_the_file_whole(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(desk, VSCODE)
    plan = desk.install("vscode")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"cannot be written \(No space left on device\)"):
        apply(plan)
    assert path.read_text() == VSCODE and not list(path.parent.glob("*.tmp"))


def test_p7_a_loop_of_links_is_one_line(desk: Desk) -> None:
    path = desk.home / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.symlink_to(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        desk.install("cursor")


def args_of(plan: installing.InstallPlan, section: str = "mcpServers") -> list[str]:
    assert plan.after is not None
    return json.loads(plan.after)[section]["hub"]["args"]


def test_p7_relative_targets_become_absolute(desk: Desk) -> None:
    for file in ("mcp.json", "app.py", "server.py", "python"):
        (desk.project / file).touch()
    at = str(desk.project)
    assert args_of(desk.install("cursor", "mcp.json", "--deferred")) == [
        "serve",
        f"{at}/mcp.json",
        "--deferred",
    ]
    assert args_of(desk.install("cursor", "app.py:tools")) == ["serve", f"{at}/app.py:tools"]
    command = ("--", "python", "server.py", "-r", ".", "--flag")
    expected = ["serve", "--", "python", f"{at}/server.py", "-r", at, "--flag"]
    assert args_of(desk.install("cursor", *command)) == expected
    assert args_of(desk.install("cursor", "app.py", cwd=desk.project.parent / "project")) == [
        "serve",
        f"{at}/app.py",
    ]


def test_p7_a_module_of_this_folder_is_found_from_elsewhere(desk: Desk) -> None:
    (desk.project / "pack").mkdir()
    here, away = desk.install("cursor", "pack.tools:all"), desk.install("cursor", "json.tool:main")
    assert here.after is not None and away.after is not None
    assert json.loads(here.after)["mcpServers"]["hub"]["env"] == {"PYTHONPATH": str(desk.project)}
    assert "env" not in json.loads(away.after)["mcpServers"]["hub"]


@pytest.mark.parametrize("target", [("--",), ("nope.json",), ("nope.py:app",)])
def test_p7_a_target_that_is_not_there_is_refused(desk: Desk, target: tuple[str, ...]) -> None:
    with pytest.raises(TargetError):
        desk.install("cursor", *target)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 65, "a\n"])
def test_p7_a_name_no_client_would_take_is_refused(desk: Desk, name: str) -> None:
    with pytest.raises(click.UsageError, match="cannot name a server"):
        desk.install("cursor", name=name)


def test_p7_the_launcher_is_absolute(tmp_path: Path) -> None:
    python, path = tmp_path / "venv" / "python", tmp_path / "bin"
    python.parent.mkdir()
    path.mkdir()
    machine, launcher = Desk(tmp_path, environ={"PATH": str(path)}).machine, installing.launcher
    assert launcher(machine, python=str(python)) == (str(python), "-m", "mcp_toolset.cli.main")
    for folder in (path, python.parent):
        (folder / "mcp-toolset").touch(mode=0o755)
        assert launcher(machine, python=str(python)) == (str(folder / "mcp-toolset"),)
    assert os.path.isabs(launcher(Desk(tmp_path, platform=sys.platform).machine)[0])


names = st.sampled_from(["a", "b", "hub2", "mcpServers", "é", 'q"', "//", "c,"])
leaves = st.none() | st.integers() | st.text(alphabet='a"\\/*,}{ \n')
values = st.recursive(
    leaves, lambda i: st.lists(i, max_size=3) | st.dictionaries(names, i, max_size=3), max_leaves=5
)
roots = st.builds(
    lambda before, table, after: {**before, **({} if table is None else {"mcpServers": table}), **after},
    st.dictionaries(st.sampled_from(["k", "l"]), values, max_size=2),
    st.none() | st.dictionaries(names, values, max_size=3),
    st.dictionaries(st.sampled_from(["y", "z"]), values, max_size=2),
)
indents = st.sampled_from([None, 0, 1, 2, "\t"])
comments = st.sampled_from(["", "", " ", "// x, }\n", '/* " */', "\n", "\r\n"])


def commented(text: str, data: st.DataObject, trailing: bool) -> str:
    """Comments and white space put around some of the structural characters outside strings."""
    pieces: list[str] = []
    inside = False
    for at, char in enumerate(text):
        quote = char == '"' and not (inside and _escaped(text, at))
        inside ^= quote
        if not inside and not quote and char in "{}[],:":
            comma = (
                ","
                if trailing and char == "}" and text[at - 1] not in "{," and text[:at].strip()[-1] != "{"
                else ""
            )
            char = comma + data.draw(comments) + char + data.draw(comments)
        pieces.append(char)
    return "".join(pieces)


def _escaped(text: str, at: int) -> bool:
    slashes = len(text[:at]) - len(text[:at].rstrip("\\"))
    return slashes % 2 == 1


@given(roots, indents, st.data(), st.booleans(), st.booleans())
def test_p7_install_then_uninstall_means_the_same(
    root: dict[str, Any], indent: Any, data: st.DataObject, noisy: bool, trailing: bool
) -> None:
    text = json.dumps(root, indent=indent)
    text = commented(text, data, trailing) if noisy else text
    added = with_entry(text, "mcpServers", "hub", ENTRY, "f")
    wanted = {**root, "mcpServers": {**root.get("mcpServers", {}), "hub": ENTRY}}
    assert json.loads(plain_json(added)) == wanted
    assert list(json.loads(plain_json(added))) == list(wanted)
    removed = without_entry(added, "mcpServers", "hub", "f")
    assert json.loads(plain_json(removed)) == {**root, "mcpServers": root.get("mcpServers", {})}
    if root.get("mcpServers") and not noisy:
        assert removed == text


@given(roots, indents, st.data())
def test_p7_removing_any_member_leaves_the_others(
    root: dict[str, Any], indent: Any, data: st.DataObject
) -> None:
    text = commented(json.dumps(root, indent=indent), data, data.draw(st.booleans()))
    for name in root.get("mcpServers", {}):
        left = json.loads(plain_json(without_entry(text, "mcpServers", name, "f")))
        assert left["mcpServers"] == {k: v for k, v in root["mcpServers"].items() if k != name}


@given(roots, indents)
def test_f42_concealing_keeps_the_shape_and_ours(root: dict[str, Any], indent: Any) -> None:
    root = {**root, "mcpServers": {**root.get("mcpServers", {}), "hub": ENTRY, "last": {"env": "s3cret"}}}
    shown = json.loads(concealed(json.dumps(root, indent=indent), "mcpServers", "hub"))
    assert shown["mcpServers"]["hub"] == ENTRY
    shown["mcpServers"].pop("hub")
    assert leaves_of(shown) <= {"***"}


def leaves_of(value: Any) -> set[Any]:
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return set().union(*map(leaves_of, items))
    return {value}
