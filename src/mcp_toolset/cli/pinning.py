"""Comparison of mounted servers with their lock file, and texts about tools that have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.pins.canonical import canonical, plain_json
from mcp_toolset.catalog.pins.differences import Difference, compared
from mcp_toolset.catalog.pins.lockfile import LockEntry, LockFile, Pinned, Servers
from mcp_toolset.catalog.pins.policy import gained
from mcp_toolset.errors import ConfigError, TargetError
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.tools.hidden_text import visible
from mcp_toolset.tools.source import SourceStatus
from mcp_toolset.upstream.toolset import RemoteToolset


@dataclass(frozen=True, slots=True)
class Comparison:
    """One mounted server and its pins."""

    name: str
    entry: LockEntry
    pinned: Pinned | None
    listed: Pinned | None  # the tools that it lists now; `None` if it did not answer
    complete: bool = True  # whether the whole list was read; if not, a missing tool does not count as removed

    def changed(self) -> dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None]]:
        """The differences by tool: the pin and the present definition, `None` for a missing one."""
        if self.listed is None:
            return {}
        before, after = self.pinned or {}, self.listed
        names = sorted(after.keys() | (before.keys() if self.complete else ()))
        pairs = {name: (before.get(name), after.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if plain_json(pair[0]) != plain_json(pair[1])}


@dataclass(frozen=True, slots=True)
class AcceptedChange:
    """One definition that is accepted in place of a pin; `None` where there is no definition or no pin."""

    server: str
    tool: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def compare(server: ToolsetServer) -> list[Comparison]:
    remotes = [source for source in server.toolset.sources() if isinstance(source, RemoteToolset)]
    if not remotes:
        raise TargetError(f"{server.name}: no server is mounted in it, so there is nothing to pin")
    return [_compared(remote) for remote in remotes]


def _compared(remote: RemoteToolset) -> Comparison:
    connection = remote.connection
    entry = connection.tools.pins.entry
    if entry is None:
        raise TargetError(
            f"{remote.source_name}: it has no lock file; give RemoteToolset(…, lock='tools.lock.json')"
        )
    pinned = entry.file.servers().get(entry.server)
    listed = connection.tools.pins.listed() if remote.status.is_up else None
    return Comparison(remote.source_name, entry, pinned, listed, connection.snapshot.complete)


def orphans(comparisons: Iterable[Comparison], configured: Iterable[str]) -> list[LockEntry]:
    """Pinned servers that are no longer configured."""
    files = {comparison.entry.file for comparison in comparisons}
    known = frozenset(configured)
    return [file.entry(name) for file in files for name in file.servers() if name not in known]


def chosen(comparisons: Iterable[Comparison], patterns: Sequence[str]) -> list[AcceptedChange]:
    """The changes to accept: all, or those whose tool, server or `server/tool` matches a pattern."""
    found = [
        (comparison.name, AcceptedChange(comparison.entry.server, tool, before, after))
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
    file: LockFile, changes: Sequence[AcceptedChange], *, pin: Iterable[str] = (), forget: Iterable[str] = ()
) -> None:
    """Write the accepted definitions into the file; pins that other processes wrote meanwhile are kept."""
    fresh, gone = tuple(pin), frozenset(forget)

    def changed(servers: Servers) -> Servers:
        tables = {name: dict(tools) for name, tools in servers.items() if name not in gone}
        for name in fresh:
            tables.setdefault(name, {})
        for change in changes:
            _apply(change, tables.setdefault(change.server, {}), file)
        return tables

    file.update(changed)


def _apply(change: AcceptedChange, tools: dict[str, dict[str, Any]], file: LockFile) -> None:
    current: Mapping[str, Any] | None = tools.get(change.tool)
    if plain_json(current) not in (plain_json(change.before), plain_json(change.after)):
        raise ConfigError(
            f"{file.path}: {change.server}/{change.tool} was pinned again meanwhile; look at it again"
        )
    if change.after is None:
        tools.pop(change.tool, None)
    else:
        tools[change.tool] = change.after


def status_lists(status: SourceStatus) -> dict[str, Any]:
    """Tools of a status that are set aside, have hidden text, or have changed."""
    return {
        "set_aside": [{"name": name, "reason": reason} for name, reason in status.set_aside],
        "flagged": [{"name": name, "reason": reason} for name, reason in status.flagged],
        "changes": [
            {
                **change_json(one.name, one.pinned and canonical(one.pinned), canonical(one.offered)),
                "held": one.held,
            }
            for one in status.changes
        ],
    }


def change_json(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """One tool that is new, missing or changed, as plain data."""
    kind = "new" if old is None else "gone" if new is None else "changed"
    return {
        "name": name,
        "change": kind,
        "gained": list(gained(old, new)) if old is not None and new is not None else [],
        "differences": [difference.to_json() for difference in compared(old or {}, new or {})],
    }


def change_lines(change: Mapping[str, Any]) -> Iterator[str]:
    """The lines for one tool: its change, what it gained, and every difference; nothing is hidden or cut."""
    held = " (held back)" if change.get("held") else ""
    yield f"{visible(change['name'])}: {change['change']}{held}"
    for reason in change["gained"]:
        yield f"    gained: {visible(reason)}"
    if change["change"] == "gone":
        return
    for entry in change["differences"]:
        if entry["path"] == "name":
            continue
        yield f"    {entry['path']}"
        for line in Difference.of_json(entry).lines():
            yield f"      {line}"


_TEXTS: Final = frozenset(("description", "title", "reason", "version", "before", "after", "instructions"))


def clearing(server: ToolsetServer) -> Callable[[Any], Any]:
    """A function that clears the texts in a JSON value; a bare text is cleared whole.

    Only texts for people are cleared, and all that a server says of itself (`server`). Names, schemas and
    results are data and stay unchanged.
    """
    sources = server.toolset.sources()
    links = [source.connection.link for source in sources if isinstance(source, RemoteToolset)]

    def text(said: str) -> str:
        for link in links:
            said = link.secrets.scrubbed(said)
        return said

    def clear(value: Any, is_text: bool = True, whole: bool = False) -> Any:
        if isinstance(value, str):
            return text(value) if is_text else value
        if isinstance(value, list | tuple):
            return [clear(item, is_text, whole) for item in cast("list[Any]", value)]
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            about = {
                key for key, item in table.items() if whole or (key == "server" and isinstance(item, dict))
            }
            return {key: clear(item, key in about | _TEXTS, key in about) for key, item in table.items()}
        return value

    return clear
