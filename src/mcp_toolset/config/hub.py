"""From a file to `HubConfig`: which of its sections name servers, and which folder it speaks for.

The servers are the first of `mcpServers`, `servers` (VS Code) and `mcp.servers` (VS Code's settings)
that the file has. A project's own file (`.mcp.json`, `.cursor/mcp.json`, `.vscode/mcp.json`) speaks for
the project's folder, and its servers start there; any other file speaks for the folder that holds it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from mcp_toolset.config.entries import (
    InputEntry,
    ServerEntry,
    ToolsetSection,
    did_you_mean,
    validated,
)
from mcp_toolset.config.jsonc import decode, read_text
from mcp_toolset.config.models import HubConfig, ServerConfig
from mcp_toolset.config.place import Place
from mcp_toolset.config.server import Surroundings, server_config
from mcp_toolset.config.variables import Variables

__all__ = ["load_config", "parse_config"]

_EDITOR_FOLDERS = (".cursor", ".vscode")


def load_config(path: str | os.PathLike[str], *, environ: Mapping[str, str] = os.environ) -> HubConfig:
    """Read a configuration file of any of the clients (P3); comments and trailing commas may stand in it.

    Raises:
        ConfigError: The file is missing, broken, or asks for something impossible.
    """
    source = os.fspath(path)
    try:
        text = read_text(Path(source), source)
    except FileNotFoundError:
        text = None
    if text is None:
        raise Place(source).error("no such file", "check the path")
    return parse_config(decode(text.removeprefix("\ufeff"), source), source=source, environ=environ)


def parse_config(
    data: object, *, source: str | os.PathLike[str], environ: Mapping[str, str] = os.environ
) -> HubConfig:
    """The models of decoded JSON. `source` is the file it came from, or where it would lie.

    Only an `envFile` that an enabled server names is read from disk.

    Raises:
        ConfigError: With file, place, cause and mend in one line, and no values (F42).
    """
    root, path = Place(os.fspath(source)), Path(source).absolute()
    table = _table(data, root)
    section, entries = _server_section(table, root)
    defaults = validated(ToolsetSection, table.get("toolset", {}), root.at("toolset"))
    surroundings = _surroundings(path, defaults, environ, _inputs(table, root))
    servers = (_server(name, entry, section.at(name), surroundings) for name, entry in entries.items())
    lock = None if defaults.lock is None else path.parent / defaults.lock
    return HubConfig(path, defaults.name, tuple(servers), defaults.client_prefix, lock)


def _surroundings(
    path: Path, defaults: ToolsetSection, environ: Mapping[str, str], inputs: Mapping[str, str | None]
) -> Surroundings:
    in_editor_folder = path.parent.name in _EDITOR_FOLDERS
    folder = path.parent.parent if in_editor_folder else path.parent
    is_projects = in_editor_folder or path.name == ".mcp.json"
    return Surroundings(defaults, Variables(environ, folder, inputs), str(folder) if is_projects else None)


def _server(name: str, data: object, place: Place, surroundings: Surroundings) -> ServerConfig:
    entry = validated(ServerEntry, data, place)
    return server_config(name, entry, list(_table(data, place)), place, surroundings)


def _table(data: object, place: Place) -> dict[str, object]:
    if not isinstance(data, dict):
        raise place.error("must be an object", "write it as { … }")
    return cast("dict[str, object]", data)


def _server_section(table: dict[str, object], root: Place) -> tuple[Place, dict[str, object]]:
    settings = table.get("mcp")
    nested = cast("dict[str, object]", settings) if isinstance(settings, dict) else {}
    for holder, steps in ((table, ("mcpServers",)), (table, ("servers",)), (nested, ("mcp", "servers"))):
        if steps[-1] in holder:
            place = root.at(*steps)
            return place, _named(_table(holder[steps[-1]], place), place)
    guesses = (did_you_mean(key, ("mcpServers", "servers")) for key in table)
    raise root.error("names no servers", next(filter(None, guesses), 'add `"mcpServers": { … }`'))


def _named(entries: dict[str, object], place: Place) -> dict[str, object]:
    blank = next((name for name in entries if not name.strip()), None)
    if blank is not None:
        raise place.at(blank).error("a server needs a name", "write one as its key")
    return entries


def _inputs(table: dict[str, object], root: Place) -> dict[str, str | None]:
    place = root.at("inputs")
    listed = table.get("inputs")
    if listed is None:
        return {}
    if not isinstance(listed, list):
        raise place.error("must be a list", "write it as [ … ]")
    items = cast("list[object]", listed)
    entries = [validated(InputEntry, item, place.at(index)) for index, item in enumerate(items)]
    return {entry.id: entry.default for entry in entries}
