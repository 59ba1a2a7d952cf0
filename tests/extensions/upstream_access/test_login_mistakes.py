"""`mcp-toolset login` for what has no login."""

from __future__ import annotations

import json

import pytest
from tests.cli.commandline import CommandLine, line

__all__ = ["line"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["login"], "give a SERVER or a URL, or --list"),
        (["login", "up"], "no configuration in this folder names it; give --config FILE, or a URL"),
        (["login", "up", "--config", "mine.json"], "mine.json: no such file"),
        (["login", "hots", "--config", "all.json"], "all.json: no server 'hots'; did you mean `host`?"),
        (["login", "host", "--config", "all.json"], """'host' has no `auth`; add "auth": "oauth" to its"""),
        (["login", "run", "--config", "all.json"], "'run' is a program, which needs no login"),
        (["login", "robot", "--config", "all.json"], "'robot' needs no login: its entry has the credentials"),
        (["login", "bad", "--config", "all.json"], "mcpServers.bad.auth.type: no kind of login of that name"),
        (["login", "ftp://host"], "ftp: no login to such an address; give an https URL"),
        (["logout", "http://127.0.0.1:9/mcp"], "no tokens are kept"),
        (["login", "own", "--config", "all.json", "--as", "alcie"], "no caller 'alcie'; did you mean"),
        (["logout", "own", "--config", "all.json", "--as", "x"], "no caller 'x'; it knows alice; give"),
        (["login", "own", "--config", "all.json", "--as", '["x"]'], "a key is written as"),
        (["login", "own", "--config", "all.json", "--as", '["x", null, null]'], "`auth.tokens` has no 'x'"),
        (
            ["login", "own", "--config", "all.json", "--as", '[null, "https://evil", "x"]'],
            "no tokens of https://evil are accepted; `auth.jwt` has https://idp",
        ),
        (["login", "all", "--config", "all.json", "--as", "alice"], "all callers share the login to 'all'"),
        (["login", "https://host/mcp", "--as", "alice"], "--as alice: callers have logins where"),
        (["login", "--list", "--as", "alice"], "--list shows the logins of all callers; leave out --as"),
    ],
)
def test_i4_i5_what_nobody_can_log_in_to_is_told(line: CommandLine, words: list[str], told: str) -> None:
    robot = {"type": "client_credentials", "client_id": "r", "client_secret": "s", "issuer": "https://i"}
    servers = {
        "host": {"url": "https://host/mcp"},
        "run": {"command": "x"},
        "robot": {"url": "https://robot/mcp", "auth": robot},
        "bad": {"url": "https://bad/mcp", "auth": {"type": "x"}},
        "own": {"url": "http://127.0.0.1:9/mcp", "auth": {"type": "oauth", "per_user": True}},
        "all": {"url": "http://127.0.0.1:9/mcp", "auth": "oauth"},
    }
    auth = {"tokens": {"alice": "${TOKEN}"}, "jwt": {"issuer": "https://idp", "audience": "x"}}
    line.write("all.json", json.dumps({"mcpServers": servers, "toolset": {"auth": auth}}))
    done = line.run(*words)
    assert told in done.stderr + done.stdout and len((done.stderr + done.stdout).splitlines()) == 1
