"""`summarized`: rows of sums as totals by server or client: calls, errors, latencies, tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from mcp_toolset._records import dataclass
from mcp_toolset.extensions.statistics.counts import BUCKET, LISTED, OUTCOMES, SESSIONS, SHOWN, latency_of
from mcp_toolset.extensions.statistics.store import Row
from mcp_toolset.tools.screen import tokens_of


@dataclass(frozen=True, slots=True)
class Total:
    """What the calls of one server or client come to.

    Attributes:
        name: The server or the client.
        sessions: How often a client has read the list of tools for the first time.
        calls: The calls.
        errors: Those that failed.
        refused: Those that did not run: unknown tool, wrong arguments, no grant, a rule.
        p50: Seconds within which half of the calls with a result or an error were answered; `None` without
            such calls.
        p95: The same for 95 of 100.
        tokens_listed: What all tools would have cost in these sessions, in tokens.
        tokens_shown: What was listed, and what the answers of searches cost.
        faults: The failed and refused calls by kind.
    """

    name: str
    sessions: int
    calls: int
    errors: int
    refused: int
    p50: float | None
    p95: float | None
    tokens_listed: int
    tokens_shown: int
    faults: dict[str, int]

    @property
    def tokens_saved(self) -> int:
        """What was not shown; below zero for the tools that search and grant."""
        return self.tokens_listed - self.tokens_shown


def summarized(rows: Iterable[Row], name_of: Callable[[Row], str]) -> list[Total]:
    """The totals by name, the one with most calls first."""
    sums: dict[str, Counter[str]] = {}
    for row in rows:
        sums.setdefault(name_of(row), Counter())[row.what] += row.number
    totals = [_total(name, found) for name, found in sums.items()]
    return sorted(totals, key=lambda one: (-one.calls, -one.tokens_listed, one.name))


def _total(name: str, sums: Counter[str]) -> Total:
    buckets = {int(what.removeprefix(BUCKET)): n for what, n in sums.items() if what.startswith(BUCKET)}
    errors, refused = sums["error"], sums["refused"]
    faults = {what: n for what, n in sums.items() if what.startswith(("error: ", "refused: "))}
    known = sum(n for what, n in faults.items() if what.startswith("error: "))
    if errors > known:
        faults["error: the tool's own"] = errors - known
    return Total(
        name,
        sums[SESSIONS],
        sum(sums[outcome] for outcome in OUTCOMES),
        errors,
        refused,
        _quantile(buckets, 0.5),
        _quantile(buckets, 0.95),
        tokens_of(sums[LISTED]),
        tokens_of(sums[SHOWN]),
        dict(sorted(faults.items(), key=lambda each: -each[1])),
    )


def _quantile(buckets: dict[int, int], share: float) -> float | None:
    """The latency within which a share of the calls was answered."""
    left = share * sum(buckets.values())
    for bucket in sorted(buckets):
        left -= buckets[bucket]
        if left <= 0:
            return latency_of(bucket)
    return None
