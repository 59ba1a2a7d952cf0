"""`switched`: the text of a configuration with a server or a tool of it switched on or off.

A server is switched by its key `disabled`, a tool by the list `exclude` of its server. Comments and layout
stay, and a bridge that serves the file follows it.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, cast

from mcp_toolset.cli.installers.jsontext import entries, with_member
from mcp_toolset.config.keys import did_you_mean
from mcp_toolset.errors import ConfigError

__all__ = ["Switched", "switched"]

_SECTIONS: Final = ("mcpServers", "servers")
_EXACT: Final = ("excludeTools", "disabledTools", "disabled_tools")
"""The lists of exact names by which other clients leave tools out."""


class Switched(NamedTuple):
    """The text after the change, and what is so now, for the user."""

    text: str
    now: str


def switched(text: str, name: str, source: str, *, on: bool) -> Switched:
    """Switch a server (`git`) or a tool of one (`git/git_reset`, or a pattern such as `git/delete_*`).

    Raises:
        ConfigError: the file has no such server, or another key of the entry decides.
    """
    section = next((each for each in _SECTIONS if entries(text, each, source)), _SECTIONS[0])
    found = entries(text, section, source)
    server, slash, tool = _parts(name, found)
    if server not in found:
        mend = did_you_mean(server, [*found]) or f"it has {', '.join(found) or 'none'}"
        raise ConfigError(f"{source}: has no server {server!r}; {mend}")
    entry = found[server]
    if not isinstance(entry, dict):
        raise ConfigError(f"{source}: {section}.{server}: must be an object; write it as {{ … }}")
    place = (section, server)
    table = cast("dict[str, Any]", entry)
    if not slash:
        return _server(text, place, table, source, on=on)
    if not tool:
        raise ConfigError(f"{name!r} names no tool; write {server}/TOOL, or {server} for the whole server")
    return _tool(text, place, table, tool, source, on=on)


def _parts(name: str, servers: Mapping[str, object]) -> tuple[str, str, str]:
    """Server, slash and tool; a server's name may contain slashes (`@scope/server`)."""
    known = [one for one in servers if name == one or name.startswith(f"{one}/")]
    if not known:
        return name.partition("/")
    server = max(known, key=len)
    rest = name[len(server) :]
    return server, rest[:1], rest[1:]


def _server(
    text: str, place: tuple[str, str], entry: Mapping[str, Any], source: str, *, on: bool
) -> Switched:
    state = "on" if on else "off"
    if on:
        for key, off in (("disabled", True), ("enabled", False)):
            if entry.get(key) is off:
                text = with_member(text, (*place, key), None, source)
    elif entry.get("enabled") is not False and entry.get("disabled") is not True:
        text = with_member(text, (*place, "disabled"), True, source)
    return Switched(text, f"{place[1]} is {state}")


def _tool(
    text: str, place: tuple[str, str], entry: Mapping[str, Any], tool: str, source: str, *, on: bool
) -> Switched:
    excluded = _texts(entry, "exclude")
    state = f"{place[1]}/{tool} is {'on' if on else 'off'}"
    if not on:
        if not _leaves_out(excluded, tool):
            text = with_member(text, (*place, "exclude"), [*excluded, tool], source)
        return Switched(text, state)
    kept = [pattern for pattern in excluded if pattern not in (tool, glob.escape(tool))]
    if _leaves_out(kept, tool):
        pattern = next(each for each in kept if fnmatchcase(tool, each))
        raise ConfigError(
            f"{source}: {'.'.join(place)}.exclude: {pattern!r} leaves {tool} out with others; edit the list"
        )
    if kept != excluded:
        text = with_member(text, (*place, "exclude"), kept or None, source)
    for key in _EXACT:
        if tool in (names := _texts(entry, key)):
            rest = [name for name in names if name != tool]
            text = with_member(text, (*place, key), rest or None, source)
    included = entry.get("include")
    if isinstance(included, list) and not _leaves_out(_texts(entry, "include"), tool):
        text = with_member(text, (*place, "include"), [*_texts(entry, "include"), tool], source)
    return Switched(text, state)


def _texts(entry: Mapping[str, Any], key: str) -> list[str]:
    value = entry.get(key)
    names = cast("list[object]", value) if isinstance(value, list) else []
    return [name for name in names if isinstance(name, str)]


def _leaves_out(patterns: list[str], tool: str) -> bool:
    return any(pattern == tool or fnmatchcase(tool, pattern) for pattern in patterns)
