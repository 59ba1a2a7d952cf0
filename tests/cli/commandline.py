"""The real command, in this process or in one of its own, with a home that is nobody's."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.in_process import run_here
from tests.support.warm import Warm

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

    def __init__(self, folder: Path, warm: Warm) -> None:
        self.folder = folder
        self._warm = warm

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(
        self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this process, which is cheap; `serve` has one of its own, a fork."""
        if arguments[:1] == ("serve",):
            return self._done(self.command(*arguments), stdin, env)
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
        return self._done(command(*arguments), stdin, env)

    def forked(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """As `process`, with a `command` that starts at once."""
        return self._done(self.command(*arguments), None, env)

    def _done(
        self, command: Sequence[str], stdin: str | None, env: Mapping[str, str] | None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
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

    def command(self, *arguments: str) -> list[str]:
        """The line of a command that starts at once, as neither its start nor a signal is what is tested."""
        return self._warm.command("-m", "mcp_toolset", *arguments)

    def script(self, file: Path) -> list[str]:
        """The line of a script that starts at once."""
        return self._warm.command(str(file))

    def entry(self, *arguments: str) -> dict[str, Any]:
        """Such a command as a mounted server of a configuration."""
        program, *rest = self.command(*arguments)
        return {"command": program, "args": rest}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return self._started(command(*arguments))

    def fork(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """As `start`, with a `command` that starts at once."""
        return self._started(self.command(*arguments), env)

    def _started(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment(self.folder, env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def line(tmp_path: Path, warm: Warm) -> CommandLine:
    """A folder with the shortest program and a small kit of tools in it."""
    line = CommandLine(tmp_path, warm)
    line.write("calc.py", CALC)
    line.write("kit.py", KIT)
    return line


def answer(line: CommandLine, *arguments: str, code: int = 0, stdin: str | None = None) -> Any:
    done = line.run(*arguments, "--json", stdin=stdin)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)
