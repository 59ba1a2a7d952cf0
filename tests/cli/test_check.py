"""`mcp-toolset check`: what is wrong in a configuration file, without starting a server."""

from __future__ import annotations

import json
import re
import sys

import jsonschema_rs
import pytest
from tests.cli.commandline import CommandLine, line

__all__ = ["line"]

GOOD = {"command": sys.executable, "args": ["-c", "raise SystemExit('started')"]}


def file_of(line: CommandLine, servers: object, **rest: object) -> None:
    line.write("mcp.json", json.dumps({"mcpServers": servers, **rest}))


def test_e2_a_file_without_mistakes_is_said_to_be_one(line: CommandLine) -> None:
    file_of(line, {"one": GOOD})
    done = line.run("check", "mcp.json", "--strict")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 server, and nothing is wrong in mcp.json" in done.stdout


def test_e2_each_mistake_is_a_line_with_its_place_and_the_mend(line: CommandLine) -> None:
    file_of(
        line,
        {
            "one": GOOD,
            "typo": {**GOOD, "timeot": 5},
            "unset": {"url": "https://host/${NOT_SET}"},
            "off": {"url": "https://host/${NOT_SET}", "disabled": True},
        },
    )
    done = line.run("check", "mcp.json")
    assert done.returncode == 1
    rows = {row.split()[0]: row for row in done.stdout.splitlines()}
    assert "mcpServers.typo.timeot: unknown key; did you mean `timeout`?" in rows["typo"]
    assert "mcpServers.unset.url: environment variable NOT_SET is not set; set NOT_SET" in rows["unset"]
    assert rows["one"].split() == ["one", "ok"]
    assert rows["off"].split() == ["off", "disabled"]
    assert rows["4"] == "4 servers, 2 errors, 0 warnings"


@pytest.mark.needs("limits")
def test_e2_all_mistakes_are_found_at_once(line: CommandLine) -> None:
    file_of(
        line,
        {
            "one": GOOD,
            "two": {**GOOD, "timeout": "soon", "args": "-y"},
            "typo": {"comand": "x"},
            "spaced": {**GOOD, "prefix": "a b"},
            "same": {**GOOD, "prefix": "one"},
        },
        toolset={
            "defered": True,
            "pins": "alwyas",
            "permissions": {"ask": ["destructiv:*"]},
            "limits": {"*": {"rate": "often"}},
        },
    )
    done = line.run("check", "mcp.json")
    assert done.returncode == 1
    sections = done.stderr.splitlines()
    assert [told.split(": ")[2] for told in sections] == [
        "toolset.defered",
        "toolset.pins",
        'toolset.limits["*"].rate',
        "toolset.permissions.ask[0]",
    ]
    assert "did you mean `destructive:*`?" in sections[3]
    assert "more)" not in done.stderr + done.stdout
    for mistake in (
        "mcpServers.two.timeout",
        "mcpServers.two.args",
        "mcpServers.typo.comand: unknown key; did you mean `command`?",
        "prefix 'a b' cannot start a tool's name",
        "servers 'one' and 'same' have the same prefix 'one'",
    ):
        assert done.stdout.count(mistake) == 1
    assert done.stdout.splitlines()[-1] == "5 servers, 9 errors, 0 warnings"


def test_e2_all_mistakes_as_json(line: CommandLine) -> None:
    file_of(line, {"two": {**GOOD, "timeout": "soon", "args": "-y"}}, toolset={"defered": 1, "lok": 2})
    done = line.run("check", "mcp.json", "--json")
    answer = json.loads(done.stdout)
    assert [told.split(": ")[1] for told in answer["errors"]] == ["toolset.defered", "toolset.lok"]
    assert len(answer["servers"][0]["further"]) == 1
    assert done.returncode == 1


JSONC = """\
// servers of a team
{
  "mcpServers": {
    /* two mistakes */ "git": {"comand": "x", "timeout": "soon"},
    "web": {"url": "https://host/${NOT_A}", "headers": {
      "X": "${NOT_B}", // a comment
      "Y": "a\\"b ${NOT_C}"}},
    "local": {"command": "${NOT_P}", "args": ["-y", "${NOT_Q}", "${NOT_R}"], "cwd": "/not/there"},
    "gone": {"command": []},
  },
  "toolset": {"defered": true, "limits": {"*": {"rate": "often"}},},
}
"""
PLACES = {
    "git.comand": (4, 32),
    "git.timeout": (4, 47),
    "web.url": (5, 13),
    "web.headers.X": (6, 7),
    "web.headers.Y": (7, 7),
    "local.command": (8, 15),
    "local.args[1]": (8, 53),
    "local.args[2]": (8, 65),
    "server 'local': `cwd`": (8, 5),
    "gone.command": (9, 14),
    "toolset.defered": (11, 15),
    'toolset.limits["*"].rate': (11, 49),
}
"""The mistakes in it, with line and column."""


@pytest.mark.needs("limits")
@pytest.mark.parametrize("text", [JSONC, "\ufeff" + JSONC, JSONC.replace("\n", "\r\n")])
def test_e2_each_mistake_has_its_line_and_column(line: CommandLine, text: str) -> None:
    (line.folder / "mcp.json").write_bytes(text.encode())
    done = line.run("check", "mcp.json", "--json")
    problems = json.loads(done.stdout)["problems"]
    assert [(one["line"], one["column"]) for one in problems] == sorted(PLACES.values())
    for place, (row, column) in PLACES.items():
        found = next(one for one in problems if (one["line"], one["column"]) == (row, column))
        assert found["message"].startswith(f"mcp.json:{row}:{column}: ") and place in found["message"]
        assert found["server"] == ("" if "toolset" in place else re.split(r"[.']", place)[place[0] == "s"])
    shown = line.run("check", "mcp.json")
    told = shown.stdout + shown.stderr
    assert [one["message"] for one in problems if one["message"] not in told] == []
    assert f"{len(PLACES)} errors" in told


def test_e2_a_broken_file_is_json_too(line: CommandLine) -> None:
    line.write("mcp.json", "{")
    done = line.run("check", "mcp.json", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 1 and answer["servers"] == []
    assert "line 1 column 2: not valid JSON" in answer["errors"][0] and answer["errors"][0] in done.stderr


def test_e2_warnings_fail_with_strict_alone(line: CommandLine) -> None:
    file_of(line, {"one": {"command": "no-such-program"}, "two": {**GOOD, "colour": "red"}})
    done = line.run("check", "mcp.json")
    assert done.returncode == 0
    assert "command not found: no-such-program; install it" in done.stdout
    assert "unknown keys are ignored: `colour`" in done.stdout
    assert line.run("check", "mcp.json", "--strict").returncode == 1


def test_e2_the_answer_as_json(line: CommandLine) -> None:
    file_of(line, {"one": {"command": "no-such-program"}, "two": {}})
    done = line.run("check", "mcp.json", "--json")
    answer = json.loads(done.stdout)
    assert [server["state"] for server in answer["servers"]] == ["warning", "misconfigured"]
    assert done.returncode == 1


@pytest.mark.needs("inbound_auth")
def test_e2_an_unset_token_of_a_caller_is_found(line: CommandLine) -> None:
    file_of(line, {"one": GOOD}, toolset={"auth": {"tokens": {"ci": "${NOT_SET}"}}})
    done = line.run("check", "mcp.json")
    assert done.returncode == 1
    assert "toolset.auth.tokens.ci.token: environment variable NOT_SET is not set" in done.stderr


def test_e2_the_schema_that_editors_take(line: CommandLine) -> None:
    schema = json.loads(line.run("check", "--schema").stdout)
    assert jsonschema_rs.is_valid(schema, {"mcpServers": {"one": {"command": "uvx", "deferred": True}}})
    assert not jsonschema_rs.is_valid(schema, {"toolset": {"defered": True}})


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("calc.py",), 1, "calc.py: check reads configuration files; use `mcp-toolset list calc.py`"),
        (("nowhere.json",), 1, "no such file; check the path"),
    ],
)
def test_e2_what_is_no_configuration_is_refused(
    line: CommandLine, words: tuple[str, ...], code: int, says: str
) -> None:
    line.write("calc.py", "")
    done = line.run("check", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr


def test_e2_a_misconfigured_server_is_not_said_to_be_unreachable(line: CommandLine) -> None:
    file_of(line, {"spaced": {**GOOD, "prefix": "a b"}})
    done = line.run("search", "mcp.json", "x")
    assert "prefix 'a b' cannot start a tool's name" in done.stderr
    assert "check that it runs" not in done.stderr
