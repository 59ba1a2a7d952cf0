"""Every benchmark runs and writes what it promises. No time is asserted, only what does not drift."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

FEWER_PIECES = 1.2
"""How much more CPU than the SDK's own server a local tool of ours may cost, both under the same load."""


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


def report(folder: Path, name: str, *arguments: str) -> dict[str, Any]:
    file = folder / f"{name}.json"
    run(f"{name}.py", *arguments, "--json", str(file))
    return json.loads(file.read_text())


def test_growth_measures_both_curves_and_the_start_of_several_servers(folder: Path) -> None:
    found = report(folder, "growth", "--quick")
    assert [list(found[curve]) for curve in ("tools", "servers")] == [["10", "30"], ["1", "3"]]
    assert all(cost > 0 for curve in ("tools", "servers") for cost in found[curve].values())
    assert found["starting"]["all, s"] >= 0.3


def test_pauses_are_measured_while_another_client_is_answered(folder: Path) -> None:
    found = report(folder, "pauses", "--quick")
    phases = [row["phase"] for row in found["rows"]]
    kinds = ("listed: load", "listed: refresh", "deferred: load", "deferred: search", "deferred: refresh")
    assert phases == list(kinds)
    # What is compiled beside the loop leaves it to others, however slow the machine is.
    assert all(row["calls meanwhile"] > 0 for row in found["rows"] if "search" not in row["phase"])


def test_a_local_tool_costs_no_more_than_on_the_servers_of_the_sdk(folder: Path) -> None:
    found = report(folder, "local_tool", "--rounds", "2", "--budget", "0.05")
    assert found["base"] == "mcpserver"
    assert len(found["rows"]) == 2 * 2 * 2 * 3
    ours = [row for row in found["rows"] if row["peer"] == "ours" and row["scenario"] == "memory"]
    # 0.5 to 0.7 on any machine; CPU of one process, in the same run.
    assert all(row["x_cpu"] < FEWER_PIECES for row in ours)


def test_the_soak_counts_what_could_leak(folder: Path) -> None:
    found = report(folder, "soak", "--seconds", "2")
    assert found["calls"] > 0
    first, last = found["samples"][0], found["samples"][-1]
    assert last["handles"] <= first["handles"]
    # An idle worker thread may have gone meanwhile.
    assert last["threads"] <= first["threads"]


def test_what_was_measured_is_drawn(folder: Path, tmp_path: Path) -> None:
    docs = tmp_path / "images"
    drawn = run("plots.py", str(folder), str(docs)).split()
    assert {Path(file).name for file in drawn} == {"growth.svg", "pauses.svg", "local-tool.svg", "soak.svg"}
    for file in drawn:
        texts = [element.text for element in ElementTree.parse(file).iter() if element.text]
        assert any("Python" in str(text) for text in texts)
    assert run("plots.py", str(tmp_path), str(docs)) == ""
