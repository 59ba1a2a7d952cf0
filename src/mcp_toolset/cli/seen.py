"""`seen` and `remember`: the tools that a command has last found in a target, for shells to complete."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.cache_folder import cache_folder
from mcp_toolset.cli.target import Command, ConfigFile, ProgramFile, Target, Url, parse_target
from mcp_toolset.errors import ToolsetError

if TYPE_CHECKING:
    from mcp_toolset.catalog.registry.kept_catalog import KeptFiles
    from mcp_toolset.server.server import ToolsetServer

_FOLDER: Final = "names"
_LONGEST: Final = 80  # characters of what a shell shows beside a name


@dataclass(frozen=True, slots=True)
class SeenTool:
    """One tool by its name on the command line, with its server's own name for it (`tool`)."""

    name: str
    tool: str
    server: str = ""
    about: str = ""


def seen(target: str) -> list[SeenTool]:
    """The tools that a command has last found in the target; none before the first."""
    try:
        place = parse_target(target)
    except ToolsetError:
        return []
    kept = None if (files := _files()) is None else files.load(_key(place))
    return [] if kept is None else [SeenTool(**tool) for tool in kept.tools]


def remember(target: Target, server: ToolsetServer) -> None:
    from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog

    files = None if isinstance(target, Command) else _files()
    if files is None:
        return
    tools = [
        {
            "name": one.name,
            "tool": one.definition.name,
            "server": one.source,
            "about": " ".join((one.definition.description or "").split())[:_LONGEST],
        }
        for one in server.bindings()
    ]
    kept = KeptCatalog(tools)
    if tools and files.load(_key(target)) != kept:
        files.save(_key(target), kept)


def _files() -> KeptFiles | None:
    from mcp_toolset.catalog.registry.kept_catalog import KeptFiles

    folder = cache_folder()
    return None if folder is None else KeptFiles(folder / _FOLDER)


def _key(target: Target) -> str:
    """A digest of the target; relative paths name the same file as absolute ones."""
    match target:
        case ConfigFile(path):
            where = os.path.realpath(path)
        case ProgramFile(path, attribute):
            where = f"{os.path.realpath(path)}:{attribute or ''}"
        case Url(url):
            where = url
        case _:
            where = f"{os.getcwd()} {target}"
    return hashlib.sha256(where.encode()).hexdigest()[:32]
