"""No secret of a configuration is in any output, status, error or log of any verb, at any level."""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.cli.commandline import CommandLine, line
from tests.cli.telling import COMMANDS, TELLS_OF_SERVERS, said_by, shown

from mcp_toolset.security.named_secrets import NamedSecrets
from mcp_toolset.security.vault import Vault

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
KEPT = ("one/two", "long")


@dataclass(frozen=True)
class Drawn:
    secrets: list[str]
    environ: dict[str, str]
    configuration: dict[str, Any]
    kept: dict[str, str]
    file: str


@st.composite
def entries(draw: st.DrawFn) -> Drawn:
    """Secrets, the environment, and servers that have them in every place where one can be."""
    secrets = draw(st.lists(SECRET, min_size=14, max_size=14, unique=True))
    env, header, user, password, path, query, argument, option, folder, variable, *kept, file, inbound = (
        secrets
    )
    key = base64.b64encode(draw(st.binary(min_size=32, max_size=32))).decode()
    environ = {"U19_ARGUMENT": argument, "U19_FOLDER": folder, "U19_HEADER": header}
    environ |= {"MCP_TOOLSET_KEY": key, "MCP_TOOLSET_CREDENTIALS": "kept"}
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
        "kept": {
            "command": sys.executable,
            "args": ["echo.py", "${keyring:one/two}", "-p=${keyring:long}", "${file:file.txt}"],
            "env": {"A": "${file:file.txt}", "B": "Bearer ${keyring:one/two}"},
        },
        "kept web": {
            "url": "http://127.0.0.1:9/${keyring:one/two}/${file:file.txt}",
            "headers": {"X": "a ${keyring:long}", "Y": "${file:file.txt}"},
        },
        "no folder": {"command": "${keyring:long}", "cwd": "/none/${file:file.txt}"},
        "no secret": {"command": "${keyring:long}", "args": ["${file:file.txt}", "${file:kept/none}"]},
        "lost": {"command": "${U19_FOLDER}/bin/none", "args": [variable]},
        "folder": {"command": "x", "cwd": "/none/${U19_FOLDER}"},
        "file": {"command": "x", "envFile": "/none/${U19_FOLDER}.env"},
        "wrong": {"command": "x", "env": {"A": [env]}, "args": option},
        "mistyped": {"comand": env, "headers": {"X": query}},
        "web address": {"url": f"ftp://{user}:{password}@h/{path}?{query}"},
    }
    issuer = {"issuer": "https://idp.example", "audience": "me", "algorithms": ["HS256"], "secret": inbound}
    tokens = {"ci": {"token": inbound}, "me": "${keyring:long}", "you": {"token": "${file:file.txt}"}}
    audit = {"path": "audit.jsonl", "key": f"${{U19_HEADER}}-{inbound}-of-16-characters"}
    section = {"auth": {"tokens": tokens, "jwt": [issuer]}, "audit": audit}
    return Drawn(
        [*secrets, f"x{path}", key],
        environ,
        {"mcpServers": servers, "toolset": section},
        dict(zip(KEPT, kept, strict=True)),
        file,
    )


@contextmanager
def surroundings(folder: str, environ: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in environ.items():
            patch.setenv(name, value)
        yield


@pytest.mark.needs("*")
@settings(
    max_examples=settings().max_examples // 8,
    deadline=None,
    # Each example starts processes; what it has found stands in the assertion.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(drawn=entries(), words=st.sampled_from(COMMANDS))
def test_u19_no_command_shows_a_secret_of_a_configuration(
    drawn: Drawn, words: list[str], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder, surroundings(folder, drawn.environ):
        Path("echo.py").write_text(ECHO)
        Path("file.txt").write_text(f"{drawn.file}\n")
        Path("mcp.json").write_text(json.dumps(drawn.configuration))
        named = NamedSecrets(Vault())
        for name, secret in drawn.kept.items():
            named.set(name, secret)
        said = said_by(words, "mcp.json", caplog, capfd)
        said += "".join(path.read_text() for path in Path().glob("audit.jsonl*"))
    assert "cannot log in" in said or "misconfigured" in said or words[0] not in TELLS_OF_SERVERS
    assert "an encrypted file" in said or words[:2] != ["secret", "list"]
    assert shown(drawn.secrets, said) == []


@pytest.mark.parametrize("verb", ["list", "pin"])
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
    verbs = ["list", "list --json", "list --servers --json", "search account", "call up_talk"]
    for words in map(str.split, verbs):
        done = line.run(words[0], "mcp.json", *words[1:])
        assert "up_talk" in done.stdout or words[0] == "call", done.stderr
        assert "tok3nTok3n" not in done.stdout + done.stderr
    assert "Talk to the account ***." in line.run("list", "mcp.json").stdout
