"""The benchmark of calls runs on a fresh checkout and writes what it promises; no time is asserted."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measuring import Sample, figures, interleaved
from tests.benchmarks.conftest import Refused
from tests.support.warm import Warm

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "calls.py"
OWN = ["direct", "ours", "ours_deferred"]


def run(warm: Warm, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        warm.command(str(SCRIPT), *arguments), capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> tuple[dict[str, Any], str]:
    file = tmp_path_factory.mktemp("calls") / "calls.json"
    done = run(warm, "--quick", "--peers", ",".join(OWN), "--scenario", "memory", "--json", str(file))
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


def test_quick_measures_every_peer_in_every_case(quick: tuple[dict[str, Any], str]) -> None:
    report, _ = quick
    cases = [(row["scenario"], row["mode"], row["conc"], row["peer"]) for row in report["rows"]]
    assert cases == list(product(["memory"], ["legacy", "auto"], [1, 16], OWN))


def test_every_row_has_its_ratios_and_the_protocol_that_was_spoken(quick: tuple[dict[str, Any], str]) -> None:
    report, _ = quick
    for row in report["rows"]:
        assert row["protocol"] == ("2025-11-25" if row["mode"] == "legacy" else "2026-07-28")
        assert row["calls"] >= 2 * row["conc"]
        assert 0 < row["x_p50_lo"] <= row["x_p50"] <= row["x_p50_hi"]
        assert 0 < row["x_cpu_lo"] <= row["x_cpu"] <= row["x_cpu_hi"]
        assert row["p50_ms"] > 0 and row["p99_ms"] > 0
        assert row["cpu_ms"] > 0 and row["calls_per_s"] > 0
        if row["peer"] == "direct":
            assert row["x_p50_lo"] == row["x_p50_hi"] == 1


def test_the_report_names_versions_and_options(quick: tuple[dict[str, Any], str]) -> None:
    report, _ = quick
    assert report["benchmark"] == "calls"
    assert report["options"]["quick"] is True
    assert {"python", "mcp", "mcp-toolset", "fastmcp"} <= report["versions"].keys()
    assert report["machine"]["cpus"] >= 1


def test_the_table_has_a_line_for_each_row(quick: tuple[dict[str, Any], str]) -> None:
    report, shown = quick
    head, _, *lines = shown.splitlines()
    assert "p50 × direct" in head and "CPU ms" in head
    assert len(lines) == len(report["rows"])


def test_bridges_and_upstreams_that_are_processes_are_measured(tmp_path: Path, warm: Warm) -> None:
    file = tmp_path / "calls.json"
    chosen = ("--scenario", "stdio,pipe,http", "--mode", "auto", "--conc", "1", "--peers", "ours")
    done = run(warm, "--quick", *chosen, "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    own = [(row["scenario"], row["peer"]) for row in rows if row["scenario"] != "stdio"]
    assert own == list(product(["pipe", "http"], ["direct", "ours"]))
    assert all(row["bridge_cpu_ms"] > 0 for row in rows if row["scenario"] != "stdio")
    assert {"direct", "ours"} <= {row["peer"] for row in rows if row["scenario"] == "stdio"}
    assert all(row["x_p99"] > 0 for row in rows)


def test_another_checkout_is_measured_beside_this_one(tmp_path: Path, warm: Warm) -> None:
    file = tmp_path / "calls.json"
    chosen = ("--scenario", "memory", "--mode", "auto", "--conc", "1", "--peers", "ours")
    done = run(warm, "--quick", *chosen, "--before", sys.executable, "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = {row["peer"]: row for row in json.loads(file.read_text())["rows"]}
    assert list(rows) == ["direct", "ours", "before"]
    assert [name for name, row in rows.items() if row["change"]] == ["ours"]
    for middle, low, high in rows["ours"]["change"].values():
        assert 0 < low <= middle <= high
    assert "CPU × before" in done.stdout


@pytest.mark.skipif(importlib.util.find_spec("fastmcp") is not None, reason="fastmcp is installed here")
def test_without_fastmcp_its_peers_are_named_as_left_out(tmp_path: Path, warm: Warm) -> None:
    file = tmp_path / "calls.json"
    asked = ("--scenario", "memory", "--mode", "auto", "--conc", "1")
    done = run(warm, "--quick", "--peers", "fastmcp_proxy", *asked, "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "fastmcp_proxy is left out: fastmcp is not installed" in done.stderr
    report = json.loads(file.read_text())
    assert list(report["left_out"]) == ["fastmcp_proxy"]
    assert [row["peer"] for row in report["rows"]] == ["direct"]


@pytest.mark.parametrize(
    ("option", "value"), [("--peers", "nobody"), ("--scenario", "mars"), ("--mode", "later"), ("--conc", "0")]
)
def test_a_wrong_option_is_a_usage_error(refused: Refused, option: str, value: str) -> None:
    assert option in refused(SCRIPT, "--quick", option, value)


def test_ratios_are_taken_within_a_round() -> None:
    own = [
        Sample((0.002, 0.004, 0.009), 1.0, 0.002),
        Sample((0.010,), 1.0, 0.004),
        Sample((0.03,), 1.0, 0.009),
    ]
    base = [
        Sample((0.001, 0.002, 0.003), 1.0, 0.001),
        Sample((0.010,), 1.0, 0.001),
        Sample((0.01,), 1.0, 0.003),
    ]
    taken = figures(own, base)
    assert (taken.x_p50, taken.x_p50_lo, taken.x_p50_hi) == pytest.approx((2, 1, 3))
    assert (taken.x_cpu, taken.x_cpu_lo, taken.x_cpu_hi) == pytest.approx((3, 2, 4))
    assert math.isclose(taken.p50_ms, 10) and math.isclose(taken.p99_ms, 30)
    assert taken.calls == 5


@pytest.mark.anyio
async def test_rounds_interleave_and_every_other_one_runs_backwards() -> None:
    order: list[str] = []

    def peer(name: str) -> Any:
        async def call() -> None:
            order.append(name)

        return call

    samples = await interleaved({"a": peer("a"), "b": peer("b")}, at_once=1, rounds=3, seconds=1e-9)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 3, "b": 3}
