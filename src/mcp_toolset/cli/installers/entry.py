"""What `install` writes for a target: the program, its arguments and variables, fit for the file they go to.

A user's own file gets absolute paths: clients start servers in a folder and with a PATH of their own. A
project's file is made for version control, so nothing in it may be of one machine: files are written from the
project's folder, and the program by its name. How a client names that folder:

| client | written | where it is documented |
|---|---|---|
| VS Code | `${workspaceFolder}` | https://code.visualstudio.com/docs/copilot/reference/mcp-configuration |
| Cursor | `${workspaceFolder}` | https://cursor.com/docs/context/mcp#config-interpolation |
| Claude Code | `${CLAUDE_PROJECT_DIR:-.}` | https://code.claude.com/docs/en/mcp (`${VAR:-default}`) |
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp_toolset.cli.installers.clients import Machine
from mcp_toolset.errors import ConfigError, TargetError

__all__ = ["Writing", "launcher"]


@dataclass(frozen=True, slots=True)
class Writing:
    """How paths are written in one file: absolute, or from the project's folder.

    Attributes:
        folder: What relative paths on the command line are relative to.
        project: The project whose file it is; `None` for a user's own file.
        workspace: How that file names the project's folder.
    """

    folder: Path
    project: Path | None = None
    workspace: str = ""

    def path(self, word: str | Path) -> str:
        """A file or folder as it is written there."""
        found = os.path.abspath(self.folder / word)
        if self.project is None:
            return found
        try:
            inside = os.path.relpath(found, os.path.abspath(self.project))
        except ValueError:
            raise ConfigError(
                f"{found}: on another drive than the project, so that a project file cannot name it; use "
                "--scope user"
            ) from None
        return self.workspace if inside == "." else f"{self.workspace}/{inside.replace(os.sep, '/')}"

    def options(self, options: Sequence[str | Path]) -> list[str]:
        """Options of `serve`; the files among them are paths."""
        return [self.path(each) if isinstance(each, Path) else each for each in options]

    def target(self, arguments: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """TARGET and what follows it, and the variables that they need.

        Of a command after `--`, the program and the arguments that are paths here are written as paths. A
        `module:attribute` that is found in the folder gets it as `PYTHONPATH`.

        Raises:
            TargetError: No target, or a file that does not exist.
        """
        if not arguments or tuple(arguments) == ("--",):
            raise TargetError(
                "no target to install; name a file, module:attribute, URL, or a command after --"
            )
        first, *rest = arguments
        if first == "--":
            return ("--", *self._command(rest)), {}
        file, attribute = _file_and_attribute(first)
        if (self.folder / file).exists():
            return (self.path(file) + attribute, *rest), {}
        if file.endswith((".json", ".jsonc", ".py")) and "://" not in first:
            raise TargetError(f"{self.folder / file}: no such file; check the target's path")
        return tuple(arguments), self._python_path(first)

    def _command(self, command: Sequence[str]) -> list[str]:
        # A bare program is looked up on PATH, whatever lies here under that name; an argument may be a file.
        program, *arguments = command
        paths = {word for word in command if word in (".", "..") or "/" in word or os.sep in word}
        paths |= {word for word in arguments if (self.folder / word).is_file() and word != program}
        return [
            self.path(word)
            if word in paths and (self.folder / word).exists() and not self._is_system(word)
            else word
            for word in command
        ]

    def _is_system(self, word: str) -> bool:
        """Whether a word was written as an absolute path outside the project, which stays what it is."""
        return (
            self.project is not None
            and Path(word).is_absolute()
            and not Path(word).is_relative_to(os.path.abspath(self.project))
        )

    def _python_path(self, target: str) -> dict[str, str]:
        module = re.match(r"([A-Za-z_]\w*)[\w.]*:[A-Za-z_]", target)
        if module is None:
            return {}
        here = (self.folder / module[1]).is_dir() or (self.folder / f"{module[1]}.py").is_file()
        return {"PYTHONPATH": self.path(self.folder)} if here else {}


def launcher(machine: Machine, *, portable: bool = False, python: str = sys.executable) -> tuple[str, ...]:
    """The command of this very installation, absolute; or, portable, a name that every machine may have."""
    script = "mcp-toolset.exe" if machine.platform == "win32" else "mcp-toolset"
    path = machine.environ.get("PATH", "")
    if portable:
        by_name = shutil.which(script, path=path) or not shutil.which("uvx", path=path)
        return ("mcp-toolset",) if by_name else ("uvx", "mcp-toolset")
    beside = Path(python).parent / script
    if beside.is_file():
        return (os.path.abspath(beside),)
    found = shutil.which(script, path=path)
    return (os.path.abspath(found),) if found else (python, "-m", "mcp_toolset.cli.main")


def _file_and_attribute(target: str) -> tuple[str, str]:
    file, colon, attribute = target.rpartition(":")
    return (file, colon + attribute) if file.endswith(".py") else (target, "")
