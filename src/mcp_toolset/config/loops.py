"""Find servers of a configuration that would serve the same configuration again, before any is started.

`mcp-toolset serve FILE` is recognised by the program's name, as a module, through `uvx` and shells.
A loop that cannot be seen here, such as a Python program that serves the file, is refused by `chain` when the
program runs.
"""

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
    """Refuse a server that would serve the file that configures it."""
    if server.command is None:
        return
    way = way_back((server.command, *server.args), server.cwd, path)
    if way:
        shown = " → ".join([str(path), *way])
        raise ConfigError(
            f"{path}: server {server.name!r} serves the file that contains it ({shown}), and "
            "each level would start the next; remove it, or have it serve another file"
        )


def way_back(command: Sequence[str], cwd: str | None, path: Path) -> list[str]:
    """The files through which a command leads back to serving `path`, which is last; empty if it does not."""
    home = ServedFile.at(path)
    return [] if home is None else _way(command, Path(cwd or "."), home, [])


def served_files(command: Sequence[str], folder: Path) -> Iterator[Path]:
    """The files that a command line makes mcp-toolset serve, as far as its words show."""
    words = [each for word in command for each in (_split(word) if re.search(r"\s", word) else [word])]
    for at, word in enumerate(words):
        rest = words[at + 1 :]
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


def _way(command: Sequence[str], folder: Path, home: ServedFile, seen: list[ServedFile]) -> list[str]:
    for file in served_files(command, folder):
        one = ServedFile.at(file)
        if one is None or any(one.is_same(other) for other in seen) or len(seen) >= DEPTH:
            continue
        shown = os.path.normpath(file)
        if one.is_same(home):
            return [shown]
        for server in _servers(file):
            way = _way((server.command or "", *server.args), Path(server.cwd or "."), home, [*seen, one])
            if way:
                return [shown, *way]
    return []


def _servers(file: Path) -> list[ServerConfig]:
    if file.suffix not in (".json", ".jsonc"):
        return []
    try:
        config = load_config(file)
    except ConfigError:
        # The error of that file is reported by its own bridge.
        return []
    return [server for server in config.servers if server.command and not server.disabled]
