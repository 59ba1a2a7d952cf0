"""Sums of calls: by server and client, bounded, without what a caller has said, in one shared file."""

from __future__ import annotations

import sqlite3
import stat
from datetime import date, timedelta
from pathlib import Path

import pytest

from mcp_toolset import CallReport
from mcp_toolset.config import chain
from mcp_toolset.errors import StoreError
from mcp_toolset.extensions.statistics import store as stores
from mcp_toolset.extensions.statistics.counts import (
    BRIDGED,
    BUCKETS,
    LISTED,
    MOST_CLIENTS,
    SEARCH,
    SESSIONS,
    SHOWN,
    CallCounts,
    bucket_of,
    latency_of,
    statistics_path,
)
from mcp_toolset.extensions.statistics.store import Row, StatisticsStore, summarized

TODAY = date(2026, 11, 23)


def report(**facts: object) -> CallReport:
    plain: dict[str, object] = {
        "called": "t", "tool": "t", "server": "a", "outcome": "result", "reason": "", "ran": True,
        "decisions": (), "id": "", "round": "", "session": None, "principal": "ann", "client": "c 1",
        "protocol_version": None, "started": 0.0, "duration": 0.01,
    }  # fmt: skip
    return CallReport(**{**plain, **facts})  # pyright: ignore[reportArgumentType]


def rows(counts: CallCounts) -> list[Row]:
    return [Row("2026-11-23", "x", *key, number) for key, number in counts.taken().items()]


def test_m10_calls_are_summed_by_outcome_and_kind_of_error() -> None:
    counts = CallCounts(["search_tools"])
    counts(report())
    counts(report(outcome="error"))
    counts(report(outcome="error", reason="UpstreamError"))
    counts(report(outcome="refused", reason="invalid arguments"))
    counts(report(outcome="refused", reason="no more than 4111 1111 for ann@example.com"))
    counts(report(outcome="cancelled"))
    counts(report(server="", tool="search_tools"))
    found = rows(counts)
    one, search = summarized(found, lambda row: row.server)
    assert (one.calls, one.errors, one.refused) == (6, 2, 2)
    assert one.faults == {
        "error: UpstreamError": 1, "refused: invalid arguments": 1, "refused: by a rule": 1,
        "error: the tool's own": 1,
    }  # fmt: skip
    assert (search.name, search.calls) == (SEARCH, 1)
    assert "ann" not in str(found) and "4111" not in str(found), "what a rule writes is not kept"
    assert counts.taken() == {}


@pytest.mark.parametrize("duration", [0.0, 2e-6, 0.0004, 0.013, 0.5, 7.0, 200.0])
def test_m10_a_latency_is_kept_within_a_tenth(duration: float) -> None:
    assert latency_of(bucket_of(duration)) == pytest.approx(max(duration, 1e-6), rel=0.1)


def test_m10_quantiles_are_those_of_the_calls_with_an_answer() -> None:
    counts = CallCounts()
    for number in range(100):
        counts(report(duration=0.01 if number < 90 else 2.0))
    counts(report(outcome="refused", reason="unknown tool", duration=900.0))
    (one,) = summarized(rows(counts), lambda row: row.server)
    assert one.p50 == pytest.approx(0.01, rel=0.1) and one.p95 == pytest.approx(2.0, rel=0.1)
    (none,) = summarized([Row("d", "x", "a", "c", LISTED, 9), Row("d", "x", "a", "c", SHOWN, 400)], str_of)
    assert (none.p50, none.tokens_listed, none.tokens_shown, none.tokens_saved) == (None, 3, 100, -97)
    assert bucket_of(1e9) == BUCKETS - 1


def str_of(row: Row) -> str:
    return row.server


def test_m10_clients_that_invent_names_fill_neither_memory_nor_the_file() -> None:
    counts = CallCounts()
    for number in range(300):
        counts(report(client=f"client {number} " + "x" * 1000, outcome="error", reason=f"Fault{number}"))
        counts(report(client=f"c{number}"))
    found = rows(counts)
    assert len({row.client for row in found}) == MOST_CLIENTS + 1
    assert max(len(row.client) for row in found) <= 60 and len({row.what for row in found}) < 60
    (total,) = summarized(found, lambda row: "")
    assert (total.calls, total.errors) == (600, 300)


def test_m10_several_servers_add_up_in_one_private_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "stats.sqlite3"
    key = ("a", "half a character \ud800", "result")
    for served in ("one", "two", "one"):
        StatisticsStore(path).add(served, {key: 2, ("", "c", SESSIONS): 1}, TODAY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    store = StatisticsStore(path)
    (total,) = summarized(store.rows(), lambda row: "")
    assert (total.calls, total.sessions) == (6, 3)
    assert {row.served for row in store.rows(served="one")} == {"one"}
    assert sum(row.number for row in store.rows(served="one") if row.what == "result") == 4
    assert store.rows("2026-11-24") == []
    store.forget("one")
    assert {row.served for row in store.rows()} == {"two"}
    store.forget()
    assert store.rows() == []


def test_m10_old_days_leave_and_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StatisticsStore(tmp_path / "stats")
    for day in (TODAY - timedelta(days=stores.DAYS + 1), TODAY - timedelta(days=1), TODAY):
        store.add("x", {("a", f"c{number}", "result"): 1 for number in range(5)}, day)
    assert {row.day for row in store.rows()} == {"2026-11-22", "2026-11-23"}
    monkeypatch.setattr(stores, "MOST_ROWS", 7)
    store.add("x", {("a", "c0", "result"): 1}, TODAY)
    assert {row.day for row in store.rows()} == {"2026-11-23"}


def test_m10_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite3"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(
        StoreError, match=r"another program; remove it, or name another with MCP_TOOLSET_STATS"
    ):
        StatisticsStore(path).add("x", {("a", "c", "result"): 1})
    assert path.read_bytes() == before


def test_m10_the_environment_names_the_file_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BRIDGED == chain.VARIABLE
    assert statistics_path() is None, "tests count nothing"
    monkeypatch.setenv("MCP_TOOLSET_STATS", "/x/y")
    assert statistics_path() == Path("/x/y")
    monkeypatch.delenv("MCP_TOOLSET_STATS")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert statistics_path() == Path("/state/mcp-toolset/stats.sqlite3")
