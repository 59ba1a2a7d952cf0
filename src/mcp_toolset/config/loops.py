"""`check_no_loop`: refuse a server whose command leads back to the file that configures it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mcp_toolset.config.chain import DEPTH, ServedFile
from mcp_toolset.config.hub import load_config
from mcp_toolset.config.models import ServerConfig
from mcp_toolset.errors import ConfigError

_PROGRAM: Final = re.compile(
    r"(?i)(?:^|.*[/\\])mcp[-_]toolset(?:\.exe|\.cmd|\.bat)?(?:\[[^\]]*\])?(?:[@=<>~!].*)?"
)
_MODULE: Final = re.compile(r"mcp_toolset(?:\.[\w.]+)?|.*[/\\]mcp_toolset[/\\](?:__main__|cli[/\\]main)\.py")


def check_no_loop(server: ServerConfig, path: Path) -> None:
    """Raise `ConfigError` for a server that would serve the file that configures it."""
    if server.command is None:
        return
    files = files_back((server.command, *server.args), server.cwd, path)
    if files:
        shown = " → ".join([str(path), *files])
        raise ConfigError(
            f"{path}: server {server.name!r} serves the file that contains it ({shown}), and "
            "each level would start the next; remove it, or have it serve another file"
        )


def files_back(command: Sequence[str], cwd: str | None, path: Path) -> list[str]:
    """The files that a command leads to, up to `path`, which is the last; empty if it does not lead there."""
    home = ServedFile.at(path)
    return [] if home is None else _files_back(command, Path(cwd or "."), home, [])


def served_files(command: Sequence[str], folder: Path) -> Iterator[Path]:
    """The files that a command line makes mcp-toolset serve, as far as its words show."""
    words: list[str] = []
    for word in command:
        words += _split(word) if re.search(r"\s", word) else [word]
    for number, word in enumerate(words, 1):
        rest = words[number:]
        if (_PROGRAM.fullmatch(word) or _MODULE.fullmatch(word)) and "serve" in rest:
            for target in rest[rest.index("serve") + 1 :]:
                if (folder / target).is_file():
                    yield folder / target


def _split(word: str) -> list[str]:
    """The words of a shell's command line; a word with a space in it is also kept whole."""
    try:
        return [word, *shlex.split(word)]
    except ValueError:
        return [word]


def _files_back(command: Sequence[str], folder: Path, home: ServedFile, seen: list[ServedFile]) -> list[str]:
    for file in served_files(command, folder):
        served = ServedFile.at(file)
        if served is None or any(served.is_same(other) for other in seen) or len(seen) >= DEPTH:
            continue
        shown = os.path.normpath(file)
        if served.is_same(home):
            return [shown]
        for server in _started_servers(file):
            started = (server.command or "", *server.args)
            files = _files_back(started, Path(server.cwd or "."), home, [*seen, served])
            if files:
                return [shown, *files]
    return []


def _started_servers(file: Path) -> list[ServerConfig]:
    if file.suffix not in (".json", ".jsonc"):
        return []
    try:
        config = load_config(file, lookups="skip")
    except ConfigError:
        # The error of that file is reported by its own bridge.
        return []
    return [server for server in config.servers if server.command and not server.disabled]
