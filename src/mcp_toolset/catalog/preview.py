"""What is in a catalog, in few words, for a model that has not searched yet (H22)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

BUDGET: Final = 300
"""Tokens that a preview takes at most unless told otherwise."""

_CHARACTERS_A_TOKEN = 3
_LONGEST_SERVER = 64


def preview_of(tools: Iterable[tuple[str | None, str]], budget: int = BUDGET) -> str:
    """The number of tools, then the servers with all names if they fit, or else with counts.

    Servers that do not fit are counted, the largest being named first. Nothing for an empty catalog.

    Args:
        tools: The server, if any, and the name of each tool.
        budget: Tokens at most, reckoned at three characters each: names cost more than prose does.
    """
    groups: dict[str, list[str]] = {}
    for server, name in tools:
        groups.setdefault((server or "this server")[:_LONGEST_SERVER], []).append(name)
    if not groups:
        return ""
    total = sum(map(len, groups.values()))
    head = f"{total} {'tool' if total == 1 else 'tools'} can be found by search. "
    room = _CHARACTERS_A_TOKEN * budget - len(head)
    named = "; ".join(f"{server}: {', '.join(names)}" for server, names in groups.items())
    return head + (named if len(named) <= room else _counted(groups, room))


def _counted(groups: Mapping[str, list[str]], room: int) -> str:
    largest = sorted(groups, key=lambda server: -len(groups[server]))
    counts = [f"{server} ({len(groups[server])})" for server in largest]
    if len(", ".join(counts)) <= room:
        return ", ".join(counts)
    more = f"and {len(groups)} more servers"
    ends = accumulate(len(count) + len(", ") for count in counts)
    fitting = sum(end + len(more) <= room for end in ends)
    return ", ".join([*counts[:fitting], f"and {len(groups) - fitting} more servers"])
