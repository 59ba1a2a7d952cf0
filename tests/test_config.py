"""Configuration files of many clients become one model, or one line that mends them (P3, F42)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.config import config_of

from mcp_toolset.config import load_config
from mcp_toolset.config.jsonc import blank_comments, plain_json
from mcp_toolset.config.models import HubConfig, ServerConfig
from mcp_toolset.config.variables import parse_env_file
from mcp_toolset.errors import ConfigError

HOME = {"HOME": "/home/ann"}


def hub(data: object, environ: Mapping[str, str] = HOME, source: str = "/home/me/mcp.json") -> HubConfig:
    return config_of(data, source=source, environ=environ)


def server(entry: Mapping[str, Any], environ: Mapping[str, str] = HOME, **outer: Any) -> ServerConfig:
    only = entry_of(entry, environ, **outer)
    assert only.fault == ""
    return only


def entry_of(entry: object, environ: Mapping[str, str] = HOME, **outer: Any) -> ServerConfig:
    """The entry as it is read, whether it can be used or not; another one beside it always can."""
    only, other = hub({"mcpServers": {"git": entry, "fine": {"command": "x"}}, **outer}, environ).servers
    assert (other.name, other.fault) == ("fine", "")
    return only


def refusal(data: object, environ: Mapping[str, str] = HOME) -> str:
    with pytest.raises(ConfigError) as caught:
        hub(data, environ)
    return str(caught.value)


def server_refusal(entry: object, environ: Mapping[str, str] = HOME) -> str:
    """Why the entry is misconfigured, which never ends the rest of the file."""
    return entry_of(entry, environ).fault


CLAUDE_DESKTOP = """{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "git": {"command": "uvx", "args": ["mcp-server-git", "--repository", "/srv/repo"]},
    "time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "Europe/Rome"}}
  }
}"""
CLAUDE_CODE = """{
  "mcpServers": {
    "api": {"type": "http", "url": "${BASE:-https://api.example.com}/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"}},
    "old": {"type": "sse", "url": "https://old.example.com/events"},
    "db": {"type": "stdio", "command": "${ROOT}/bin/db", "args": ["--config", "${ROOT}/c.json"], "env": {}}
  }
}"""
CURSOR = """{
  "mcpServers": {
    "docs": {"url": "https://docs.example.com/sse"},
    "files": {"command": "node", "args": ["${workspaceFolder}/server.js", "${userHome}"],
              "env": {"KEY": "${env:TOKEN}"}}
  }
}"""
VSCODE = """{
  // What the editor asks for
  "inputs": [
    {"type": "promptString", "id": "api-key", "description": "Key", "password": true},
    {"type": "pickString", "id": "region", "options": ["eu", "us"], "default": "eu"},
  ],
  "servers": {
    "files": { /* local */
      "type": "stdio", "command": "npx", "args": ["-y", "pkg", "${workspaceFolder}/data"],
      "envFile": "${workspaceFolder}/.env",
      "env": {"API_KEY": "${input:api-key}", "REGION": "${input:region}", "PORT": 8080, "GONE": null},
    },
    "web": {"type": "http", "url": "https://web.example.com/mcp", "gallery": true},
  },
}"""


def test_p3_claude_desktop_file_runs_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "claude_desktop_config.json"
    path.write_text(CLAUDE_DESKTOP)
    assert load_config(path, environ={}) == HubConfig(
        path,
        "mcp-toolset",
        (
            ServerConfig("git", "stdio", command="uvx", args=("mcp-server-git", "--repository", "/srv/repo")),
            ServerConfig(
                "time", "stdio", command="uvx", args=("mcp-server-time",), env={"TZ": "Europe/Rome"}
            ),
        ),
    )


def test_p3_claude_code_file_expands_and_starts_in_the_project(tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text(CLAUDE_CODE)
    api, old, db = load_config(path, environ={"TOKEN": "s3cret", "ROOT": "/opt/db"}).servers
    assert (api.transport, api.url) == ("http", "https://api.example.com/mcp")
    assert api.headers == {"Authorization": "Bearer s3cret"}
    assert (old.transport, old.url) == ("sse", "https://old.example.com/events")
    assert (db.command, db.args) == ("/opt/db/bin/db", ("--config", "/opt/db/c.json"))
    assert db.cwd == str(tmp_path)


def test_p3_cursor_file_knows_the_workspace_and_the_home(tmp_path: Path) -> None:
    path = tmp_path / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(CURSOR)
    docs, files = load_config(path, environ={**HOME, "TOKEN": "t"}).servers
    assert docs.transport == "sse"
    assert files.args == (f"{tmp_path}/server.js", "/home/ann")
    assert (files.env, files.cwd) == ({"KEY": "t"}, str(tmp_path))


def test_p3_vscode_file_with_comments_inputs_and_env_file(tmp_path: Path) -> None:
    path = tmp_path / ".vscode" / "mcp.json"
    path.parent.mkdir()
    path.write_text(VSCODE)
    (tmp_path / ".env").write_text("REGION=overridden\nEXTRA='from file'\nGONE=x\n")
    files, web = load_config(path, environ={"MCP_INPUT_API_KEY": "k"}).servers
    assert files.args == ("-y", "pkg", f"{tmp_path}/data")
    assert files.env == {"EXTRA": "from file", "API_KEY": "k", "REGION": "eu", "PORT": "8080"}
    assert (web.transport, web.url) == ("http", "https://web.example.com/mcp")


def test_p3_vscode_settings_file_with_nested_servers() -> None:
    (only,) = hub({"mcp": {"inputs": [], "servers": {"a": {"command": "x"}}}}).servers
    assert only.name == "a"


def test_p3_a_file_for_two_clients_is_read_once() -> None:
    data = {"servers": {"a": {"command": "x"}}, "mcpServers": {"b": {"command": "y"}}}
    assert [s.name for s in hub(data).servers] == ["b"]


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"url": "https://h/mcp"}, "http"),
        ({"url": "https://h/sse/?x=1"}, "sse"),
        ({"url": "https://h/assets"}, "http"),
        ({"url": "https://h/sse", "type": "http"}, "http"),
        ({"url": "https://h/mcp", "type": "streamable-http"}, "http"),
        ({"url": "https://h/mcp", "type": "streamableHttp"}, "http"),
        ({"url": "https://h/mcp", "transport": "sse"}, "sse"),
        ({"serverUrl": "https://h/mcp"}, "http"),
        ({"httpUrl": "https://h/mcp"}, "http"),
        ({"command": "x", "type": "local"}, "stdio"),
        ({"command": "x", "url": "", "headers": None}, "stdio"),
    ],
)
def test_p3_transport_from_every_spelling(entry: dict[str, Any], transport: str) -> None:
    assert server(entry).transport == transport


def test_p3_keys_of_other_clients_are_passed_over() -> None:
    entry = {"command": "x", "alwaysAllow": ["a"], "autoApprove": True, "trust": 1, "gallery": {}}
    assert server(entry) == server({"command": "x"})


def test_p3_tool_lists_of_other_clients_are_kept_as_exact_names() -> None:
    entry = {"command": "x", "includeTools": ["a"], "excludeTools": ["b[1]"], "disabledTools": ["c"]}
    read = server(entry | {"exclude": ["d?"]})
    assert (read.include, read.exclude) == (("a",), ("d?", "b[[]1]", "c"))


def test_p3_own_options_and_their_defaults() -> None:
    section = {"name": "hub", "deferred": True, "timeout": 20, "start_timeout": 5}
    read = server({"command": "x", "timeout": 3}, toolset=section)
    assert (read.deferred, read.timeout, read.start_timeout) == (True, 3, 5)
    assert hub({"mcpServers": {}, "toolset": section}).name == "hub"
    assert server({"command": "x", "deferred": False}, toolset=section).deferred is False


@pytest.mark.needs("upstream_access")
def test_p5_how_sessions_are_shared_and_whether_credentials_go_on_is_said_for_each_server() -> None:
    plain = server({"url": "https://example.com/mcp"})
    assert (plain.sessions, {**plain.extensions}) == ("auto", {})
    entry = {"url": "https://example.com/mcp", "sessions": "client", "forward_authorization": True}
    assert (server(entry).sessions, server(entry).extensions["access"].forwards) == ("client", True)
    known = "one of auto, shared, capabilities, client and call"
    assert known in server_refusal({**entry, "sessions": "mine"})


def test_p5_what_is_declared_for_the_list_is_said_for_each_server() -> None:
    entry: dict[str, object] = {"command": "x"}
    assert server(entry).declare == ()
    assert server({**entry, "declare": ["sampling", "roots"]}).declare == ("sampling", "roots")
    known = "a list of some of elicitation, roots and sampling"
    assert known in server_refusal({**entry, "declare": ["logging"]})


def test_the_era_in_which_a_server_is_spoken_to_is_said_for_each_server() -> None:
    assert server({"command": "x"}).protocol == "auto"
    assert server({"command": "x", "protocol": "legacy"}).protocol == "legacy"
    assert "one of auto, legacy and modern" in server_refusal({"command": "x", "protocol": "2025-11-25"})


@pytest.mark.parametrize(("written", "read"), [("gh", "gh"), (None, None), (False, False), ("", False)])
def test_p3_prefix_is_a_string_the_default_or_none(written: object, read: object) -> None:
    assert server({"command": "x", "prefix": written}).prefix == read


@pytest.mark.parametrize(("written", "seconds"), [(90, 90), (0.5, 0.5), (9999, 9999), (60000, 60)])
def test_p3_timeout_in_seconds_or_another_clients_milliseconds(written: float, seconds: float) -> None:
    assert server({"command": "x", "timeout": written}).timeout == seconds


@pytest.mark.parametrize("switch", [{"disabled": True}, {"enabled": False}])
def test_p3_a_disabled_server_needs_no_variables(switch: dict[str, bool]) -> None:
    read = server({"command": "x", "args": ["${NOT_SET}"], "envFile": "/none/such", **switch})
    assert (read.disabled, read.args) == (True, ("${NOT_SET}",))


@pytest.mark.needs("upstream_access")
def test_u115_the_login_of_a_disabled_server_is_not_read() -> None:
    login = {
        "type": "client_credentials",
        "client_id": "${ID}",
        "issuer": "${ISSUER}",
        "client_secret": "${NO}",
    }
    entry = {"url": "https://a.example/mcp", "auth": login}
    assert "not set" in server_refusal(entry)
    read = server({**entry, "disabled": True})
    assert read.disabled and read.extensions["access"].auth is None


def test_p3_relative_and_home_folders() -> None:
    assert server({"command": "x", "cwd": "sub/../sub"}).cwd == "/home/me/sub"
    assert server({"command": "x", "cwd": "~/p"}).cwd == "/home/ann/p"
    assert server({"command": "x"}).cwd is None


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${A}-${A}", "1-1"),
        ("${env:A}", "1"),
        ("${B:-two}", "two"),
        ("${EMPTY:-two}", "two"),
        ("${EMPTY}", ""),
        ("${B:-}", ""),
        ("${NESTED}", "${A}"),
        ("$A ${x%.*} ${} ${x:?no}", "$A ${x%.*} ${} ${x:?no}"),
        ("${workspaceFolderBasename}${/}a", f"me{os.sep}a"),
    ],
)
def test_p3_expansion(text: str, expanded: str) -> None:
    environ = {"A": "1", "EMPTY": "", "NESTED": "${A}"}
    assert server({"command": "x", "args": [text]}, environ).args == (expanded,)


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ({"command": "${NOPE}"}, "mcpServers.git.command"),
        ({"command": "x", "args": ["a", "${NOPE}"]}, "mcpServers.git.args[1]"),
        ({"command": "x", "env": {"K": "${env:NOPE}"}}, "mcpServers.git.env.K"),
        ({"url": "https://${NOPE}"}, "mcpServers.git.url"),
        ({"serverUrl": "https://${NOPE}"}, "mcpServers.git.serverUrl"),
        ({"url": "https://h", "headers": {"X": "${NOPE}"}}, "mcpServers.git.headers.X"),
    ],
)
def test_p3_a_missing_variable_names_place_and_mend(entry: dict[str, Any], place: str) -> None:
    message = server_refusal(entry)
    assert message.startswith(f"/home/me/mcp.json: {place}: environment variable NOPE is not set")
    assert "set NOPE" in message and "${NOPE:-" in message


def test_f42_an_input_never_reads_a_variable_of_its_own_name() -> None:
    message = server_refusal({"command": "x", "args": ["${input:path}"]}, {"PATH": "/bin", "path": "/bin"})
    assert "MCP_INPUT_PATH" in message and "/bin" not in message


def test_p3_a_reference_only_its_own_client_understands_is_refused() -> None:
    assert "${config:ext.pick}" in server_refusal({"command": "x", "args": ["${config:ext.pick}"]})


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ([], ["mcpServers.git: must be an object"]),
        ({}, ["neither `command` nor `url`", "add one"]),
        ({"comand": "x"}, ["mcpServers.git.comand: unknown key", "did you mean `command`?"]),
        ({"command": "x", "url": "https://h"}, ["both `command` and `url`", "`type`"]),
        ({"command": "x", "type": "ws"}, ["mcpServers.git.type: no transport of that name"]),
        ({"url": "https://h", "type": "stdio"}, ["needs `command`"]),
        ({"command": "x", "type": "http"}, ["needs `url`"]),
        ({"url": "ftp://h"}, ["mcpServers.git.url: not a web address"]),
        ({"url": "http://["}, ["mcpServers.git.url: not a web address"]),
        ({"command": ["x"]}, ["mcpServers.git.command: should be a valid string", "`command` as a string"]),
        ({"command": "x", "args": ["a", {}]}, ["mcpServers.git.args[1]: should be", "list of strings"]),
        ({"command": "x", "args": "a"}, ["mcpServers.git.args: should be a valid list"]),
        ({"command": "x", "timeout": 0}, ["mcpServers.git.timeout: should be greater than 0", "seconds"]),
        ({"command": "x", "timeout": float("inf")}, ["mcpServers.git.timeout: should be a finite number"]),
        ({"command": "x", "prefix": True}, ["mcpServers.git.prefix", "false for none"]),
        ({"command": "x", "args": 1, "include": 2}, ["(and 1 more)"]),
        ({"command": "x", "envFile": "/none/such"}, ["mcpServers.git.envFile: no such environment file"]),
        ({"command": "x", "env": {"A": "a\0"}}, ["mcpServers.git.env.A: holds a line break or a null"]),
    ],
)
def test_p3_a_wrong_entry_gets_one_line_with_place_and_mend(entry: object, parts: list[str]) -> None:
    message = server_refusal(entry)
    assert message.startswith("/home/me/mcp.json: ") and "\n" not in message
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ([], ["must be an object"]),
        ({}, ["names no servers", "mcpServers"]),
        ({"mcpserver": {}}, ["did you mean `mcpServers`?"]),
        ({"mcpServers": []}, ["mcpServers: must be an object"]),
        ({"mcpServers": {" ": {}}}, ['mcpServers[" "]: a server needs a name']),
        ({"mcpServers": {}, "toolset": 1}, ["toolset: must be an object"]),
        ({"mcpServers": {}, "toolset": {"defered": 1}}, ["toolset.defered: unknown", "`deferred`?"]),
        ({"mcpServers": {}, "toolset": {"zzz": 1}}, ["use one of `name`, `deferred`"]),
        ({"mcpServers": {}, "toolset": {"name": ""}}, ["toolset.name"]),
        ({"servers": {}, "inputs": {}}, ["inputs: must be a list"]),
        ({"servers": {}, "inputs": [{}]}, ["inputs[0].id: field required"]),
    ],
)
def test_p3_a_wrong_file_gets_one_line_with_place_and_mend(data: object, parts: list[str]) -> None:
    message = refusal(data)
    assert "\n" not in message
    assert [part for part in parts if part not in message] == []


def test_p3_a_place_is_written_so_that_it_stays_one_line() -> None:
    (odd,) = hub({"mcpServers": {"a b\n": {}}}).servers
    assert 'mcpServers["a b\\n"]: has neither' in odd.fault and "\n" not in odd.fault


SECRET = "hunter2-"


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"K": [SECRET]}},
        {"command": "x", "env": SECRET},
        {"url": "https://h", "headers": {"K": {"a": SECRET}}},
        {"url": "https://h", "headers": {"K": SECRET + "\r\nX: y"}},
        {"url": f"ftp://user:{SECRET}@h"},
        {"url": "${BAD}"},
        {"command": "x", "args": [{"token": SECRET}]},
    ],
)
def test_f42_no_error_shows_a_value_nor_keeps_one_behind_it(entry: dict[str, Any]) -> None:
    read = entry_of(entry, {"BAD": SECRET})
    assert read.fault and SECRET not in repr(read)


def test_f42_broken_json_shows_no_text_and_keeps_none(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"env": {"K": "' + SECRET + '" "}}}}')
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert SECRET not in str(caught.value) and caught.value.__context__ is None


def test_f42_repr_shows_no_secret() -> None:
    local = server({"command": "x", "args": [SECRET], "env": {"K": SECRET}})
    remote = server({"url": f"https://h/?key={SECRET}", "headers": {"K": SECRET}})
    assert SECRET not in repr(hub({"mcpServers": {}})) + repr(local) + repr(remote)
    assert "git" in repr(local)


def test_models_are_frozen_and_hashable() -> None:
    read = server({"command": "x", "env": {"A": "1"}})
    with pytest.raises(AttributeError):
        read.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        read.env["A"] = "2"  # pyright: ignore[reportIndexIssue]
    assert hash(read) == hash(server({"command": "x", "env": {"A": "1"}}))


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b'{\n  "mcpServers": {\n    "a" {}\n  }\n}', ["line 3 column 9", "':'"]),
        (b'{ // one\n  /* two */ "mcpServers": }', ["line 2 column 27"]),
        (b'{"mcpServers": {,}}', ["line 1 column 17"]),
        (b'{"a": [1,,]}', ["line 1"]),
        (b"", ["line 1 column 1"]),
        (b"[" * 100_000, ["nested too deeply"]),
        (b'{"a": ' + b"9" * 5000 + b"}", ["too many digits"]),
        (b"\xff\xfe{\x00}\x00", ["not UTF-8", "save the file"]),
    ],
)
def test_p3_broken_json_is_placed_by_line_and_column(
    tmp_path: Path, content: bytes, parts: list[str]
) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert [part for part in parts if part not in message] == []


def test_p3_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file; check the path"):
        load_config(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


def test_p3_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(b'\xef\xbb\xbf{"mcpServers": {}}')
    assert load_config(path).servers == ()


def test_env_file_as_shells_write_it() -> None:
    text = "# comment\nexport A=1\nB = two words # note\nC='x # y'\r\nEMPTY=\n"
    text += 'D="l1\\nl2"\nE="a\nb"\nU=h#x\nnot\n'
    expected = {"A": "1", "B": "two words", "C": "x # y", "EMPTY": "", "D": "l1\nl2", "E": "a\nb", "U": "h#x"}
    assert parse_env_file(text) == expected


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(alphabet='ab"\\/*,{}[]\n //é')
    | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='a/*"\\,}'), inner, max_size=4)
    ),
    max_leaves=12,
)
noise = st.sampled_from(
    ["", " ", "\n", '// x " , ]\n', '/* , } " */', "/**/", "\r\n\t", "/* // */", "//\r\n"]
)


def noisy(value: object, draw: Callable[[st.SearchStrategy[str]], str]) -> str:
    """The value as a person might type it: comments anywhere, commas where they do no harm."""

    def spaced(text: str) -> str:
        return draw(noise) + text + draw(noise)

    def closed(items: list[str], braces: str) -> str:
        comma = draw(st.sampled_from(["", ","])) if items else ""
        return braces[0] + ",".join(items) + comma + draw(noise) + braces[1]

    if isinstance(value, list):
        return closed([spaced(noisy(item, draw)) for item in value], "[]")
    if isinstance(value, dict):
        pairs = ((json.dumps(key), noisy(item, draw)) for key, item in value.items())
        return closed([f"{spaced(key)}:{spaced(item)}" for key, item in pairs], "{}")
    return json.dumps(value, ensure_ascii=False)


@given(st.data(), json_values)
def test_p3_comments_and_trailing_commas_change_nothing(data: st.DataObject, value: object) -> None:
    text = data.draw(noise) + noisy(value, data.draw) + data.draw(noise)
    plain = plain_json(text)
    assert json.loads(plain) == value
    assert [len(line) for line in plain.split("\n")] == [len(line) for line in text.split("\n")]


@given(json_values, st.sampled_from([None, 2]))
def test_p3_plain_json_passes_untouched(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert plain_json(text) == text == blank_comments(text)


@given(st.text(alphabet='"\\/*\n,]} a'))
def test_p3_blanking_any_text_keeps_its_length(text: str) -> None:
    assert len(plain_json(text)) == len(text)


def test_config_import_stays_off_the_wire() -> None:
    code = "import sys, mcp_toolset.config; print({'mcp', 'anyio', 'starlette'} & sys.modules.keys())"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert answer.stdout.strip() == "set()"


def test_u71_the_sections_of_geminis_settings_are_no_rules_of_ours() -> None:
    others = {
        "tools": {"exclude": ["run_shell_command"], "core": ["x"]},
        "mcp": {"allowed": ["a"], "excluded": ["b"]},
        "telemetry": {"enabled": True, "target": "local"},
        "security": {"auth": {"selectedType": "oauth-personal"}},
    }
    assert hub({"mcpServers": {"a": {"command": "x"}}, **others}).servers[0].fault == ""


@pytest.mark.needs("code", "large_results")
@pytest.mark.parametrize(
    ("section", "key"), [("large_results", "ttl"), ("code", "timeout"), ("code", "max_compute_seconds")]
)
def test_m7_long_times_of_our_own_sections_are_seconds(section: str, key: str) -> None:
    # A `timeout` of a server's entry is in milliseconds from 10,000 on, as other clients count so.
    config = config_of({"mcpServers": {}, "toolset": {section: {key: 86_400}}}, source="mcp.json")
    said = getattr(config.extensions[section], key) if section in config.extensions else None
    assert (said or getattr(config, section)[key]) == 86_400


def test_u115_the_pins_of_an_entry_count_before_those_of_the_file() -> None:
    servers = {"one": {"command": "a", "pins": "accept"}, "other": {"command": "b"}}
    data = {"toolset": {"pins": "quarantine"}, "mcpServers": servers}
    assert [one.pins for one in config_of(data, source="mcp.json").servers] == ["accept", "quarantine"]
