"""The real command, in this process or in one of its own, with a home that is nobody's."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cli.in_process import run_here

import mcp_toolset

SOURCE = Path(mcp_toolset.__file__).parent.parent

CALC = '''
from mcp_toolset import serve, tool

print("a line that the module prints")

@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("a line that the tool prints")
    return a + b

serve(add)
'''

KIT = '''
import time
from mcp_toolset import ToolContext, tool

@tool(read_only=True)
def sort_names(names: list[str], reverse: bool = False) -> list[str]:
    """Sort names alphabetically."""
    return sorted(names, reverse=reverse)

@tool
def echo(text: str) -> str:
    """Say the text again."""
    return text

@tool
def boom() -> str:
    """Fail."""
    raise ValueError("the pump is dry")

@tool
async def wait(context: ToolContext) -> str:
    """Report, then wait for a long time."""
    import anyio
    await context.progress(1, 2, "half way")
    await anyio.sleep(600)
    return "never"

@tool
def block(seconds: float) -> str:
    """Keep a thread busy."""
    time.sleep(seconds)
    return "done"
'''

PATIENCE = 60
"""Seconds after which a command that has not ended is a failure."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "mcp_toolset", *arguments]


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {
        key: value for key, value in os.environ.items() if key not in ("MCP_TOOLSET_DEBUG", "XDG_CONFIG_HOME")
    }
    return {**kept, "HOME": str(home), "PYTHONPATH": str(SOURCE), "COLUMNS": "120", **(extra or {})}


class CommandLine:
    """Runs `mcp-toolset` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(
        self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this process, which is cheap; `serve` has one of its own."""
        if arguments[:1] == ("serve",):
            return self.process(*arguments, stdin=stdin, env=env)
        return self.here(*arguments, stdin=stdin, env=env)

    def here(
        self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this process, `serve` too, if it is to be refused before it serves."""
        return run_here(arguments, self.folder, environment(self.folder, env), stdin or "")

    def process(
        self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a process of its own."""
        return subprocess.run(
            command(*arguments),
            cwd=self.folder,
            env=environment(self.folder, env),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def serve(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `serve` with a client that says nothing and stays, until the command ends by itself."""
        with self.start("serve", *arguments) as process:
            try:
                code = process.wait(PATIENCE)
            finally:
                process.kill()
            assert process.stdout is not None and process.stderr is not None
            return subprocess.CompletedProcess(
                list(arguments), code, process.stdout.read(), process.stderr.read()
            )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(*arguments),
            cwd=self.folder,
            env=environment(self.folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    """A folder with the shortest program and a small kit of tools in it."""
    line = CommandLine(tmp_path)
    line.write("calc.py", CALC)
    line.write("kit.py", KIT)
    return line


def answer(line: CommandLine, *arguments: str, code: int = 0, stdin: str | None = None) -> Any:
    done = line.run(*arguments, "--json", stdin=stdin)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)
