"""The cost of a hub in a client: listed, by search, and by the client's own search; for commands."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_toolset._records import dataclass, replace
from mcp_toolset.extensions.surface.clients import CLIENTS, UNKNOWN, KnownClient, client_of, decided
from mcp_toolset.extensions.surface.extension import size_of
from mcp_toolset.tools.screen import counted

SECTION: Final[Mapping[str, Any]] = {"surface": "auto"}
"""The section `toolset` of a new hub, which several clients may have."""

SEARCHED: Final = 1_250
"""Tokens of the four tools, and of a search that shows two definitions (benchmarks/clients.py)."""

LOADED: Final = 2
"""Definitions that a client's own search is taken to show, as many as ours in `SEARCHED`."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Tokens up to the first call of a tool, by the way that it is found."""

    listed: int
    searched: int
    client: int

    @classmethod
    def of(cls, wires: Sequence[Mapping[str, Any]]) -> Costs:
        """The costs of a hub with these definitions, estimated from their size."""
        listed = size_of(wires)
        names = size_of([{"name": wire["name"]} for wire in wires])
        return cls(listed, SEARCHED, names + LOADED * listed // max(1, len(wires)))


def told(title: str, wires: Sequence[Mapping[str, Any]]) -> str:
    """One line for a client, by the title that `mcp-toolset install` gives it, and the tools of a hub."""
    client = next((one for one in CLIENTS if one.title == title), replace(UNKNOWN, title=title))
    cost, made = Costs.of(wires), decided(client, len(wires), size_of(wires))
    own = f", {cost.client:,} by its own search" if client.defers_from is not None else ""
    if not wires:
        return f"{title}: {made.way}, as {made.why}"
    return (
        f"{title}: {counted(len(wires), 'tool')} cost about {cost.listed:,} tokens listed, "
        f"{cost.searched:,} by search{own}; {made.way}, as {made.why}"
    )


def of_use(label: str, sessions: int, tokens: int) -> str:
    """One line for a client by its label in statistics, from what all tools would have cost in sessions."""
    client = _of_label(label)
    each = tokens // max(1, sessions)
    made = decided(client, None, each)
    return (
        f"{label}: about {each:,} tokens a session listed, {SEARCHED:,} by search; {made.way}, as {made.why}"
    )


def _of_label(label: str) -> KnownClient:
    """The row of a client whose label is its name and, after a blank, its version."""
    name, _, version = label.rpartition(" ")
    client = client_of(name, version)
    return client_of(label) if client is UNKNOWN else client


NAME, PART = "fit", sys.modules[__name__]
