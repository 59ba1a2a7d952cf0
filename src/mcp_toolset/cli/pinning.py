"""What `mcp-toolset pin` compares and writes: mounted servers and their lock file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.pins.canonical import plain_json
from mcp_toolset.catalog.pins.lockfile import LockEntry, LockFile, Pinned, Servers
from mcp_toolset.errors import ConfigError, TargetError
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.upstream.toolset import RemoteToolset

__all__ = ["Accepted", "Comparison", "accept", "chosen", "compare", "orphans"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One mounted server and its pins.

    Attributes:
        name: The name of its mount.
        entry: Its part of the lock file.
        pinned: Its pins; `None` if it has none yet.
        listed: The tools that it lists now; `None` if it did not answer.
        complete: Whether the whole list was read; if not, a missing tool does not count as removed.
    """

    name: str
    entry: LockEntry
    pinned: Pinned | None
    listed: Pinned | None
    complete: bool = True

    def changed(self) -> dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None]]:
        """The differences by tool: the pin and the present definition, `None` for a missing one."""
        if self.listed is None:
            return {}
        before, after = self.pinned or {}, self.listed
        names = sorted(after.keys() | (before.keys() if self.complete else ()))
        pairs = {name: (before.get(name), after.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if plain_json(pair[0]) != plain_json(pair[1])}


@dataclass(frozen=True, slots=True)
class Accepted:
    """One definition that is accepted in place of a pin; `None` where there is no definition or no pin."""

    server: str
    tool: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def compare(server: ToolsetServer) -> list[Comparison]:
    """Each mounted server with its pins."""
    remotes = [source for source in server.toolset.sources() if isinstance(source, RemoteToolset)]
    if not remotes:
        raise TargetError(f"{server.name}: no server is mounted in it, so there is nothing to pin")
    return [_compared(remote) for remote in remotes]


def _compared(remote: RemoteToolset) -> Comparison:
    connection = remote.connection
    entry = connection.pins.entry
    if entry is None:
        raise TargetError(
            f"{remote.source_name}: it has no lock file; give RemoteToolset(…, lock='tools.lock.json')"
        )
    pinned = entry.file.servers().get(entry.server)
    listed = connection.pins.listed() if remote.status.is_up else None
    return Comparison(remote.source_name, entry, pinned, listed, connection.snapshot.complete)


def orphans(comparisons: Iterable[Comparison], configured: Iterable[str]) -> list[LockEntry]:
    """Servers that are pinned but no longer configured."""
    files = {comparison.entry.file for comparison in comparisons}
    known = frozenset(configured)
    return [file.entry(name) for file in files for name in file.servers() if name not in known]


def chosen(comparisons: Iterable[Comparison], patterns: Sequence[str]) -> list[Accepted]:
    """The changes to accept: all, or those whose tool, server or `server/tool` matches a pattern."""
    found = [
        (comparison.name, Accepted(comparison.entry.server, tool, before, after))
        for comparison in comparisons
        for tool, (before, after) in comparison.changed().items()
    ]
    for pattern in patterns:
        if not any(_fits(name, change.tool, pattern) for name, change in found):
            raise TargetError(
                f"{pattern}: nothing of that name has changed; `mcp-toolset pin` shows what has"
            )
    return [
        change
        for name, change in found
        if not patterns or any(_fits(name, change.tool, pattern) for pattern in patterns)
    ]


def _fits(server: str, tool: str, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (tool, server, f"{server}/{tool}"))


def accept(
    file: LockFile, changes: Sequence[Accepted], *, pin: Iterable[str] = (), forget: Iterable[str] = ()
) -> None:
    """Write the accepted definitions into the file; pins that other processes wrote meanwhile are kept.

    Args:
        file: The lock file.
        changes: The accepted changes.
        pin: Servers that count as pinned from now on, even without tools.
        forget: Servers whose pins are removed.
    """
    fresh, gone = tuple(pin), frozenset(forget)

    def changed(servers: Servers) -> Servers:
        tables = {name: dict(tools) for name, tools in servers.items() if name not in gone}
        for name in fresh:
            tables.setdefault(name, {})
        for change in changes:
            _apply(change, tables.setdefault(change.server, {}), file)
        return tables

    file.update(changed)


def _apply(change: Accepted, tools: dict[str, dict[str, Any]], file: LockFile) -> None:
    current: Mapping[str, Any] | None = tools.get(change.tool)
    if plain_json(current) not in (plain_json(change.before), plain_json(change.after)):
        raise ConfigError(
            f"{file.path}: {change.server}/{change.tool} was pinned again meanwhile; look at it again"
        )
    if change.after is None:
        tools.pop(change.tool, None)
    else:
        tools[change.tool] = change.after
