"""The entry that `install` writes for a target: program, arguments and variables, in the form its file needs.

A user's file gets absolute paths, because clients start servers in another folder and with another PATH. A
project's file is made for version control, so nothing in it may depend on one machine: paths are relative to
the project's folder, and the program is given by its name. How a client names that folder:

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
from pathlib import Path

from mcp_toolset._records import dataclass
from mcp_toolset.cli.installers.clients import Machine
from mcp_toolset.errors import ConfigError, TargetError

__all__ = ["Writing", "launcher"]


@dataclass(frozen=True, slots=True)
class Writing:
    """How paths are written in one file: absolute, or relative to the project's folder.

    Attributes:
        folder: What relative paths on the command line are relative to.
        project: The project whose file it is; `None` for a user's file.
        workspace: How that file names the project's folder.
    """

    folder: Path
    project: Path | None = None
    workspace: str = ""

    def path(self, word: str | Path) -> str:
        """The path of a file or folder as the entry names it."""
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

        Of a command after `--`, the program and the arguments that are paths here are written as paths. If a
        `module:attribute` is found in the folder, the entry sets `PYTHONPATH` to it.
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
        # A bare program name is looked up on PATH even if a file here has that name; an argument may be a
        # file.
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
        """Whether a word is an absolute path outside the project, which stays absolute."""
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
    """The command of this installation: absolute, or, if portable, a name that other machines may have."""
    script = "mcp-toolset.exe" if machine.platform == "win32" else "mcp-toolset"
    path = machine.environ.get("PATH", "")
    if portable:
        return ("mcp-toolset",)
    beside = Path(python).parent / script
    if beside.is_file():
        return (os.path.abspath(beside),)
    found = shutil.which(script, path=path)
    return (os.path.abspath(found),) if found else (python, "-m", "mcp_toolset.cli.main")


def _file_and_attribute(target: str) -> tuple[str, str]:
    file, colon, attribute = target.rpartition(":")
    return (file, colon + attribute) if file.endswith(".py") else (target, "")
