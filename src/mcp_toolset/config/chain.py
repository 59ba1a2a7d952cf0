"""Which configuration files are being served above this process, so that none serves itself.

A bridge that serves `a.json` gives its children the environment variable `MCP_TOOLSET_CHAIN`. It names the
files from the outermost bridge inward. A bridge below that is to serve one of them again refuses. A file is
known by its device and number, so that links and other spellings of its path are the same file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mcp_toolset.errors import ConfigError

__all__ = ["DEPTH", "VARIABLE", "ServedFile", "above", "below", "check_not_served_above", "inherited"]

VARIABLE: Final = "MCP_TOOLSET_CHAIN"
DEPTH: Final = 8
"""Bridges that may start each other in a row."""


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A configuration file that is served: its device and number, and the path to name it by."""

    device: int
    number: int
    path: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> ServedFile | None:
        """The file at a path, links followed; `None` if there is none."""
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        return cls(found.st_dev, found.st_ino, os.fspath(path))

    def is_same(self, other: ServedFile) -> bool:
        """Whether both are one file, however its path is written."""
        return (self.device, self.number) == (other.device, other.number)


def above(environ: Mapping[str, str] = os.environ) -> tuple[ServedFile, ...]:
    """The files that are served by the bridges which started this process, outermost first."""
    try:
        listed: Any = json.loads(environ.get(VARIABLE, "[]"))
        return tuple(ServedFile(int(device), int(number), str(path)) for device, number, path in listed)
    except (ValueError, TypeError):
        # Whoever wrote that, it was none of our bridges.
        return ()


def below(path: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variable for the children of a bridge that serves a file."""
    own = ServedFile.at(path)
    chain = [*above(environ), *([own] if own else [])]
    if not chain:
        return {}
    return {VARIABLE: json.dumps([(one.device, one.number, one.path) for one in chain])}


def inherited(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variable as it came to this process, for children of a program that serves no file."""
    return {VARIABLE: environ[VARIABLE]} if VARIABLE in environ else {}


def check_not_served_above(path: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse to serve a file that a bridge above serves already.

    Raises:
        ConfigError: it does, or more bridges than `DEPTH` have started each other.
    """
    own, chain = ServedFile.at(path), above(environ)
    way = " → ".join([*(one.path for one in chain), str(path)])
    if own is not None and any(one.is_same(own) for one in chain):
        raise ConfigError(
            f"{path}: the bridge that serves this file has started this bridge, which is to serve it again "
            f"({way}); remove the server that does so from the last file before it"
        )
    if len(chain) >= DEPTH:
        raise ConfigError(
            f"{path}: {len(chain)} bridges have started each other ({way}); mount the servers directly"
        )
