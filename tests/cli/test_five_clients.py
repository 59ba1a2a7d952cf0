"""Copilot CLI, OpenCode, Cline, Kiro and Junie: their files before and after, byte for byte.

The files have the layout in which the programs and their users write them: Copilot CLI 1.0, OpenCode 1.18,
Cline 3.0 (old and new entries), Kiro 1.0, Junie. `scripts/clients` does the same with files of yours, and
runs the programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.desk import CLIENTS, HUB_NAME, ClientName, Desk, installing

from mcp_toolset.cli.clients import KeptByClientError
from mcp_toolset.config import load_config

COPILOT = """\
{
  "mcpServers": {
    "issues": {
      "tools": [
        "*"
      ],
      "type": "local",
      "command": "issues-server",
      "args": ["--team", "lamps"],
      "env": {
        "ISSUES_TOKEN": "$TOKEN"
      }
    },
    "docs": {"type": "http", "url": "https://docs.test/mcp", "headers": {}, "tools": ["find"]}
  }
}
"""
OPENCODE = """\
{
  // the schema helps the editor
  "$schema": "https://opencode.ai/config.json",
  "theme": "night", /* mine */
  "mcp": {
    "issues": {
      "type": "local",
      "command": ["issues-server", "--team", "lamps"],
      "environment": { "ISSUES_TOKEN": "{env:TOKEN}" },
      "timeout": 20000,
    },
    "docs": {
      "type": "remote",
      "url": "https://docs.test/mcp",
      "enabled": true,
    },
    "jira": { "enabled": false },
  },
  "tools": { "docs_*": false },
}
"""
CLINE = """\
{
  "mcpServers": {
    "issues": {
      "autoApprove": [],
      "disabled": false,
      "timeout": 60,
      "command": "issues-server",
      "args": [
        "--team",
        "lamps"
      ],
      "env": {
        "ISSUES_TOKEN": "${TOKEN}"
      },
      "type": "stdio"
    },
    "docs": {
      "transport": {
        "type": "streamableHttp",
        "url": "https://docs.test/mcp"
      },
      "disabled": false
    }
  }
}"""
KIRO = """\
{\r
  "mcpServers": {\r
    "issues": {\r
      "command": "issues-server",\r
      "args": ["--team", "lamps"],\r
      "env": {"ISSUES_TOKEN": "${TOKEN}"},\r
      "disabled": false,\r
      "autoApprove": ["find"]\r
    },\r
    "docs": {"url": "https://docs.test/mcp", "disabledTools": ["erase"]}\r
  }\r
}\r
"""
JUNIE = """\
{
    "mcpServers": {
        "issues": {
            "command": "issues-server",
            "args": [
                "--team",
                "lamps"
            ],
            "env": {"ISSUES_TOKEN": "${TOKEN}"}
        },
        "docs": {"url": "https://docs.test/mcp"}
    }
}
"""
FILES: Mapping[ClientName, str] = {
    "copilot-cli": COPILOT,
    "opencode": OPENCODE,
    "cline": CLINE,
    "cline-cli": CLINE,
    "kiro": KIRO,
    "junie": JUNIE,
}
OURS = ["/opt/bin/mcp-toolset", "serve", "app.json"]


def after_install(client: ClientName) -> str:
    """The file with one more entry, at its end, and not one other byte changed."""
    before = FILES[client]
    entry = CLIENTS[client].form.ours(OURS, {})
    unit = "    " if client == "junie" else "  "
    end = "\r\n" if client == "kiro" else "\n"
    lines = json.dumps(entry, indent=unit).split("\n")
    member = end + unit * 2 + '"hub": ' + (end + unit * 2).join(lines)
    closing = f'{end}{unit}}},{end}{unit}"tools"' if client == "opencode" else f"{end}{unit}}}{end}}}"
    at = before.index(closing)
    return before[:at] + (f"{member}," if client == "opencode" else f",{member}") + before[at:]


@pytest.fixture(params=FILES)
def client(request: pytest.FixtureRequest) -> ClientName:
    return request.param


@pytest.fixture
def desk(tmp_path: Path, client: ClientName) -> Desk:
    desk = Desk(tmp_path, client).folders()
    desk.write(FILES[client])
    (desk.project / "app.json").write_text('{"mcpServers": {}}')
    return desk


def text_of(desk: Desk) -> str:
    return desk.file().read_bytes().decode()


def test_k6_install_adds_one_entry_and_changes_no_other_byte(desk: Desk, client: ClientName) -> None:
    plan = desk.install(client, "app.json", scope="user")
    installing.apply(plan)
    written = after_install(client).replace("app.json", str(desk.project / "app.json"))
    assert text_of(desk) == written
    assert installing.starts_mcp_toolset(desk.entries()["hub"])
    installing.apply(desk.uninstall(client, scope="user"))
    assert text_of(desk) == FILES[client]


def test_k6_the_servers_of_a_client_move_and_come_back_byte_for_byte(desk: Desk, client: ClientName) -> None:
    plan = desk.adopt()
    assert dict(plan.names) == {"issues": "issues", "docs": "docs"}
    kept = {"jira"} if client == "opencode" else set[str]()
    assert desk.entries().keys() == {HUB_NAME, *kept}
    issues, docs = load_config(plan.hub, environ={"TOKEN": "secret"}).servers
    assert (issues.command, issues.args, issues.env) == (
        "issues-server",
        ("--team", "lamps"),
        {"ISSUES_TOKEN": "secret"},
    )
    assert (docs.url, docs.transport, docs.fault) == ("https://docs.test/mcp", "http", "")
    chosen = {"copilot-cli": (("find",), ()), "kiro": ((), ("erase",))}
    assert (docs.include, docs.exclude) == chosen.get(client, ((), ()))
    restored, stay = desk.restore()
    assert (restored.exact, stay, text_of(desk)) == (True, [], FILES[client])


def test_k6_what_is_shown_of_a_change_has_no_secret(tmp_path: Path, client: ClientName) -> None:
    desk = Desk(tmp_path, client).folders()
    for name in ("$TOKEN", "{env:TOKEN}", "${TOKEN}"):
        if name in FILES[client]:
            desk.write(FILES[client].replace(name, "sk-a-secret").replace("lamps", "--token=sk-another"))
    assert "sk-a" in text_of(desk)
    added = desk.install(client, scope="user", env={"K": "sk-a-third"}).diff
    for shown, told in ((desk.adoption().diff, "issues-server"), (added, "/opt/bin/mcp-toolset")):
        assert told in shown
        assert "sk-a" not in shown


def test_k6_list_clients_finds_their_servers(desk: Desk, client: ClientName) -> None:
    found = {one.name: one for one in desk.found().servers}
    assert found.keys() == {"issues", "docs"}
    assert {(one.client, one.note) for one in found.values()} == {(client, "")}


SPECIAL: list[tuple[ClientName, dict[str, Any], Any]] = [
    ("copilot-cli", {"type": "http", "url": "u", "tools": [], "deferTools": "auto"}, {"tools": []}),
    ("copilot-cli", {"url": "u", "headers": {"A": "$T ${U} $$x"}}, {"headers": {"A": "${T} ${U} $$x"}}),
    ("copilot-cli", {"type": "http", "url": "u", "oauthClientId": "c"}, KeptByClientError),
    ("copilot-cli", {"type": "http", "url": "u", "oidc": True}, KeptByClientError),
    ("opencode", {"enabled": True}, None),
    ("opencode", {"type": "remote", "url": "u", "oauth": {"clientId": "c"}}, KeptByClientError),
    ("opencode", {"type": "remote", "url": "u", "oauth": False}, {"type": "http"}),
    ("opencode", {"type": "remote", "url": "u", "headers": {"A": "{file:~/k}"}}, KeptByClientError),
    ("opencode", {"type": "local", "command": ["{env:BIN}"]}, {"command": "${BIN:-}", "args": []}),
    ("opencode", {"type": "remote", "url": "u", "enabled": False}, {"enabled": False}),
    ("opencode", {"type": "local", "command": []}, {"command": None}),
    ("cline", {"url": "u"}, {"type": "sse"}),
    ("cline", {"url": "u", "transportType": "http"}, {"type": "http"}),
    ("cline", {"transport": {"type": "sse", "url": "u"}, "oauth": {"tokens": {}}}, KeptByClientError),
]


@pytest.mark.parametrize(("name", "entry", "expected"), SPECIAL)
def test_k6_entries_that_only_the_client_can_start_stay(
    name: ClientName, entry: dict[str, Any], expected: Any
) -> None:
    standard = CLIENTS[name].form.standard
    if isinstance(expected, dict):
        made, wanted = standard(entry), dict[str, Any](expected)
        assert made is not None
        assert {key: made.get(key) for key in wanted} == wanted
        assert "deferTools" not in made and "oauth" not in made
    elif expected is None:
        assert standard(entry) is None
    else:
        with pytest.raises(expected):
            standard(entry)


def test_k6_a_server_that_copilot_has_switched_off_by_name_stays(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "copilot-cli").folders()
    desk.write(COPILOT)
    settings = desk.file().with_name("settings.json")
    settings.write_text('{"disabledMcpServers": ["docs"]}')
    plan = desk.adopt()
    assert list(plan.names) == ["issues"]
    assert plan.left == {"docs": f"the client has switched it off, in disabledMcpServers of {settings}"}


def test_k6_opencode_keeps_the_file_that_it_has(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "opencode").folders()
    plain = desk.file().with_name("opencode.json")
    assert desk.file().name == "opencode.jsonc"
    plain.parent.mkdir(parents=True)
    plain.write_text("{}")
    assert desk.file() == plain


def test_k6_the_environment_of_a_client_says_where_its_file_is(tmp_path: Path) -> None:
    places = {
        "copilot-cli": ("COPILOT_HOME", "mcp-config.json"),
        "cline-cli": ("CLINE_DATA_DIR", "settings/cline_mcp_settings.json"),
        "opencode": ("XDG_CONFIG_HOME", "opencode/opencode.jsonc"),
    }
    for name, (variable, path) in places.items():
        desk = Desk(tmp_path, name, environ={variable: str(tmp_path / "own")})  # type: ignore[arg-type]
        assert desk.file() == tmp_path / "own" / path
    given = Desk(tmp_path, "cline-cli", environ={"CLINE_MCP_SETTINGS_PATH": str(tmp_path / "s.json")})
    assert given.file() == tmp_path / "s.json"


def test_k1_adopting_writes_the_switch_by_which_a_client_lists_our_tools_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "copilot-cli").folders()
    desk.write(COPILOT)
    desk.adopt()
    assert desk.entries()[HUB_NAME]["deferTools"] == "never"
