"""`mistakes_in`: all mistakes of a configuration file, where reading the file stops at the first.

A mistake is noted, its value is taken out of the data, and the rest is read again.
"""

from __future__ import annotations

import os
from typing import Any, Final, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config.hub import parse_config
from mcp_toolset.config.jsonc import decode, line_and_column
from mcp_toolset.config.keys import named_servers
from mcp_toolset.config.models import HubConfig
from mcp_toolset.config.placement import config_text
from mcp_toolset.errors import ConfigError
from mcp_toolset.hub.toolset import check_lock, judged, lock_of, mounted, unpinned
from mcp_toolset.security.vault import Vault

__all__ = ["Mistakes", "Problem", "mistakes_in"]


@dataclass(frozen=True, slots=True)
class Mistakes:
    """The mistakes in a configuration file.

    Attributes:
        config: The file without the mistakes that concern more than one server. A server whose entry is wrong
            has a `fault`, as when it is served.
        sections: The mistakes that concern more than one server.
        further: The mistakes of a server beside its `fault`, by its name.
        problems: All of them, in the order of the file.
    """

    config: HubConfig
    sections: tuple[str, ...]
    further: dict[str, list[str]]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake."""

    message: str  # the file with line and column, the place, the cause and the mend
    line: int  # its line in the file
    column: int
    server: str  # the server whose entry has it; empty for a mistake elsewhere


_URL: Final = "https://host/path"
_USUAL: Final = {"command": "command", "url": _URL, "httpUrl": _URL, "serverUrl": _URL}
"""Values in place of wrong ones, without which the rest of an entry would not be read."""

_NAMING: Final = frozenset({"prefix", "names"})
"""The keys that decide what the tools of a server are called."""


def mistakes_in(path: str | os.PathLike[str]) -> Mistakes:
    """Read a file, and find all its mistakes; no server is started."""
    source = os.fspath(path)
    text, vault = config_text(source), Vault(os.environ)
    data = decode(text, source)
    whole: HubConfig | None = None
    found, taken_out = list[ConfigError](), list[tuple[str | int, ...]]()
    while True:
        config, faults = _read(data, source, vault)
        whole = whole or config
        # Without its wrong value an entry may lack one: that is no mistake of the user.
        found += [
            fault for fault in faults if not any(one[: len(fault.steps)] == fault.steps for one in taken_out)
        ]
        shorter = [_take_out(data, fault.steps) for fault in faults]
        if not any(shorter):
            break
        taken_out += [fault.steps for fault in faults]
    if whole is None:
        whole_file = found[-1] if found else ConfigError(f"{source}: names no servers")
        raise ConfigError(_problem(whole_file, "", text, (source,)).message)
    further = config and judged(config, lambda server: mounted(server, None))
    for server in () if further is None else further.servers:
        # Without its wrong names a server may conflict with another: that is no mistake of the user either.
        renamed = any(server.name in steps and _NAMING & {*steps} for steps in taken_out)
        if server.fault and not renamed:
            found.append(ConfigError(server.fault, steps=_entry(data, server.name)))
    return _sorted_out(whole, found, text, source)


def _read(data: object, source: str, vault: Vault) -> tuple[HubConfig | None, list[ConfigError]]:
    faults: list[ConfigError] = []
    try:
        config = parse_config(data, source=source, vault=vault, report=faults.append, lookups="skip")
        config.check_callers()
        check_lock(config)
        if config.callers is not None:
            config.callers.rules().authenticator()
    except ConfigError as fault:
        return None, [fault]
    return config, faults


def _sorted_out(config: HubConfig, found: list[ConfigError], text: str, source: str) -> Mistakes:
    config = judged(config, lambda server: mounted(server, None))
    try:
        config = replace(config, warnings=(*config.warnings, *unpinned(config, lock_of(config))))
    except ConfigError:
        pass  # What is wrong with the lock file is among the mistakes.
    sources = (source, str(config.path))
    found += [
        ConfigError(server.fault, steps=_entry(decode(text, source), server.name))
        for server in config.servers
        if server.fault and server.fault not in map(str, found)
    ]
    problems = {str(fault): _problem(fault, _server_of(fault, config), text, sources) for fault in found}
    further: dict[str, list[str]] = {}
    first = {server.fault for server in config.servers}
    for message, problem in problems.items():
        if problem.server and message not in first:
            further.setdefault(problem.server, []).append(problem.message)
    servers = (replace(one, fault=one.fault and problems[one.fault].message) for one in config.servers)
    return Mistakes(
        replace(config, servers=tuple(servers)),
        tuple(problem.message for problem in problems.values() if not problem.server),
        further,
        tuple(sorted(problems.values(), key=lambda problem: (problem.line, problem.column))),
    )


def _entry(data: object, server: str) -> tuple[str, ...]:
    section, _ = named_servers(cast("dict[str, Any]", data)) or ((), None)
    return (*section, server)


def _problem(fault: ConfigError, server: str, text: str, sources: tuple[str, ...]) -> Problem:
    line, column = line_and_column(text, fault.steps)
    source = next((each for each in sources if fault.alone.startswith(f"{each}: ")), "")
    rest = fault.alone.removeprefix(f"{source}: ") if source else fault.alone
    return Problem(f"{sources[0]}:{line}:{column}: {rest}", line, column, server)


def _server_of(fault: ConfigError, config: HubConfig) -> str:
    """The server whose entry has the mistake; empty for a mistake elsewhere."""
    names = {server.name for server in config.servers}
    steps = fault.steps[2:] if fault.steps[:2] == ("mcp", "servers") else fault.steps[1:]
    in_servers = fault.steps[:1] in (("mcpServers",), ("servers",), ("mcp",))
    return str(steps[0]) if in_servers and steps and steps[0] in names else ""


def _take_out(data: object, steps: tuple[str | int, ...]) -> bool:
    """Take out the innermost value that there is on the way to a mistake; whether there is one."""
    table: dict[str, Any] | None = None
    key, here, items, index = "", data, list[object](), 0
    for step in steps:
        if isinstance(step, str) and isinstance(here, dict) and step in here:
            table, key, items = cast("dict[str, Any]", here), step, []
            here = table[step]
        elif isinstance(step, int) and isinstance(here, list) and step < len(cast("list[object]", here)):
            items, index = cast("list[object]", here), step
            here = items[step]
        else:
            break
    if items and here != "":
        items[index] = ""
    elif table is None:
        return False
    elif key in _USUAL and isinstance(table[key], str) and table[key] != _USUAL[key]:
        table[key] = _USUAL[key]
    else:
        del table[key]
    return True
