"""Servers of a client move behind one entry, and come back as they were, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from tests.cli.commandline import CommandLine, line
from tests.cli.desk import CLIENTS, HUB_NAME, ClientName, Desk, installing

from mcp_toolset.cli import replacing
from mcp_toolset.config import load_config
from mcp_toolset.errors import ConfigError

__all__ = ["line"]

names = st.from_regex(r"[a-z][a-z0-9_-]{0,11}", fullmatch=True).filter(lambda name: name != HUB_NAME)
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="$\x7f\x85"))
argument = words.filter(lambda word: "mcp-toolset" not in word and "mcp_toolset" not in word)


def entry_of(client: ClientName, program: str, arguments: list[str], env: dict[str, str]) -> dict[str, Any]:
    """An entry as the client writes it."""
    if client == "goose":
        kept = {"name": program, "enabled": True, "timeout": 300, "bundled": None}
        return {"type": "stdio", "cmd": program, "args": arguments, "envs": env, **kept}
    if client == "opencode":
        return {"type": "local", "command": [program, *arguments], "environment": env}
    plain = {"command": program, "args": arguments} | ({"env": env} if env else {})
    return {"source": "custom", **plain} if client == "zed" else plain


def written(client: ClientName, servers: dict[str, Any], layout: str) -> str:
    """A file of the client with other settings and comments around its servers."""
    section = CLIENTS[client].section
    if client == "codex":
        document = tomlkit.parse('# mine\nmodel = "m"  # the best\n\n[tui]\ntheme = "dark"\n')
        document[section] = servers
        return tomlkit.dumps(document)
    if client == "goose":
        from io import StringIO

        stream = StringIO()
        YAML().dump({"GOOSE_MODEL": "m", section: {"developer": {"type": "builtin"}, **servers}}, stream)
        return "# mine\n" + stream.getvalue()
    indent = None if layout == "one line" else 3
    plain = json.dumps({"a": [1, {"b": None}], section: servers, "z": "ä"}, indent=indent, ensure_ascii=False)
    if layout == "comments":
        plain = plain.replace("\n", "\n// mine\n", 1)
    text = plain.replace("\n", "\r\n") if layout == "windows" else plain + "\n"
    return "\ufeff" + text if layout == "marked" else text


def ours(desk: Desk) -> list[Path]:
    """The files of ours on the machine."""
    return [file for file in desk.data.rglob("*") if file.is_file()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.write(json.dumps({"mcpServers": {"git": {"command": "git-server"}, "web": {"url": URL}}}))
    return desk


URL = "https://host/mcp"
LAYOUTS = ["indented", "one line", "windows", "marked", "comments"]
servers = st.dictionaries(
    names, st.tuples(names, st.lists(argument), st.dictionaries(names, argument)), min_size=1
)


KINDS = {(program.format, program.form): name for name, program in CLIENTS.items()}
"""A client of each format of files and form of entries; nothing else distinguishes what is adopted."""


@pytest.mark.parametrize("client", KINDS.values())
@given(servers=servers, layout=st.sampled_from(LAYOUTS))
@settings(
    max_examples=settings().max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_e1_adopted_servers_are_served_and_restored_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, client: ClientName, servers: dict[str, Any], layout: str
) -> None:
    desk = Desk(tmp_path_factory.mktemp("desk"), client)
    made = {name: entry_of(client, *parts) for name, parts in servers.items()}
    before = written(client, made, layout).encode()
    desk.write(before.decode())
    plan = desk.adopt()
    assert sorted({*desk.entries()} - {"developer"}) == [HUB_NAME]
    loaded = {server.name: server for server in load_config(plan.hub, environ={}).servers}
    assert {name: (one.command, list(one.args)) for name, one in loaded.items() if not one.fault} == {
        name: (parts[0], parts[1]) for name, parts in servers.items()
    }
    restored, stay = desk.restore()
    assert desk.file().read_bytes() == before
    assert (restored.exact, stay, ours(desk)) == (True, [], [])


class Killed(BaseException):
    """The process ends here."""


def killing(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """End the process before the write with this number; returns the number of writes that were reached."""
    count = 0

    def wrapped(write: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count > at:
                raise Killed
            return write(*arguments, **options)

        return run

    monkeypatch.setattr(installing, "replace_file", wrapped(installing.replace_file))
    monkeypatch.setattr(replacing, "replace_file", wrapped(replacing.replace_file))
    monkeypatch.setattr(Path, "unlink", wrapped(Path.unlink))
    return lambda: count


def steps() -> Iterator[int]:
    yield from range(6)


@pytest.mark.parametrize("at", [*steps()])
@pytest.mark.parametrize("again", ["restore", "adopt and restore"])
def test_e1_nothing_is_lost_wherever_adopting_is_interrupted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, at: int, again: str
) -> None:
    before = desk.file().read_bytes()
    with monkeypatch.context() as patch:
        killing(patch, at)
        try:
            desk.adopt()
        except Killed:
            pass
    if "adopt" in again and desk.file().read_bytes() == before:
        desk.adopt()
    if at > 0 or "adopt" in again:
        desk.restore()
    assert desk.file().read_bytes() == before
    assert ours(desk) == []


@pytest.mark.parametrize("at", [*steps()])
def test_e1_nothing_is_lost_wherever_restoring_is_interrupted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    before = desk.file().read_bytes()
    desk.adopt()
    with monkeypatch.context() as patch:
        killing(patch, at)
        try:
            desk.restore()
        except Killed:
            pass
    if ours(desk):
        desk.restore()
    assert desk.file().read_bytes() == before
    assert ours(desk) == []


def test_e1_servers_that_were_added_since_are_adopted_too_and_all_come_back(desk: Desk) -> None:
    desk.adopt()
    table = json.loads(desk.file().read_text())
    table["mcpServers"]["new"] = {"command": "new-server"}
    desk.file().write_text(json.dumps(table))
    plan = desk.adopt()
    assert [server.name for server in load_config(plan.hub, environ={}).servers] == ["git", "web", "new"]
    restored, _ = desk.restore()
    assert not restored.exact
    assert json.loads(desk.file().read_text())["mcpServers"] == {
        "git": {"command": "git-server"},
        "web": {"url": URL},
        "new": {"command": "new-server"},
    }


def test_e1_a_server_that_was_edited_in_our_file_stays_there_and_is_named(desk: Desk) -> None:
    plan = desk.adopt()
    table = json.loads(plan.hub.read_text())
    table["mcpServers"]["git"]["exclude"] = ["git_reset"]
    plan.hub.write_text(json.dumps(table))
    _, stay = desk.restore()
    assert stay == ["git"]
    assert list(json.loads(plan.hub.read_text())["mcpServers"]) == ["git"]


def test_e1_what_only_the_client_can_start_stays_with_the_reason(desk: Desk) -> None:
    desk.file().write_text(
        json.dumps(
            {
                "mcpServers": {
                    "git": {"command": "git-server"},
                    "asks": {"command": "x", "env": {"KEY": "${input:key}"}},
                    "here": {"command": "x", "args": ["${workspaceFolder}"]},
                    "ours": {"command": "/bin/mcp-toolset", "args": ["serve", "app.py"]},
                }
            }
        )
    )
    plan = desk.adopt()
    assert list(plan.names) == ["git"]
    assert plan.left == {
        "asks": "it refers to an input that only the client asks for",
        "here": "it refers to the folder that is open in the client",
        "ours": "it is an mcp-toolset already",
    }
    left = json.loads(desk.file().read_text())["mcpServers"]
    assert list(left) == ["asks", "here", "ours", HUB_NAME]


def test_e1_two_clients_of_one_project_share_a_file_and_are_restored_apart(tmp_path: Path) -> None:
    desk = Desk(tmp_path, scope="project")
    files: dict[ClientName, str] = {}
    both: list[tuple[ClientName, object]] = [
        ("cursor", {"command": "one"}),
        ("claude-code", {"command": "two"}),
    ]
    for client, entry in both:
        files[client] = json.dumps({"mcpServers": {"same": {"command": "git"}, "tool": entry}})
        desk.write(files[client], client)
        desk.adopt(client)
    hub = tmp_path / "project" / "mcp-toolset.json"
    assert list(json.loads(hub.read_text())["mcpServers"]) == ["same", "tool", "tool-2"]
    ours = json.loads((tmp_path / "project" / ".mcp.json").read_text())["mcpServers"][HUB_NAME]
    assert ours["alwaysLoad"] is True, "Claude Code defers tools itself"
    assert ours["args"] == ["serve", "${CLAUDE_PROJECT_DIR:-.}/mcp-toolset.json"]
    desk.restore("cursor")
    assert list(json.loads(hub.read_text())["mcpServers"]) == ["same", "tool-2"]
    desk.restore("claude-code")
    assert not hub.exists()
    assert (tmp_path / "project" / ".mcp.json").read_text() == files["claude-code"]


def test_e1_a_second_adoption_says_how_to_go_back(desk: Desk) -> None:
    desk.adopt()
    with pytest.raises(
        ConfigError, match="adopted already; `mcp-toolset uninstall cursor --adopted` brings them back"
    ):
        desk.adopt()
    desk.restore()
    with pytest.raises(ConfigError, match="its servers were not adopted, so nothing can be restored"):
        desk.restore()


def test_e1_codex_and_gemini_entries_keep_their_meaning(tmp_path: Path) -> None:
    codex = Desk(tmp_path / "a", "codex")
    codex.write(
        '[mcp_servers.web]\nurl = "https://host/mcp"\nbearer_token_env_var = "TOK"\n'
        'startup_timeout_sec = 20\n[mcp_servers.web.env_http_headers]\nX-Key = "KEY"\n'
    )
    (web,) = load_config(codex.adopt().hub, environ={"TOK": "t0ken", "KEY": "k3y"}).servers
    assert dict(web.headers) == {"X-Key": "k3y", "Authorization": "Bearer t0ken"}
    assert web.start_timeout == 20
    gemini = Desk(tmp_path / "b", "gemini")
    gemini.write(json.dumps({"mcpServers": {"old": {"url": URL}, "new": {"httpUrl": URL}}}))
    loaded = load_config(gemini.adopt().hub, environ={}).servers
    assert [server.transport for server in loaded] == ["sse", "http"]


def test_e1_the_command_shows_the_change_asks_and_tells_the_way_back(line: CommandLine) -> None:
    path = line.folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"git": {"command": "git", "env": {"TOKEN": "s3cr3t-value"}}}}))
    before = path.read_bytes()
    refused = line.run("install", "cursor", "--adopt")
    assert refused.returncode == 2 and "add --yes to make the change" in refused.stderr
    assert path.read_bytes() == before
    shown = line.run("install", "cursor", "--adopt", "--dry-run").stdout
    assert "-" in shown and "1 server → " in shown and "s3cr3t-value" not in shown
    assert path.read_bytes() == before
    done = line.run("install", "cursor", "--adopt", "--yes")
    assert done.returncode == 0 and "undo it with: mcp-toolset uninstall cursor --adopted" in done.stdout
    assert path.read_bytes() != before
    back = line.run("uninstall", "cursor", "--adopted")
    assert "as it was; restart Cursor" in back.stdout and path.read_bytes() == before


def test_e1_adopt_takes_no_target(line: CommandLine) -> None:
    refused = line.run("install", "cursor", "app.py", "--adopt")
    assert refused.returncode == 2
    assert "--adopt takes the client's own servers; leave TARGET out" in refused.stderr


def test_e1_restore_takes_the_yes_of_install_and_asks_nothing(line: CommandLine) -> None:
    done = line.run("uninstall", "cursor", "--adopted")
    assert done.returncode == 1 and "its servers were not adopted" in done.stderr


def test_u95_the_difference_hides_what_may_be_secret_and_shows_the_programs(line: CommandLine) -> None:
    path = line.folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    args = ["-y", "@scope/server", "--token", "t0ken-value", "postgres://me:pa55word@host/db", "s3cr3t-value"]
    entry = {"command": "npx", "args": args, "env": {"KEY": "s3cr3t-value"}, "headers": {"X": "h3ader-value"}}
    path.write_text(json.dumps({"theme": "dark", "mcpServers": {"git": entry}}, indent=2))
    shown = line.run("install", "cursor", "--adopt", "--dry-run").stdout
    removed = "\n".join(text for text in shown.splitlines() if text.startswith("-"))
    assert '"command": "npx"' in removed and '"@scope/server"' in removed and '"KEY": "***"' in removed
    assert not any(word in shown for word in ("t0ken-value", "pa55word", "s3cr3t-value", "h3ader-value"))


@pytest.mark.parametrize("client", ["codex", "goose"])
def test_u95_other_formats_show_the_programs_too(tmp_path: Path, client: ClientName) -> None:
    desk = Desk(tmp_path, client)
    entry = entry_of(
        client, "npx", ["-y", "@scope/server", "--token", "t0ken-value"], {"KEY": "s3cr3t-value"}
    )
    desk.write(written(client, {"git": entry}, "plain"))
    shown = desk.adoption().diff
    assert "npx" in shown and "@scope/server" in shown
    assert "t0ken-value" not in shown and "s3cr3t-value" not in shown
