"""Sums of calls: by server and client, bounded, without what a caller has said, in one shared file."""

from __future__ import annotations

import sqlite3
import stat
from datetime import date, timedelta
from pathlib import Path

import pytest
from tests.support.stats import by_server, told, words_in

from mcp_toolset import CallReport, Toolset, ToolsetServer, tool
from mcp_toolset.errors import StoreError
from mcp_toolset.extensions.statistics import store as stores
from mcp_toolset.extensions.statistics.store import StatisticsStore

pytestmark = pytest.mark.anyio

TODAY = date(2026, 11, 23)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "stats.sqlite3"


def report(**facts: object) -> CallReport:
    plain: dict[str, object] = {
        "called": "t", "tool": "t", "server": "a", "outcome": "result", "reason": "", "ran": True,
        "decisions": (), "id": "", "round": "", "session": None, "principal": "ann", "client": "c 1",
        "protocol_version": None, "started": 0.0, "duration": 0.01,
    }  # fmt: skip
    return CallReport(**{**plain, **facts})  # pyright: ignore[reportArgumentType]


async def count(path: Path, *reports: CallReport, name: str = "desk") -> None:
    """Have a server count calls, and save the sums."""
    deferred = Toolset(echo).deferred()
    statistics = ToolsetServer(deferred, name=name, stats=path).extensions["stats"]
    for each in reports:
        statistics.observer()(each)
    await statistics.save()


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


async def test_m10_calls_are_summed_by_outcome_and_kind_of_error(path: Path) -> None:
    await count(
        path,
        report(),
        report(outcome="error"),
        report(outcome="error", reason="UpstreamError"),
        report(outcome="refused", reason="invalid arguments"),
        report(outcome="refused", reason="no more than 4111 1111 for ann@example.com"),
        report(outcome="cancelled"),
        report(server="", tool="search_tools"),
    )
    found = by_server(path)
    assert [found["a"][key] for key in ("calls", "errors", "refused")] == [6, 2, 2]
    assert found["a"]["faults"] == {
        "error: UpstreamError": 1, "refused: invalid arguments": 1, "refused: by a rule": 1,
        "error: the tool's own": 1,
    }  # fmt: skip
    assert found["(search tools)"]["calls"] == 1
    assert not words_in(path, "ann", "4111"), "what a rule writes is not kept"


@pytest.mark.parametrize("duration", [0.0, 2e-6, 0.0004, 0.013, 0.5, 7.0, 200.0])
async def test_m10_a_latency_is_kept_within_a_tenth(path: Path, duration: float) -> None:
    await count(path, report(duration=duration))
    assert by_server(path)["a"]["p50_seconds"] == pytest.approx(max(duration, 1e-6), rel=0.1)


async def test_m10_quantiles_are_those_of_the_calls_with_an_answer(path: Path) -> None:
    durations = [0.01] * 90 + [2.0] * 10
    refused = report(outcome="refused", reason="unknown tool", duration=900.0)
    await count(path, *(report(duration=one) for one in durations), refused, report(server="b", duration=1e9))
    one, other = by_server(path)["a"], by_server(path)["b"]
    assert one["p50_seconds"] == pytest.approx(0.01, rel=0.1)
    assert one["p95_seconds"] == pytest.approx(2.0, rel=0.1)
    assert 200 < other["p50_seconds"] < 300, "the longest that is told apart"


async def test_m10_clients_that_invent_names_fill_neither_memory_nor_the_file(path: Path) -> None:
    reports: list[CallReport] = []
    for number in range(300):
        client = f"client {number} " + "x" * 1000
        reports.append(report(client=client, outcome="error", reason=f"Fault{number}"))
        reports.append(report(client=f"c{number}"))
    await count(path, *reports)
    clients, total = told(path)["clients"], told(path)["total"]
    assert len(clients) == 51 and max(len(one["name"]) for one in clients) <= 60
    assert (total["calls"], total["errors"]) == (600, 300) and len(total["faults"]) <= 51


def modes(path: Path) -> list[int]:
    return [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)]


async def test_m10_several_servers_add_up_in_one_private_file(path: Path) -> None:
    for name in ("one", "two", "one"):
        await count(path, report(client="half a character \ud800"), report(), name=name)
    assert modes(path) == [0o600, 0o700]
    assert told(path)["total"]["calls"] == 6 and told(path)["served"] == ["one", "two"]
    assert told(path, "--since", "2999-01-01")["total"] is None


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


async def test_m10_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value, file in (
        ("MCP_TOOLSET_STATS", str(tmp_path / "own"), tmp_path / "own"),
        ("XDG_STATE_HOME", str(tmp_path / "state"), tmp_path / "state/mcp-toolset/stats.sqlite3"),
    ):
        monkeypatch.delenv("MCP_TOOLSET_STATS")
        monkeypatch.setenv(name, value)
        async with ToolsetServer(Toolset(echo), stats=True) as server:
            await server.call_tool("echo", {"text": "x"})
        assert by_server(file)["(own tools)"]["calls"] == 1
        monkeypatch.setenv("MCP_TOOLSET_STATS", "off")
