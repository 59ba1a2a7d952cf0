"""`advice`: the servers and tools of a configuration that nobody used, their cost, and how to remove them.

No server is started: what a server lists is what it listed when it was last reached.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.errors import ToolsetError
from mcp_toolset.extensions.statistics.counts import CALLED, LISTED, OUTCOMES, SESSIONS, SHOWN, called
from mcp_toolset.tools.screen import tokens_of

if TYPE_CHECKING:
    from mcp_toolset.config.models import ServerConfig
    from mcp_toolset.extensions.statistics.store import Row

FEW: Final = 10
"""Sessions below which what was not used may still be needed."""

NAMED: Final = 8
"""Tools that one command names; of more, the server's own page is clearer."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A server that nobody used, or tools of one.

    Attributes:
        file: The configuration.
        server: The server.
        tools: Its tools that nobody called, by its own names; empty if nobody called any.
        of: The number of its tools; `None` if it has listed none here.
        tokens_per_day: The tokens of their definitions in the lists that clients read, a day.
        command: The command that switches them off.
        instead: A line of the server's entry that saves as much and keeps them; empty for none.
    """

    file: str
    server: str
    tools: tuple[str, ...]
    of: int | None
    tokens_per_day: int
    command: str
    instead: str = ""

    def as_json(self) -> dict[str, Any]:
        told = {"file": self.file, "server": self.server, "tools": list(self.tools), "of": self.of}
        return {
            **told,
            "tokens_per_day": self.tokens_per_day,
            "command": self.command,
            "instead": self.instead,
        }


@dataclass(frozen=True, slots=True)
class Period:
    """The time that advice is about: days with the first and the last one, and sessions in them."""

    since: str
    days: int
    sessions: int

    @classmethod
    def of(cls, rows: Sequence[Row], today: date) -> Period:
        since = min((row.day for row in rows), default=str(today))
        days = max(1, (today - date.fromisoformat(since)).days + 1)
        return cls(since, days, sum(row.number for row in rows if row.what == SESSIONS))


def advice(file: str, rows: Sequence[Row], today: date) -> list[Advice]:
    """The advice for a configuration by its rows, the most expensive first.

    Raises:
        ConfigError: the configuration cannot be read.
    """
    from mcp_toolset.config import load_config

    sums: dict[str, Counter[str]] = {}
    for row in rows:
        sums.setdefault(row.server, Counter())[row.what] += row.number
    period = Period.of(rows, today)
    found: list[Advice] = []
    for server in load_config(file, lookups="skip").servers:
        if not server.disabled and not server.fault and period.sessions:
            found += _of_server(file, server, sums.get(server.name, Counter()), rows, today)
    return sorted(found, key=lambda one: (-one.tokens_per_day, one.server))


def _of_server(
    file: str, server: ServerConfig, sums: Counter[str], rows: Sequence[Row], today: date
) -> Iterator[Advice]:
    listed, period = _listed(server), Period.of(rows, today)
    if not any(sums[outcome] for outcome in OUTCOMES):
        cost = tokens_of(sums[SHOWN]) // period.days
        words = ["mcp-toolset", "disable", file, server.name]
        of = None if listed is None else len(listed)
        yield Advice(file, server.name, (), of, cost, shlex.join(words), _instead(cost))
        return
    # Tools are counted since a later release than calls are.
    first = min((row.day for row in rows if row.what.startswith(CALLED)), default=None)
    own = [row for row in rows if first is not None and row.day >= first]
    if listed is None or first is None or not (known := Period.of(own, today)).sessions:
        return
    used = {row.what for row in own if row.server == server.name}
    unused = [name for name in listed if called(server.name, name) not in used]
    shown = sum(row.number for row in own if row.server == server.name and row.what == SHOWN)
    every = sum(row.number for row in own if row.server == server.name and row.what == LISTED)
    # Of the tools of a server, a client has read as large a part as of their definitions together.
    read = known.sessions * (min(1.0, shown / every) if every else 0.0)
    cost = int(sum(listed[name] for name in unused) * read / known.days)
    if unused and cost:
        words = [f"{server.name}/{name}" for name in unused[:NAMED]]
        command = shlex.join(["mcp-toolset", "disable", file, *words])
        yield Advice(file, server.name, tuple(unused), len(listed), cost, command, _instead(cost))


def _instead(cost: int) -> str:
    return '"deferred": true' if cost else ""


def _listed(server: ServerConfig) -> Mapping[str, int] | None:
    """The tools that a server listed last, each with the tokens of its definition; `None` for none."""
    from mcp_toolset.catalog.registry.kept_catalog import KeptFiles
    from mcp_toolset.hub.toolset import mounted
    from mcp_toolset.server.mounts import folder_for

    folder = folder_for(None, None)
    try:
        key = mounted(server, None).keep_key
    except ToolsetError:
        key = None
    kept = None if folder is None or key is None else KeptFiles(folder).load(key)
    if kept is None:
        return None
    found = {str(tool.get("name")): tokens_of(len(json.dumps(tool).encode())) for tool in kept.tools}
    return {name: size for name, size in found.items() if _is_taken(server, name)}


def _is_taken(server: ServerConfig, name: str) -> bool:
    taken = not server.include or any(fnmatchcase(name, one) for one in server.include)
    return taken and not any(fnmatchcase(name, one) for one in server.exclude)


def configurations(rows: Sequence[Row]) -> list[str]:
    """The configurations that were served, or a view of which was, and that are still there."""
    served = {row.served for row in rows}
    files = {*served, *(one.rpartition("#")[0] for one in served)}
    return sorted(one for one in files if one.endswith((".json", ".jsonc")) and Path(one).is_file())
