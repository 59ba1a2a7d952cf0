"""`mcp-toolset explain`: the verdict for a caller, the rule that decides, and what was asked before (I8)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.commandline import CommandLine, answer, line

__all__ = ["line"]


@pytest.fixture
def file(line: CommandLine) -> str:
    """A configuration of one server with four rules."""
    up = {**line.entry("serve", "calc.py"), "permissions": {"ask": ["add"]}}
    permissions = {"deny": ["destructive:*"], "for": [{"roles": ["admin"], "allow": ["*"]}]}
    auth = {"tokens": {"ci": {"token": "t" * 20, "roles": ["admin"]}}}
    section = {"permissions": permissions, "auth": auth}
    return line.write("mcp.json", json.dumps({"mcpServers": {"up": up}, "toolset": section})).name


@pytest.mark.needs("inbound_auth")
def test_i8_explain_shows_the_rule_and_those_that_were_asked_before(line: CommandLine, file: str) -> None:
    found = answer(line, "explain", file, "up/add", "--as", "ann", "--scope", "s")
    assert (found["tool"], found["verdict"]) == ("up_add", "ask")
    assert found["rule"] == "mcpServers.up.permissions.ask: add"
    assert found["looked"] == [{"place": "mcpServers.up.permissions", "verdict": "ask", "pattern": "add"}]
    assert (found["caller"], found["roles"], found["scopes"]) == ("ann", [], ["s"])
    assert found["file"].endswith("mcp.json")
    assert "caller: without a name" in line.run("explain", file, "up_add", "--role", "admin").stdout
    for who in (["--as", "ci"], ["--role", "admin"], ["--as", '["a", null, "b"]', "--role", "admin"]):
        assert answer(line, "explain", file, "up_add", *who)["rule"] == "toolset.permissions.for[0].allow: *"


@pytest.mark.needs("inbound_auth")
def test_u124_explain_knows_a_tool_by_its_public_name_with_its_server(line: CommandLine, file: str) -> None:
    for name in ("up_add", "up/add", "up/up_add"):
        assert answer(line, "explain", file, name)["tool"] == "up_add"


def test_i8_the_exit_code_says_whether_a_tool_is_denied(line: CommandLine, file: str) -> None:
    line.write(
        "mcp.json",
        json.dumps(
            {
                **json.loads((line.folder / file).read_text()),
                "toolset": {
                    "permissions": {"deny": ["up/*"], "for": [{"principals": ["ann"], "allow": ["*"]}]}
                },
            }
        ).replace('"ask": ["add"]', '"ask": ["other"]'),
    )
    denied = line.run("explain", file, "up_add")
    assert denied.returncode == 1
    assert denied.stdout.splitlines() == [
        "up_add (up/add): deny",
        "  rule: toolset.permissions.deny: up/*",
        f"  file: {line.folder / file}",
        "  caller: a caller without a name (standard input, no authentication)",
        "Asked, in this order:",
        "  mcpServers.up.permissions: no pattern fits",
        "  toolset.permissions: deny: up/*",
    ]
    assert line.run("explain", file, "up_add", "--as", "ann").returncode == 0
    listed = answer(line, "list", file)
    assert listed["tools"] == []
    assert "up_add" not in line.run("list", file).stdout


@pytest.mark.needs("limits")
def test_i8_explain_shows_the_limits_of_the_caller(line: CommandLine, file: str) -> None:
    known = json.loads((line.folder / file).read_text())
    some = [{"roles": ["admin"], "rate": "600/min"}]
    known["toolset"]["limits"] = {"*": {"rate": "60/min", "calls": 9, "for": some}}
    known["mcpServers"]["up"]["limits"] = {"add": {"calls": 5}}
    line.write(file, json.dumps(known))
    found = answer(line, "explain", file, "up_add", "--as", "ci")["limits"]
    assert {one["limit"]: (one["value"], one["place"]) for one in found} == {
        "calls": (5, "up.limits['add']"),
        "rate": ("600/min", "limits['*'].for[0]"),
    }
    shown = line.run("explain", file, "up_add", "--as", "ann").stdout
    assert shown.splitlines()[-3:] == ["Limits:", "  calls 5: up.limits['add']", "  rate 60/min: limits['*']"]
    assert "600/min" not in shown


@pytest.mark.needs("inbound_auth")
def test_i8_explain_without_a_tool_is_a_table_of_verdicts(line: CommandLine, file: str) -> None:
    rows: list[Any] = answer(line, "explain", file)["tools"]
    assert [(row["tool"], row["verdict"]) for row in rows] == [("up_add", "ask")]
    assert "up_add" in line.run("explain", file).stdout


@pytest.mark.needs("inbound_auth")
def test_i8_explain_names_what_was_meant(line: CommandLine, file: str) -> None:
    wrong = line.run("explain", file, "up_ad")
    assert wrong.returncode == 1
    assert "did you mean up_add?" in wrong.stderr
    assert "a key is written as" in line.run("explain", file, "up_add", "--as", "[1").stderr
    assert line.run("explain", file, "a", "b").returncode == 2


def test_i8_explain_of_a_program_without_a_policy_says_so(line: CommandLine) -> None:
    found = answer(line, "explain", "calc.py", "add")
    assert (found["verdict"], found["rule"], found["looked"]) == ("allow", "", [])
    assert found["limits"] == [] and "Limits" not in line.run("explain", "calc.py", "add").stdout
    assert "no rule is about it" in line.run("explain", "calc.py", "add").stdout
