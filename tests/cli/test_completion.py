"""What a shell completes: commands, files, and names of servers, tools and clients; nothing is started."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.cli.commandline import CommandLine, environment, line

__all__ = ["line"]

CONFIG = """// a comment
{"mcpServers": {
  "git": {"command": "no-such-program", "env": {"TOKEN": "${keyring:git}"}},
  "My Server": {"url": "https://host/mcp"},
  "a$(touch pwned)b": {"url": "https://host/mcp"},
  "github": {"url": "https://host/mcp", "disabled": true},
}}
"""

WORDS = {
    "lis": ["list"],
    "secret r": ["remove"],
    "list --prom": ["--prompts"],
    "install cu": ["cursor"],
    "uninstall l": ["lmstudio"],
    "install cursor --scope=": ["--scope=project", "--scope=user"],
    "list m": ["mcp.json"],
    "list ": ["calc.py", "folder/", "kit.py", "mcp.json"],
    "list f": ["folder/"],
    "list folder/": ["folder/my conf.json"],
    "check ": ["folder/", "mcp.json"],
    "call add -- f": ["folder/"],
    "call add -- ": ["calc.py", "folder/", "kit.py", "mcp.json", "notes.txt"],
    "call kit.py ec": ["echo"],
    "explain kit.py ec": ["echo"],
    "call calc.py ": ["add"],
    "enable mcp.json g": ["git", "github"],
    "disable mcp.json git My": ["My Server"],
    "search mcp.json --server g": ["git", "github"],
    "search mcp.json --server=g": ["--server=git", "--server=github"],
    "pin mcp.json gi": ["git", "github"],
    "login gi": ["github"],
    "logout --config mcp.json gi": ["github"],
    "login --config=m": ["--config=mcp.json"],
    "logs --server gi": ["git", "github"],
    "logs m": ["mcp.json"],
    "audit show n": ["notes.txt"],
    "journal set": ["settle"],
    "uninstall cursor w": ["work"],
}
NOTHING = [
    "nonsense ",
    "list nowhere/",
    "call nowhere.json ",
    "call mcp.json ",
    "call broken.py ",
    "enable broken.json ",
    "enable folder ",
    "enable pipe ",
    "call https://host/mcp ",
    "list mcp.json more --timeout ",
]


@pytest.fixture
def place(line: CommandLine) -> CommandLine:
    line.write("mcp.json", CONFIG)
    line.write("notes.txt", "")
    (line.folder / "folder").mkdir()
    line.write("folder/my conf.json", "{}")
    (line.folder / ".cursor").mkdir()
    entry = {"command": "/usr/bin/mcp-toolset", "args": ["serve", "mcp.json"]}
    line.write(".cursor/mcp.json", json.dumps({"mcpServers": {"work": entry, "other": {"command": "x"}}}))
    return line


def completed(place: CommandLine, typed: str, shell: str = "fish", **env: str) -> list[str]:
    said = {"_MCP_TOOLSET_COMPLETE": f"{shell}_complete", "COMP_LINE": f"mcp-toolset {typed}", **env}
    done = place.here(env=said)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def values(place: CommandLine, typed: str, shell: str = "fish", **env: str) -> list[str]:
    return [each.partition("\t")[0] for each in completed(place, typed, shell, **env)]


@pytest.mark.needs("audit", "journal", "upstream_access")
@pytest.mark.parametrize("typed", WORDS)
def test_u61_a_shell_completes_names(place: CommandLine, typed: str):
    assert values(place, typed) == WORDS[typed]


@pytest.mark.parametrize("typed", NOTHING)
def test_u61_what_cannot_be_completed_is_no_error(place: CommandLine, typed: str):
    place.write("broken.json", '{"mcpServers": ')
    place.write("broken.py", "def broken(:")
    subprocess.run(["mkfifo", place.folder / "pipe"], check=True)
    assert completed(place, typed) == []


def test_u61_the_tools_that_a_command_has_found_are_completed(place: CommandLine, tmp_path: Path):
    config = {"mcpServers": {"kit": place.entry("serve", "kit.py")}}
    place.write("kit.json", json.dumps(config))
    kept = {"MCP_TOOLSET_CACHE": str(tmp_path / "cache")}
    assert completed(place, "call kit.json ", **kept) == []
    assert place.run("list", "kit.json", env=kept).returncode == 0
    assert completed(place, "call kit.json kit_e", **kept) == ["kit_echo\tSay the text again."]
    assert values(place, f"call {place.folder}/kit.json kit_e", **kept) == ["kit_echo"]
    assert values(place, "disable kit.json kit/e", **kept) == ["kit/echo"]
    assert completed(place, "call kit.json kit_e") == [], "nothing is kept with MCP_TOOLSET_CACHE=off"


@pytest.mark.needs("upstream_access")
@pytest.mark.parametrize(
    ("shell", "typed", "shown"),
    [
        ("bash", "enable mcp.json M", [r"My\ Server"]),
        ("bash", 'enable mcp.json "M', ["My Server"]),
        ("bash", "enable mcp.json a", [r"a\$\(touch\ pwned\)b"]),
        ("bash", 'enable mcp.json "a', []),
        ("bash", "search mcp.json --server=gith", ["github"]),
        ("bash", "login --config=m", ["mcp.json"]),
        ("bash", "list folder/m", [r"folder/my\ conf.json"]),
        ("bash", r"list folder/my\ c", [r"folder/my\ conf.json"]),
        ("bash", "list ~/f", ["~/folder/"]),
        ("zsh", "enable mcp.json M", [r"My\ Server"]),
        ("zsh", "enable mcp.json 'M", ["My Server"]),
        ("zsh", "search mcp.json --server=gith", ["--server=github"]),
        ("zsh", "list ~/f", ["~/folder/"]),
        ("zsh", "lis", ["list"]),
    ],
)
def test_u61_a_value_is_quoted_for_its_shell(place: CommandLine, shell: str, typed: str, shown: list[str]):
    assert values(place, typed, shell) == shown


def test_u61_nothing_is_started_and_little_is_imported(place: CommandLine):
    program = (
        "import sys; from mcp_toolset.cli.main import main\n"
        "try: main([])\nexcept SystemExit: pass\n"
        "print({'asyncio', 'anyio', 'pydantic', 'subprocess', 'mcp'} & set(sys.modules), file=sys.stderr)"
    )
    env = {"_MCP_TOOLSET_COMPLETE": "bash_complete", "COMP_LINE": "mcp-toolset enable mcp.json git"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=place.folder,
        env=environment(place.folder, env),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr.strip()) == (["git", "github"], "set()")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_u61_each_shell_gets_its_script(line: CommandLine, shell: str):
    done = line.here(env={"_MCP_TOOLSET_COMPLETE": f"{shell}_source"})
    assert f"_MCP_TOOLSET_COMPLETE={shell}_complete" in done.stdout.replace(" fish", "=fish")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_u61_bash_takes_the_completions(place: CommandLine):
    source = place.here(env={"_MCP_TOOLSET_COMPLETE": "bash_source"}).stdout
    program = place.write("mcp-toolset", f'#!/bin/sh\nexec {sys.executable} -m mcp_toolset "$@"\n')
    program.chmod(0o755)
    asked: Mapping[str, str] = {
        "enable mcp.json a": r"a\$\(touch\ pwned\)b|",
        "enable mcp.json gi": "git|github|",
    }
    lines = [source]
    for typed in asked:
        words = f"./mcp-toolset {typed}"
        lines.append(
            f"COMP_LINE='{words} more'; COMP_POINT={len(words)}; _mcp_toolset_completion ./mcp-toolset"
        )
        lines.append("printf '%s|' \"${COMPREPLY[@]}\"; echo")
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)],
        cwd=place.folder,
        env=environment(place.folder),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [*asked.values()], done.stderr
    assert not (place.folder / "pwned").exists()
