"""`mcp-toolset check`: what is wrong in a configuration file, without starting a server."""

from __future__ import annotations

import json
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
        ((), 2, "FILE is missing; name a configuration file such as mcp.json"),
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
