"""Every benchmark runs and writes what it promises. No time is asserted, only what does not drift."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.support.warm import Warm

pytestmark = pytest.mark.long

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
HAS_FASTMCP = importlib.util.find_spec("fastmcp") is not None
OWN = ["direct", "ours", "ours_deferred"]
AT_ONCE = ("--mode", "auto", "--conc", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


class Bench:
    """Runs benchmarks."""

    def __init__(self, warm: Warm, folder: Path) -> None:
        self._warm, self._folder = warm, folder
        self.said = self.told = ""
        """The texts of the last one on standard output and on standard error."""

    def run(self, name: str, *arguments: str, own: bool = False) -> None:
        """Run a program in a fork, or in a process of its `own` from its start."""
        line = (str(BENCHMARKS / name), *arguments)
        command = [sys.executable, *line] if own else self._warm.command(*line)
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        self.said, self.told = done.stdout, done.stderr

    def report(self, name: str, *arguments: str, own: bool = False) -> dict[str, Any]:
        """The report of a benchmark."""
        file = self._folder / f"{name}.json"
        self.run(f"{name}.py", *arguments, "--json", str(file), own=own)
        return json.loads(file.read_text())


@pytest.fixture
def bench(warm: Warm, folder: Path) -> Bench:
    return Bench(warm, folder)


def test_quick_measures_every_peer_in_every_case(bench: Bench) -> None:
    report = bench.report("calls", "--quick", "--peers", ",".join(OWN), "--scenario", "memory")
    cases = [(row["scenario"], row["mode"], row["conc"], row["peer"]) for row in report["rows"]]
    assert cases == list(product(["memory"], ["legacy", "auto"], [1, 16], OWN))
    for row in report["rows"]:
        assert row["protocol"] == ("2025-11-25" if row["mode"] == "legacy" else "2026-07-28")
        assert row["calls"] >= 2 * row["conc"]
        assert 0 < row["x_p50_lo"] <= row["x_p50"] <= row["x_p50_hi"]
        assert 0 < row["x_cpu_lo"] <= row["x_cpu"] <= row["x_cpu_hi"]
        assert row["p50_ms"] > 0 and row["p99_ms"] > 0
        assert row["cpu_ms"] > 0 and row["calls_per_s"] > 0
        if row["peer"] == "direct":
            assert row["x_p50_lo"] == row["x_p50_hi"] == 1
    assert report["benchmark"] == "calls" and report["options"]["quick"] is True
    assert {"python", "mcp", "mcp-toolset", "fastmcp"} <= report["versions"].keys()
    assert report["machine"]["cpus"] >= 1
    head, _, *lines = bench.said.splitlines()
    assert "p50 × direct" in head and "CPU ms" in head
    assert len(lines) == len(report["rows"])


def test_bridges_and_upstreams_that_are_processes_are_measured(bench: Bench) -> None:
    chosen = ("--scenario", "stdio,pipe,http", *AT_ONCE, "--peers", "ours")
    rows = bench.report("calls", "--quick", *chosen)["rows"]
    own = [(row["scenario"], row["peer"]) for row in rows if row["scenario"] != "stdio"]
    assert own == list(product(["pipe", "http"], ["direct", "ours"]))
    assert all(row["bridge_cpu_ms"] > 0 for row in rows if row["scenario"] != "stdio")
    assert {"direct", "ours"} <= {row["peer"] for row in rows if row["scenario"] == "stdio"}
    assert all(row["x_p99"] > 0 for row in rows)


def test_another_checkout_is_measured_beside_this_one(bench: Bench) -> None:
    chosen = ("--scenario", "memory", *AT_ONCE, "--peers", "ours", "--before", sys.executable)
    rows = {row["peer"]: row for row in bench.report("calls", "--quick", *chosen)["rows"]}
    assert list(rows) == ["direct", "ours", "before"]
    assert [name for name, row in rows.items() if row["change"]] == ["ours"]
    for middle, low, high in rows["ours"]["change"].values():
        assert 0 < low <= middle <= high
    assert "CPU × before" in bench.said


@pytest.mark.skipif(HAS_FASTMCP, reason="fastmcp is installed here")
def test_without_fastmcp_its_peers_are_named_as_left_out(bench: Bench) -> None:
    asked = ("--peers", "fastmcp_proxy", "--scenario", "memory", *AT_ONCE)
    report = bench.report("calls", "--quick", *asked)
    assert "fastmcp_proxy is left out: fastmcp is not installed" in bench.told
    assert list(report["left_out"]) == ["fastmcp_proxy"]
    assert [row["peer"] for row in report["rows"]] == ["direct"]


COMPARED: dict[str, tuple[list[str], list[str], list[dict[str, Any]]]] = {
    "definitions": (
        ["fastmcp"],
        ["pydantic", "ours"],
        [{"docstring": kind, "tools": 20} for kind in ("one line", "with sections")],
    ),
    "dispatch": (
        ["fastmcp", "fastmcp_alike"],
        ["ours", "ours_served", "ours_awaiting"],
        [{"tools": tools, "depth": depth} for tools, depth in product([10, 30], [1, 3])],
    ),
}
"""Benchmarks with the peers that need fastmcp, the others, and the cases of each peer."""


@pytest.mark.parametrize("name", COMPARED)
def test_every_peer_is_measured_in_every_case_against_the_base(bench: Bench, name: str) -> None:
    foreign, own, cases = COMPARED[name]
    peers = [*foreign, *own] if HAS_FASTMCP else own
    report = bench.report(name, "--quick")
    expected = [{**case, "peer": peer} for case, peer in product(cases, peers)]
    assert [{key: row[key] for key in expected[0]} for row in report["rows"]] == expected
    assert report["base"] == peers[0]
    for row in report["rows"]:
        assert row["p50_ms"] > 0 and row["x_p50"] > 0
        if "x_cpu" in row:
            assert 0 < row["x_cpu_lo"] <= row["x_cpu"] <= row["x_cpu_hi"] and row["cpu_ms"] > 0
        else:
            assert row["calls"] >= 2 and row["p50_ms"] <= row["p99_ms"]
            assert 0 < row["x_p50_lo"] <= row["x_p50"] <= row["x_p50_hi"]
        if row["peer"] == report["base"]:
            assert row["x_p50"] == row.get("x_cpu", 1) == row.get("x_p50_lo", 1) == 1
    assert (report["benchmark"], report["options"]["quick"]) == (name, True)
    assert {"python", "mcp-toolset", "fastmcp"} <= report["versions"].keys()
    assert list(report["left_out"]) == ([] if HAS_FASTMCP else foreign)
    assert len(bench.said.splitlines()) == 2 + len(report["rows"])


def test_quick_measures_servers_and_imports_against_their_bases(bench: Bench) -> None:
    rows = {row["program"]: row for row in bench.report("start", "--quick", own=True)["rows"]}
    bases = ["the SDK's hello server", "import pydantic"]
    assert [name for name, row in rows.items() if row["ratio"] == 1] == bases
    assert len(rows) == 6
    assert all(row["ms"] > 0 and row["memory_mb"] > 0 for row in rows.values())


def test_m1_a_lazy_hub_lists_and_searches_without_a_process(bench: Bench) -> None:
    rows = {row["program"]: row for row in bench.report("hub_start", "--quick", own=True)["rows"]}
    processes = {name.rpartition(", ")[2]: row["children"] for name, row in rows.items() if row["search_ms"]}
    assert processes["lazy"] == 0
    assert processes["background"] > 0


def test_quick_measures_lists_and_big_results(bench: Bench) -> None:
    figures = bench.report("costs", "--quick")["figures"]
    assert len(figures) == 3
    assert all(figure > 0 for figure in figures.values())


@pytest.mark.needs("audit")
def test_i9_the_benchmark_measures_calls_and_a_long_log(bench: Bench) -> None:
    found = bench.report("audit", "--rounds", "1", "--calls", "3", "--lines", "100")
    assert [(one["transport"], one["era"], one["lines"]) for one in found["calls"]] == [
        (transport, era, 8) for transport in ("stdio", "http") for era in ("legacy", "modern")
    ]
    assert found["log"]["lines"] == 102


@pytest.mark.needs("audit", "telemetry")
def test_e5_the_benchmark_measures_each_choice_beside_a_server_without(bench: Bench) -> None:
    found = bench.report("telemetry", "--rounds", "1", "--calls", "2", "--only", "http modern")
    names = ["off", "off again", "prometheus", "otlp", "every request"]
    assert [one["telemetry"] for one in found["calls"]] == names
    # The last metrics and spans of two servers, when they are stopped.
    assert found["messages"] >= 4


def test_an_index_from_its_file_is_measured_beside_the_import_of_the_sdk(bench: Bench) -> None:
    found = bench.report("index_file", "--quick")["sizes"]["60"]
    assert found["file, MB"] > 0
    assert found["ratio, CPU"] > 0
    assert found["a changed tool, ms"] > 0


@pytest.mark.needs("inbound_auth")
def test_authenticated_calls_are_measured_beside_others_in_both_eras(bench: Bench) -> None:
    found = bench.report("authenticated", "--quick")
    cases = [(row["era"], row["authentication"]) for row in found["rows"]]
    assert cases == [(era, kind) for era in ("legacy", "modern") for kind in ("none", "static token", "JWT")]
    assert all(row["p50_us"] > 0 and row["x_p50"] > 0 for row in found["rows"])


def test_growth_measures_both_curves_the_start_of_several_servers_and_a_change_of_one(bench: Bench) -> None:
    found = bench.report("growth", "--quick")
    assert [list(found[curve]) for curve in ("tools", "servers")] == [["10", "30"], ["1", "3"]]
    assert all(cost > 0 for curve in ("tools", "servers") for cost in found[curve].values())
    assert found["starting"]["all, s"] >= 0.3
    assert set(found["changing"]) == {"listed", "deferred"} and all(found["changing"].values())
    assert list(found["index"]) == ["20", "60"] and found["index"]["60"]["a change, ms"] > 0


def test_pauses_are_measured_while_another_client_is_answered(bench: Bench) -> None:
    found = bench.report("pauses", "--quick")
    phases = [row["phase"] for row in found["rows"]]
    kinds = ("listed: load", "listed: refresh", "deferred: load", "deferred: search", "deferred: refresh")
    assert phases == list(kinds)
    # What is compiled beside the loop leaves it to others, however slow the machine is.
    assert all(row["calls meanwhile"] > 0 for row in found["rows"] if "search" not in row["phase"])


def test_a_local_tool_is_measured_on_our_server_and_on_those_of_the_sdk(bench: Bench) -> None:
    found = bench.report("local_tool", "--quick")
    assert found["base"] == "mcpserver"
    assert len(found["rows"]) == (2 + 1) * 2 * 3
    assert all(row["x_cpu"] > 0 for row in found["rows"])


def test_the_soak_counts_what_could_leak(bench: Bench) -> None:
    found = bench.report("soak", "--seconds", "1")
    assert found["calls"] > 0
    # Worker threads come and go with the load; what leaks is more at the end than ever before.
    half = len(found["samples"]) // 2
    for kind in ("handles", "threads"):
        numbers = [sample[kind] for sample in found["samples"]]
        assert numbers[-1] <= max(numbers[:half])


def test_what_was_measured_is_drawn(bench: Bench, folder: Path, tmp_path: Path) -> None:
    docs = tmp_path / "images"
    bench.run("plots.py", str(folder), str(docs))
    drawn = bench.said.split()
    # Those of `calls` too, if its test has run before.
    assert {"growth.svg", "pauses.svg", "local-tool.svg", "soak.svg"} <= {Path(file).name for file in drawn}
    for file in drawn:
        texts = [element.text for element in ElementTree.parse(file).iter() if element.text]
        assert any("Python" in str(text) for text in texts)
    bench.run("plots.py", str(tmp_path), str(docs))
    assert bench.said == ""
