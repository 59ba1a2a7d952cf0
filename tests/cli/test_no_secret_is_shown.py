"""No secret of a configuration is in any output, status, error or log of any verb, at any level."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.cli.commandline import CommandLine, line

from mcp_toolset.cli.main import cli
from mcp_toolset.errors import ToolsetError, innermost

__all__ = ["line"]

ECHO = """
import os, sys
for word in (*sys.argv, *os.environ.values(), os.getcwd(), repr(dict(os.environ)), repr(sys.argv)):
    print(f"cannot log in with {word!r}, {word}", file=sys.stderr)
sys.exit(1)
"""
LONG = st.from_regex(r"[A-Za-z0-9_+=-]{3}[QXZ][0-9]{4}[A-Za-z0-9_-]{0,12}", fullmatch=True)
SHORT = st.from_regex(r"[QXZJ]{2}[0-9]{2,4}", fullmatch=True)
SECRET = LONG | SHORT
VERBS = [["list"], ["list", "--json"], ["inspect"], ["inspect", "--json"], ["-vv"], ["search"], ["call"]]


@st.composite
def entries(draw: st.DrawFn) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """Secrets, the environment, and servers that have them in every place where one can be."""
    secrets = draw(st.lists(SECRET, min_size=10, max_size=10, unique=True))
    env, header, user, password, path, query, argument, option, folder, variable = secrets
    environ = {"U19_ARGUMENT": argument, "U19_FOLDER": folder, "U19_HEADER": header}
    servers = {
        "child": {
            "command": sys.executable,
            "args": ["echo.py", "${U19_ARGUMENT}", "--api-key", option, f"--db=https://me:{password}@h/x"],
            "env": {"A": env, "B": f"${{U19_HEADER}}/{variable}"},
        },
        "web": {
            "url": f"http://{user}:{password}@127.0.0.1:9/s/x{path}/mcp?key={query}",
            "headers": {"Authorization": "Bearer ${U19_HEADER}", "X": env},
        },
        "lost": {"command": "${U19_FOLDER}/bin/none", "args": [variable]},
        "folder": {"command": "x", "cwd": "/none/${U19_FOLDER}"},
        "file": {"command": "x", "envFile": "/none/${U19_FOLDER}.env"},
        "wrong": {"command": "x", "env": {"A": [env]}, "args": option},
        "mistyped": {"comand": env, "headers": {"X": query}},
        "web address": {"url": f"ftp://{user}:{password}@h/{path}?{query}"},
    }
    return [*secrets, f"x{path}"], environ, servers


@contextmanager
def surroundings(folder: str, environ: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in environ.items():
            patch.setenv(name, value)
        yield


def arguments(verb: list[str]) -> list[str]:
    match verb[0]:
        case "-vv":
            return ["list", "mcp.json", "-vv"]
        case "search":
            return ["search", "mcp.json", "anything"]
        case "call":
            return ["call", "mcp.json", "child_tool"]
        case _:
            return [verb[0], "mcp.json", *verb[1:]]


def run(words: list[str]) -> str:
    """Run a command line in this process; the error that it ends with."""
    try:
        cli.main([*words, "--timeout", "20"], prog_name="mcp-toolset", standalone_mode=False)
    except (ToolsetError, ExceptionGroup) as fault:
        return str(innermost(fault, ToolsetError))
    return ""


def glued(secret: str, text: str) -> bool:
    """Whether a short secret is only found inside of other words, where the rule lets it stand."""
    return len(secret) < 8 and not re.search(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", text)


@settings(
    max_examples=5,
    deadline=None,
    # Each example starts processes; what it has found stands in the assertion.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(drawn=entries(), verb=st.sampled_from(VERBS))
def test_u19_no_verb_shows_a_secret_of_a_configuration(
    drawn: tuple[list[str], dict[str, str], dict[str, Any]],
    verb: list[str],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secrets, environ, servers = drawn
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    with tempfile.TemporaryDirectory() as folder, surroundings(folder, environ):
        Path("echo.py").write_text(ECHO)
        Path("mcp.json").write_text(json.dumps({"mcpServers": servers}))
        fault = run(arguments(verb))
        said = "\n".join((*capfd.readouterr(), caplog.text, fault))
    assert "cannot log in" in said or "misconfigured" in said or fault
    assert [secret for secret in secrets if secret in said and not glued(secret, said)] == []


@pytest.mark.parametrize("verb", ["list", "inspect", "pin"])
def test_u19_the_address_on_the_command_line_is_not_shown_whole(line: CommandLine, verb: str) -> None:
    secrets = ("tok3nTok3n", "passw0rd", "qu3ryval")
    url = f"http://me:{secrets[1]}@127.0.0.1:9/s/{secrets[0]}/mcp?k={secrets[2]}"
    done = line.run(verb, url, *([] if verb == "pin" else ["-vv"]))
    assert done.returncode == 1
    assert "http://127.0.0.1:9/…" in done.stderr
    said = done.stdout + done.stderr + "".join(path.read_text() for path in line.folder.glob("*.lock.json"))
    assert not [secret for secret in secrets if secret in said]


def test_u19_a_dry_run_of_install_conceals_what_may_be_secret(line: CommandLine) -> None:
    words = [
        "install",
        "cursor",
        "--dry-run",
        "--env",
        "A=tok3nTok3n",
        "https://h.example/s/S3gmentS3/x?k=qu3ry",
    ]
    done = line.run(*words)
    assert done.returncode == 0 and "https://h.example/s/" in done.stdout
    assert not [secret for secret in ("tok3nTok3n", "S3gmentS3", "qu3ry") if secret in done.stdout]
    assert not os.path.exists(line.folder / ".cursor")


TELLTALE = """
import os
from mcp_toolset import serve, tool
SECRET = os.environ["A"]

@tool(name="talk", description=f"Talk to the account {SECRET}.")
def talk() -> str:
    raise ValueError(f"no account {SECRET}")

serve(talk, name="telltale")
"""


def test_u19_what_a_server_tells_of_its_secret_is_not_shown_by_the_verbs(line: CommandLine) -> None:
    line.write("telltale.py", TELLTALE)
    entry = {"command": sys.executable, "args": ["telltale.py"], "env": {"A": "tok3nTok3n"}}
    line.write("mcp.json", json.dumps({"mcpServers": {"up": entry}}))
    verbs = ["list", "list --json", "inspect --json", "search account", "call up_talk"]
    for words in map(str.split, verbs):
        done = line.run(words[0], "mcp.json", *words[1:])
        assert "up_talk" in done.stdout or words[0] == "call", done.stderr
        assert "tok3nTok3n" not in done.stdout + done.stderr
    assert "Talk to the account ***." in line.run("list", "mcp.json").stdout
