"""A protection with a mistake in it is refused where it is written, or nothing starts: the table replayed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.commandline import CommandLine, line
from tests.protections.files import ENTRIES, FILES, SERVER, TABLES
from tests.protections.programs import DECLARATIONS, DECORATORS, POLICIES, PREAMBLE

from mcp_toolset import load_toolset
from mcp_toolset.catalog.grants import access
from mcp_toolset.config.entries import known_keys
from mcp_toolset.config.keys import places
from mcp_toolset.config.tables import ToolsetSection

pytestmark = pytest.mark.needs("*")


__all__ = ["line"]

Row = tuple[str, Any, str]


def named(rows: list[Row]) -> Any:
    return pytest.mark.parametrize("row", [pytest.param(row, id=row[0]) for row in rows])


def written(line: CommandLine, given: Any) -> Path:
    whole = given if isinstance(given, str) else json.dumps({"mcpServers": {"a": SERVER}, **given}, indent=1)
    return line.write("mcp.json", whole)


def test_u71_every_mistake_of_the_table_has_a_name_of_its_own() -> None:
    for rows in (FILES, ENTRIES, DECORATORS, DECLARATIONS, POLICIES):
        names = [row[0] for row in rows]
        assert len(names) == len({*names})


@named(FILES)
def test_u71_a_file_whose_protection_would_be_off_is_not_served(row: Row, line: CommandLine) -> None:
    name, given, says = row
    written(line, given)
    # On standard input nobody has a token, so only a server over HTTP uses `auth`.
    over_http = ("--transport", "http", "--port", "0") if name.startswith("auth:") else ()
    served = line.here("serve", "mcp.json", *over_http)
    assert served.returncode != 0
    assert "mcp.json" in served.stderr and says in served.stderr


@named([rows[0] for rows in TABLES])
def test_u71_check_says_of_such_a_file_what_serve_says(row: Row, line: CommandLine) -> None:
    written(line, row[1])
    checked = line.run("check", "mcp.json")
    told = checked.stdout + checked.stderr
    assert checked.returncode == 1 and row[2] in told
    assert re.search(r"mcp\.json:(\d+:\d+| line \d+ column \d+): ", told)


@named(ENTRIES)
def test_u71_an_entry_whose_protection_would_be_off_is_down(row: Row, tmp_path: Path) -> None:
    _, entry, says = row
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": {**SERVER, **entry}, "b": SERVER}}))
    config = load_toolset(path).config
    assert [server.name for server in config.misconfigured] == ["a"]
    assert says in config.misconfigured[0].fault


def test_u71_check_fails_for_an_entry_that_is_down(line: CommandLine) -> None:
    _, entry, says = ENTRIES[0]
    written(line, {"mcpServers": {"a": {**SERVER, **entry}, "b": SERVER}})
    checked = line.run("check", "mcp.json")
    assert checked.returncode == 1 and says in checked.stdout


@pytest.mark.parametrize("own", [None, {"deny": ["look"]}, {"allow": ["look"]}, {"allow": ["readOnly:*"]}])
def test_u71_a_general_rule_applies_to_the_servers_whose_entries_leave_it_open(
    own: Any, tmp_path: Path
) -> None:
    servers = {
        "a": {**SERVER, "permissions": {"allow": ["*"]}},
        "b": SERVER | ({"permissions": own} if own else {}),
    }
    section = {"permissions": {"deny": ["destroy"], "ask": ["destructive:*"]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers, "toolset": section}))
    assert not load_toolset(tmp_path / "mcp.json").config.misconfigured


NAMING: dict[str, Any] = {
    "disallowedTools": ["mcp__bank__pay"],
    "disable": ["bank"],
    "enabledMcpServers": ["git"],
    "allowedMcpServers": [{"serverName": "git"}],
    "refuse": ["bank/pay"],
    "callsPerDay": {"bank/pay": 1},
    "tools": {"bank_pay": False},
    "rules": "deny bank/pay",
    "presets": {"safe": ["git"]},
}


@pytest.mark.parametrize("key", NAMING)
def test_u71_a_top_level_key_that_names_a_server_and_is_ignored_is_a_warning(
    key: str, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"bank": SERVER, "git": SERVER}, key: NAMING[key]}))
    said = str(load_toolset(path).config.warnings)
    assert f"`{key}`" in said or f"{key}: names a server, and is ignored here" in said


def test_u71_the_other_keys_of_a_clients_file_are_no_warning(line: CommandLine) -> None:
    own = {
        "theme": "Bankrupt",
        "_disable": ["bank"],
        "recent": ["/home/ann/banks"],
        "tools": {"sandbox": True},
    }
    written(line, {"mcpServers": {"bank": SERVER}, **own})
    assert line.run("check", "mcp.json", "--strict").returncode == 0
    written(line, {"mcpServers": {"bank": SERVER}, "disable": ["bank"]})
    assert line.run("check", "mcp.json", "--strict").returncode == 1


def raises(row: Row) -> None:
    _, program, says = row
    space: dict[str, Any] = {"__name__": "program"}
    exec(compile(PREAMBLE, "program.py", "exec", dont_inherit=True), space)

    async def opened() -> None:
        with anyio.fail_after(30):
            async with space["server"]:
                pass

    with pytest.raises(Exception) as caught:
        exec(compile(program, "program.py", "exec", dont_inherit=True), space)
        if "server" in space:
            anyio.run(opened)
    assert says in str(caught.value)


@named(DECORATORS)
def test_u72_a_hook_that_would_not_be_registered_raises(row: Row) -> None:
    raises(row)


@named(DECLARATIONS)
def test_u75_a_wrong_type_raises_where_it_is_written_or_at_the_opening(row: Row) -> None:
    raises(row)


@named(POLICIES)
def test_u73_a_policy_a_limit_or_a_login_that_would_not_apply_raises(row: Row) -> None:
    raises(row)


def test_u71_every_key_of_the_section_has_its_place_in_the_table() -> None:
    # Another client has a top-level key `telemetry`, which is not ours.
    missing = {*known_keys(ToolsetSection)} - {*places()} - {"telemetry"}
    assert not missing


def test_an_importer_that_executes_a_module_throws_no_decision_away() -> None:
    """As pytest does with the modules of plugins: the statement around the module is `exec(…)`."""
    place = Path(access.__file__)
    exec(compile(place.read_text(), place, "exec"), {"__name__": access.__name__})
