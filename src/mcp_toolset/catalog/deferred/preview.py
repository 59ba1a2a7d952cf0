"""The preview of a deferred catalog: its servers and tools in few tokens, for a model before its search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from mcp_toolset._records import dataclass, replace
from mcp_toolset.tools.hidden_text import cleaned

BUDGET: Final = 300  # the default limit of a preview in tokens
DETAILS: Final = 45  # the limit in tokens up to which a preview describes servers

_CHARACTERS_A_TOKEN = 3
_LONGEST_SERVER = 64
_LONGEST_ABOUT = 80
_LATER: Final = ". Servers that are not ready join later; search again then."


@dataclass(frozen=True, slots=True)
class ServerNote:
    """One server in a preview."""

    state: str = ""  # why its tools are unavailable; empty for a server that has been ready
    about: str = ""  # the server's description of itself, in one line


@dataclass(frozen=True, slots=True)
class _Group:
    server: str
    names: Sequence[str]
    note: ServerNote

    def named(self) -> str:
        """`git (Version control): log, diff`; `jira (offline)`."""
        notes = "; ".join(filter(None, (self.note.state, self.note.about)))
        head = f"{self.server} ({notes})" if notes else self.server
        return f"{head}: {', '.join(self.names)}" if self.names else head

    def counted(self) -> str:
        """`git (20; Version control)`; `jira (offline)`."""
        count = str(len(self.names)) if self.names else ""
        return f"{self.server} ({'; '.join(filter(None, (count, self.note.state, self.note.about)))})"

    def short(self) -> _Group:
        return replace(self, note=replace(self.note, about=""))


_NO_NOTES: Final[Mapping[str, ServerNote]] = {}


def preview_of(
    tools: Iterable[tuple[str | None, str]],
    servers: Mapping[str, ServerNote] = _NO_NOTES,
    budget: int = BUDGET,
) -> str:
    """The number of tools, then the servers with all names if these fit `budget` tokens, else with counts."""
    # Descriptions of servers are left out first, then the names of the tools; the largest servers come first.
    # Tokens are estimated at three characters each: names cost more than prose.
    names: dict[str, list[str]] = {server: [] for server in servers}
    for server, name in tools:
        names.setdefault(server or "this server", []).append(name)
    if not names:
        return ""
    groups = [
        _Group(server[:_LONGEST_SERVER], each, servers.get(server, ServerNote()))
        for server, each in names.items()
    ]
    total = sum(map(len, names.values()))
    head = f"{total} {'tool' if total == 1 else 'tools'} can be found by search. "
    tail = _LATER if any(group.note.state for group in groups) else ""
    room = _CHARACTERS_A_TOKEN * budget - len(head) - len(tail)
    return head + _fitting(groups, room) + tail


def one_line(text: str) -> str:
    line = next((line.strip() for line in cleaned(text).splitlines() if line.strip()), "")
    sentence = line.partition(". ")[0].rstrip(".")
    return sentence if len(sentence) <= _LONGEST_ABOUT else f"{sentence[: _LONGEST_ABOUT - 1].rstrip()}…"


def _fitting(groups: Sequence[_Group], room: int) -> str:
    short = [group.short() for group in groups]
    little = min(room, _CHARACTERS_A_TOKEN * DETAILS)
    for some, most in ((groups, little), (short, room)):
        named = "; ".join(group.named() for group in some)
        if len(named) <= most:
            return named
    for some, most in ((groups, little), (short, room)):
        counts = [group.counted() for group in sorted(some, key=lambda group: -len(group.names))]
        if len(", ".join(counts)) <= most:
            return ", ".join(counts)
    return _some(counts, room)


def _some(counts: Sequence[str], room: int) -> str:
    more = f"and {len(counts)} more servers"
    ends = accumulate(len(count) + len(", ") for count in counts)
    fitting = sum(end + len(more) <= room for end in ends)
    return ", ".join([*counts[:fitting], f"and {len(counts) - fitting} more servers"])
