"""`mcp-toolset secret`: what is typed is kept and never shown, and a configuration can use it at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine, command, environment, line
from tests.cli.pseudo import CTRL_C, terminal

__all__ = ["line"]

SECRET = "tok3nTok3n"
FOLDER = ".local/share/mcp-toolset/credentials"
SAY = """
import os
from mcp_toolset import serve, tool

@tool
def length() -> int:
    \"\"\"How long the secret is.\"\"\"
    return len(os.environ["A"])

serve(length)
"""


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "MCP_TOOLSET_CREDENTIALS", "MCP_TOOLSET_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_i7_a_secret_of_standard_input_is_kept_listed_used_and_removed(line: CommandLine) -> None:
    done = line.run("secret", "set", "api/key", stdin=f"{SECRET}\n")
    folder = line.folder / FOLDER
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"api/key is kept in an encrypted file in {folder}; refer to it as ${{keyring:api/key}}",
        f"its key is in the file {folder / 'key'}, which protects backups without that file, "
        "and nothing else",
    ]
    listed = line.run("secret", "list", "--json")
    assert json.loads(listed.stdout) == [{"name": "api/key", "kept_in": f"an encrypted file in {folder}"}]
    line.write("say.py", SAY)
    entry = {"command": sys.executable, "args": ["say.py"], "env": {"A": "${keyring:api/key}"}}
    line.write("mcp.json", json.dumps({"mcpServers": {"up": entry}}))
    used = line.run("call", "mcp.json", "up_length")
    assert used.stdout.strip() == str(len(SECRET)), used.stderr
    assert line.run("secret", "remove", "api/key").stdout == "api/key is removed\n"
    assert line.run("secret", "list").stdout.startswith("no secret is kept; keep one with")
    lost = line.run("list", "mcp.json")
    assert lost.returncode == 1
    assert "no secret 'api/key' is kept; run `mcp-toolset secret set api/key`" in lost.stderr
    said = "".join(one.stdout + one.stderr for one in (done, listed, used, lost))
    assert SECRET not in said


def test_i7_a_secret_of_several_lines_is_kept_as_it_is(line: CommandLine) -> None:
    assert line.run("secret", "set", "pem", "--stdin", stdin="one\ntwo\n\n").returncode == 0
    line.write("say.py", SAY)
    entry = {"command": sys.executable, "args": ["say.py"], "env": {"A": "${keyring:pem}"}}
    line.write("mcp.json", json.dumps({"mcpServers": {"up": entry}}))
    assert line.run("call", "mcp.json", "up_length").stdout.strip() == str(len("one\ntwo\n"))


@pytest.mark.parametrize("words", [[SECRET], [f"--value={SECRET}"], ["--", SECRET]])
def test_i7_a_secret_in_the_command_line_is_refused_and_not_repeated(
    line: CommandLine, words: list[str]
) -> None:
    done = line.run("secret", "set", "github", *words, stdin="x")
    assert done.returncode == 2 and SECRET not in done.stderr + done.stdout
    assert "a secret is no argument, as other users can read command lines" in done.stderr
    assert not (line.folder / FOLDER).exists()


@pytest.mark.parametrize(
    ("words", "stdin", "code", "says"),
    [
        (["set", "a b"], "x", 2, "'a b' is no name of a secret; use letters, digits and _"),
        (["set"], "x", 2, "NAME is missing"),
        (["set", "a"], "", 1, "there is nothing on standard input; write the secret there"),
        (["set", "a"], "\n", 1, "there is nothing on standard input"),
        (["set", "a"], "x" * 70_000, 1, "there is more than 65536 bytes on standard input"),
        (["remove", "none"], "", 1, "no secret 'none' is kept; see `mcp-toolset secret list`"),
        (["remove", "githb"], "", 1, "no secret 'githb' is kept; did you mean github?"),
        (["sett", "a"], "", 2, "no such command 'sett'; did you mean set?"),
    ],
)
def test_i7_a_mistake_is_one_line(
    line: CommandLine, words: list[str], stdin: str, code: int, says: str
) -> None:
    assert line.run("secret", "set", "github", stdin="x").returncode == 0
    done = line.run("secret", *words, stdin=stdin)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["secret", "set", "a"], "there is nothing on standard input"),
        (["call", "say.py", "length", "-"], "stdin"),
    ],
)
def test_i7_a_closed_standard_input_is_an_empty_one(line: CommandLine, words: list[str], says: str) -> None:
    line.write("say.py", SAY)
    shell = ["sh", "-c", 'exec "$@" <&-', "sh", *command(*words)]
    done = subprocess.run(
        shell, cwd=line.folder, env=environment(line.folder), capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (1, 2) and done.stdout == ""
    assert says in done.stderr and "unexpected" not in done.stderr and done.stderr.count("\n") == 1


def test_i7_a_folder_that_cannot_be_used_is_one_line(line: CommandLine) -> None:
    line.write("file", "")
    done = line.run("secret", "set", "a", stdin="x", env={"MCP_TOOLSET_CREDENTIALS": "file/below"})
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "secrets cannot be kept in file/below (Not a directory); mend that, or name" in done.stderr


def test_i7_on_a_terminal_the_secret_is_asked_for_and_not_shown(line: CommandLine) -> None:
    with terminal(command("secret", "set", "github"), line.folder, columns=60) as screen:
        screen.shows("Secret github: ")
        screen.type(f"{SECRET}\n")
        assert screen.end() == 0, screen.screen
    shown = screen.screen
    assert SECRET not in shown and "github is kept in an encrypted file" in shown
    for said in shown.splitlines():
        assert len(said) <= 60 or " " not in said
    assert "github  an encrypted file in" in line.run("secret", "list").stdout


def test_i7_an_interrupt_at_the_question_keeps_nothing(line: CommandLine) -> None:
    with terminal(command("secret", "set", "github"), line.folder) as screen:
        screen.shows("Secret github: ")
        screen.type(CTRL_C)
        assert screen.end() == 130, screen.screen
        assert screen.intact()
    assert not list(Path(line.folder, FOLDER).glob("*.secret"))


def test_i7_a_header_of_the_command_line_may_refer_to_a_secret(line: CommandLine) -> None:
    path = line.write("key", "s3cretS3cret\n")
    path.chmod(0o644)
    done = line.run("list", "http://127.0.0.1:9/mcp", "--header", "X: ${file:key}", "-vv")
    assert done.returncode == 1 and "s3cret" not in done.stderr
    assert f"{path}: every user can read it, and it holds a secret; chmod 600 it" in done.stderr
    lost = line.run("list", "http://127.0.0.1:9/mcp", "--header", "X: ${keyring:none}")
    assert lost.returncode == 1 and lost.stderr == (
        "mcp-toolset: --header X: no secret 'none' is kept; run `mcp-toolset secret set none`\n"
    )


def test_i7_a_dry_run_says_whether_a_secret_would_be_replaced_and_asks_for_none(line: CommandLine) -> None:
    assert line.run("secret", "set", "a", "--dry-run").stdout == "a would be kept; it is not there yet\n"
    assert line.run("secret", "list", "--json").stdout == "[]\n"
    line.run("secret", "set", "a", stdin=SECRET)
    assert "a would be replaced in an encrypted file" in line.run("secret", "set", "a", "--dry-run").stdout
