"""`CallCounts`: an observer that sums calls by server and client: outcomes, kinds of errors, latencies.

Sums are all that it keeps: no arguments, texts, callers or names of tools.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from math import log2
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from mcp_toolset.calls.observers import REFUSALS, client_label, outcome_of
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.result import ToolResult, is_plain

if TYPE_CHECKING:
    from mcp_toolset.calls.observers import CallReport, Observation


VARIABLE: Final = "MCP_TOOLSET_STATS"
"""The environment variable that names another file; `off` for none."""

BRIDGED: Final = "MCP_TOOLSET_CHAIN"
"""The variable that a bridge sets for its servers; see `config.chain`. Their calls are counted there."""


def is_counting() -> bool:
    """True if what this process serves is counted unless it says otherwise."""
    return os.environ.get(VARIABLE) != "off" and BRIDGED not in os.environ


def statistics_path() -> Path | None:
    """The file, by `MCP_TOOLSET_STATS` or else in the user's folder for state; `None` for none."""
    if path := os.environ.get(VARIABLE, ""):
        return None if path == "off" else Path(path)
    from platformdirs import user_state_path

    return user_state_path("mcp-toolset") / "stats.sqlite3"


Sums = Mapping[tuple[str, str, str], int]
"""By server, client and what is counted; a local tool is of the server with the empty name."""

SESSIONS: Final = "sessions"
LISTED: Final = "bytes of all"
SHOWN: Final = "bytes shown"

CALLED: Final = "called "
"""The beginning of the name of the sum of a tool's calls; a digest of the tool's name follows.

Such a sum is of no client.
"""

MOST_TOOLS: Final = 5_000
"""Tools whose calls are summed between two saves."""

SEARCH: Final = "*"
"""The name that stands for the tools that search and grant, in place of a server."""

OTHER: Final = "other"
"""The name that stands for clients, and for kinds of errors, beyond the first ones."""

OUTCOMES: Final = ("result", "error", "refused", "asked", "cancelled")
BUCKET: Final = "bucket "
"""The beginning of the name of a bucket's sum; its number follows."""

BUCKETS: Final = 112
"""Buckets of latencies: each reaches 19 % further than the one before, from a microsecond to four minutes."""

MOST_CLIENTS: Final = 50
MOST_KINDS: Final = 50
_NAME: Final = 60
_FIRST: Final = len(OUTCOMES)
_FINDING: Final = frozenset({"search_tools", "resolve_tools"})
"""The tools whose answers are about tools; those of the others are results."""

_RULE: Final = "by a rule"
_KNOWN: Final = frozenset((*REFUSALS, "the server is not ready"))


def called(server: str, tool: str) -> str:
    """The name of the sum of a tool's calls, by the server's own name of the tool."""
    text = f"{server}/{tool}".encode("utf-8", "surrogatepass")
    return CALLED + hashlib.sha256(text).hexdigest()[:16]


def bucket_of(duration: float) -> int:
    """The bucket of a latency in seconds."""
    bucket = int(4 * log2(duration * 1e6)) if duration > 1e-6 else 0
    return bucket if bucket < BUCKETS else BUCKETS - 1


def latency_of(bucket: int) -> float:
    return 2 ** ((bucket + 0.5) / 4) / 1e6


class CallCounts:
    """The sums since they were last taken. It is an observer of calls; see `Rules.observers`.

    Attributes:
        search: The names of the tools that search and grant, and of those beside them.
    """

    def __init__(self, search: Collection[str] = ()) -> None:
        """Count; the calls of the tools named in `search` are told apart from those of local tools."""
        self.search = frozenset(search)
        self._rows: dict[tuple[str, str], list[int]] = {}
        self._others: dict[tuple[str, str, str], int] = {}
        self._tools: dict[tuple[str, str], int] = {}
        self._clients: dict[str, str] = {}
        self._kinds: set[str] = set()

    def __call__(self, report: CallReport) -> None:
        """Count a call that was reported, and did not come to run."""
        server = SEARCH if not report.server and report.tool in self.search else report.server
        self._count(server, report.client, report.outcome, report.reason, report.duration)

    def count_call(self, seen: Observation, context: ToolContext, result: ToolResult | None) -> None:
        binding, client = seen.binding, client_label(context)
        server = "" if binding is None else binding.source
        if binding is not None and not server and binding.name in self.search:
            server = SEARCH
            if result is not None and binding.name in _FINDING:
                self.add(SEARCH, client, SHOWN, len(result.text.encode(errors="replace")))
        elif server and binding is not None:
            tool = (server, binding.definition.name)
            if tool in self._tools or len(self._tools) < MOST_TOOLS:
                self._tools[tool] = self._tools.get(tool, 0) + 1
        duration = perf_counter() - seen.began
        if seen.fault is None and result is not None and is_plain(result):
            row = self._rows.get((server, client)) or self._row(server, client)
            row[0] += 1
            row[_FIRST + bucket_of(duration)] += 1
        else:
            self._count(server, client, *outcome_of(seen.fault, result), duration)

    def add(self, server: str, client: str, what: str, number: int = 1) -> None:
        key = (server, self.client(client), what)
        self._others[key] = self._others.get(key, 0) + number

    def client(self, name: str) -> str:
        """The name under which a client is counted; clients may give themselves any name."""
        known = self._clients.get(name)
        if known is None:
            short = " ".join(name.split())[:_NAME]
            room = len(self._clients) < MOST_CLIENTS
            known = short if room else OTHER
            if room:
                self._clients[name] = known
        return known

    def taken(self) -> Sums:
        """The sums since the last time, which begin at zero again."""
        rows, self._rows = self._rows, {}
        others, self._others = self._others, {}
        tools, self._tools = self._tools, {}
        for (server, name), number in tools.items():
            others[server, "", called(server, name)] = number
        for (server, client), row in rows.items():
            for place, number in enumerate(row):
                if number:
                    key = (server, self.client(client), _name(place))
                    others[key] = others.get(key, 0) + number
        return others

    def _row(self, server: str, client: str) -> list[int]:
        if client not in self._clients and len(self._clients) >= MOST_CLIENTS:
            client = OTHER
        self.client(client)
        return self._rows.setdefault((server, client), [0] * (_FIRST + BUCKETS))

    def _count(self, server: str, client: str, outcome: str, reason: str, duration: float) -> None:
        row = self._row(server, client)
        row[OUTCOMES.index(outcome)] += 1
        if outcome in ("result", "error"):
            row[_FIRST + bucket_of(duration)] += 1
        if kind := _kind(outcome, reason):
            if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
                kind = f"{outcome}: {OTHER}"
            self._kinds.add(kind)
            self.add(server, client, kind)


def _kind(outcome: str, reason: str) -> str:
    """The kind of a failed call: a fixed text, as rules write what they like into a reason."""
    if outcome == "refused":
        return f"refused: {reason if reason in _KNOWN else _RULE}"
    return f"error: {reason}" if outcome == "error" and reason else ""


def _name(place: int) -> str:
    return OUTCOMES[place] if place < _FIRST else f"{BUCKET}{place - _FIRST}"
