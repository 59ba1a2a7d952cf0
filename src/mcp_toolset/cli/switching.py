"""`switched`: the text of a configuration with a server or a tool of it switched on or off.

A server is switched by its key `disabled`, a tool by the list `exclude` of its server. Comments and layout
stay, and a bridge that serves the file follows it.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from mcp_toolset.cli.formats import entries, with_member
from mcp_toolset.config.keys import did_you_mean
from mcp_toolset.errors import ConfigError, ToolsetError
from mcp_toolset.security.patterns import fault_of
from mcp_toolset.tools.definition import mounted_name, prefix_from

_SECTIONS: Final = ("mcpServers", "servers")
_EXACT: Final = ("excludeTools", "disabledTools", "disabled_tools")
"""The lists of exact names by which other clients leave tools out."""


Listed: TypeAlias = Callable[[str], Collection[str] | None]
"""Returns the tools that a server has listed, by its name; `None` if that is not known."""


def listed_in(file: Path) -> Listed:
    """Reads the lists that the servers of a file had last; no server is started."""

    def listed(name: str) -> Collection[str] | None:
        from mcp_toolset.catalog.registry.kept_catalog import KeptFiles
        from mcp_toolset.config import load_config
        from mcp_toolset.hub.toolset import mounted
        from mcp_toolset.server.mounts import folder_for

        folder = folder_for(None, None)
        try:
            server = next(one for one in load_config(file, lookups="skip").servers if one.name == name)
            key = None if server.fault else mounted(server, None).keep_key
        except ToolsetError:
            key = None
        kept = None if folder is None or key is None else KeptFiles(folder).load(key)
        return None if kept is None else [str(tool.get("name")) for tool in kept.tools]

    return listed


def switched(
    text: str, name: str, source: str, *, on: bool, listed: Listed = lambda server: None
) -> tuple[str, str]:
    """Switch a server (`git`) or a tool of one (`git/git_reset`, or a pattern such as `git/delete_*`).

    Returns the text after the change, and what is so now, for the user.
    """
    section = next((each for each in _SECTIONS if entries(text, each, source)), _SECTIONS[0])
    found = entries(text, section, source)
    server, slash, tool = _parts(_by_server(name, found), found)
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
    known = None if on else listed(server)
    told = "" if on else _checked(known, place, table, tool, source)
    if fault := fault_of(tool):
        if not on and tool not in (known or ()):
            raise ConfigError(f"{name!r} {fault[0]}; {fault[1]}")
        # A pattern has no such character, and `?` fits each.
        tool = re.sub(r"[^\w.:/*?\[\]-]|^-", "?", tool)
    text, now = _tool(text, place, table, tool, source, on=on)
    return text, now + told


def _checked(
    tools: Collection[str] | None, place: tuple[str, str], entry: Mapping[str, Any], tool: str, source: str
) -> str:
    """A note if nothing is known of a server; refuses a name that fits none of its tools."""
    if tools is None:
        return ", if the server has such a tool (it has listed none here yet)"
    if any(_leaves_out([tool], one) for one in tools):
        return ""
    public = {mounted_name(_prefix(place[1], entry), one): one for one in tools}
    meant = public.get(tool)
    mend = f"did you mean `{place[1]}/{meant}`?" if meant else did_you_mean(tool, [*tools])
    known = f"it has {', '.join(tools) or 'none'}"
    raise ConfigError(f"{source}: {'.'.join(place)}: lists no tool {tool!r}; {mend or known}")


def _prefix(server: str, entry: Mapping[str, Any]) -> str:
    said = entry.get("prefix")
    return prefix_from(server) if said is None else said or ""


def _parts(name: str, servers: Mapping[str, object]) -> tuple[str, str, str]:
    """Server, slash and tool; a server's name may contain slashes (`@scope/server`)."""
    known = [one for one in servers if name == one or name.startswith(f"{one}/")]
    if not known:
        return name.partition("/")
    server = max(known, key=len)
    rest = name[len(server) :]
    return server, rest[:1], rest[1:]


def _by_server(name: str, servers: Mapping[str, object]) -> str:
    """`git/log` for the public name `git_log`; any other name unchanged."""
    if name in servers or "/" in name:
        return name
    for server, entry in servers.items():
        table = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        names, prefix = table.get("names"), _prefix(server, table)
        named = cast("dict[str, Any]", names) if isinstance(names, dict) else {}
        for own in (own for own, public in named.items() if public == name):
            return f"{server}/{own}"
        for joint in ("__", "_"):
            own = name.removeprefix(f"{prefix}{joint}")
            if prefix and own != name and mounted_name(prefix, own) == name:
                return f"{server}/{own}"
    return name


def _server(
    text: str, place: tuple[str, str], entry: Mapping[str, Any], source: str, *, on: bool
) -> tuple[str, str]:
    state = "on" if on else "off"
    if on:
        for key, off in (("disabled", True), ("enabled", False)):
            if entry.get(key) is off:
                text = with_member(text, (*place, key), None, source)
    elif entry.get("enabled") is not False and entry.get("disabled") is not True:
        text = with_member(text, (*place, "disabled"), True, source)
    return text, f"{place[1]} is {state}"


def _tool(
    text: str, place: tuple[str, str], entry: Mapping[str, Any], tool: str, source: str, *, on: bool
) -> tuple[str, str]:
    excluded = _texts(entry, "exclude")
    state = f"{place[1]}/{tool} is {'on' if on else 'off'}"
    if not on:
        if not _leaves_out(excluded, tool):
            text = with_member(text, (*place, "exclude"), [*excluded, tool], source)
        return text, state
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
    return text, state


def _texts(entry: Mapping[str, Any], key: str) -> list[str]:
    value = entry.get(key)
    names = cast("list[object]", value) if isinstance(value, list) else []
    return [name for name in names if isinstance(name, str)]


def _leaves_out(patterns: list[str], tool: str) -> bool:
    return any(pattern == tool or fnmatchcase(tool, pattern) for pattern in patterns)
