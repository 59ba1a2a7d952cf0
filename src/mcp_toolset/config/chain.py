"""The chain of configuration files that the bridges above this process serve, so that none serves itself.

A bridge that serves `a.json` gives its child processes the environment variable `MCP_TOOLSET_CHAIN`. It lists
the files from the outermost bridge inward. A bridge refuses to serve a file of that list. A file is
identified by its device and inode numbers, so that symbolic links and other spellings of its path are the
same file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.errors import ConfigError

VARIABLE: Final = "MCP_TOOLSET_CHAIN"
DEPTH: Final = 8
"""The largest number of bridges that may start each other in a row."""


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A configuration file that is being served: its device and inode numbers, and a path for messages."""

    device: int
    number: int
    path: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> ServedFile | None:
        """The file at a path, symbolic links followed; `None` if it does not exist."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return cls(status.st_dev, status.st_ino, os.fspath(path))

    def is_same(self, other: ServedFile) -> bool:
        """True if both are the same file, however its path is written."""
        return (self.device, self.number) == (other.device, other.number)


def above(environ: Mapping[str, str] = os.environ) -> tuple[ServedFile, ...]:
    """The files that the bridges above this process serve, outermost first."""
    try:
        listed: Any = json.loads(environ.get(VARIABLE, "[]"))
        return tuple(ServedFile(int(device), int(number), str(path)) for device, number, path in listed)
    except (ValueError, TypeError):
        # No bridge of ours writes such a value, so it is ignored.
        return ()


def below(path: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variable for the child processes of a bridge that serves a file."""
    own = ServedFile.at(path)
    chain = [*above(environ), *([own] if own else [])]
    if not chain:
        return {}
    return {VARIABLE: json.dumps([(one.device, one.number, one.path) for one in chain])}


def inherited(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variable as this process got it, for child processes of a program that serves no file."""
    return {VARIABLE: environ[VARIABLE]} if VARIABLE in environ else {}


def check_not_served_above(path: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse to serve a file that a bridge above this process serves already."""
    own, chain = ServedFile.at(path), above(environ)
    way = " → ".join([*(one.path for one in chain), str(path)])
    if own is not None and any(one.is_same(own) for one in chain):
        raise ConfigError(
            f"{path}: the bridge that serves this file has started this bridge, which would serve it again "
            f"({way}); remove the server that does so from the last file before it"
        )
    if len(chain) >= DEPTH:
        raise ConfigError(
            f"{path}: {len(chain)} bridges have started each other ({way}); mount the servers directly"
        )
