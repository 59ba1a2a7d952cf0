"""The benchmark of definitions runs on a fresh checkout and writes what it promises; no time is asserted."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.conftest import Refused

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "definitions.py"
HAS_FASTMCP = importlib.util.find_spec("fastmcp") is not None
PEERS = ["fastmcp", "pydantic", "ours"] if HAS_FASTMCP else ["pydantic", "ours"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    file = tmp_path_factory.mktemp("definitions") / "definitions.json"
    done = run("--quick", "--json", str(file))
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


def test_every_peer_is_measured_with_each_kind_of_docstring(quick: tuple[dict[str, Any], str]) -> None:
    report, _ = quick
    cases = [(row["docstring"], row["peer"]) for row in report["rows"]]
    assert cases == [(kind, peer) for kind in ("one line", "with sections") for peer in PEERS]


def test_every_row_has_its_ratios_to_the_base(quick: tuple[dict[str, Any], str]) -> None:
    report, _ = quick
    assert report["base"] == PEERS[0]
    for row in report["rows"]:
        assert row["tools"] == 20
        assert 0 < row["x_cpu_lo"] <= row["x_cpu"] <= row["x_cpu_hi"]
        assert row["cpu_ms"] > 0 and row["p50_ms"] > 0
        if row["peer"] == report["base"]:
            assert row["x_cpu"] == row["x_p50"] == 1


def test_the_report_names_versions_options_and_who_is_left_out(quick: tuple[dict[str, Any], str]) -> None:
    report, shown = quick
    assert (report["benchmark"], report["options"]["quick"]) == ("definitions", True)
    assert {"python", "mcp-toolset", "fastmcp", "pydantic"} <= report["versions"].keys()
    assert list(report["left_out"]) == ([] if HAS_FASTMCP else ["fastmcp"])
    assert len(shown.splitlines()) == 2 + len(report["rows"])


@pytest.mark.parametrize("option", ["--rounds", "--tools"])
def test_a_wrong_option_is_a_usage_error(refused: Refused, option: str) -> None:
    assert option in refused(SCRIPT, option, "0")
