"""The benchmark of dispatch runs on a fresh checkout and writes what it promises; no time is asserted."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.conftest import Refused

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "dispatch.py"
HAS_FASTMCP = importlib.util.find_spec("fastmcp") is not None
OWN = ["ours", "ours_served", "ours_awaiting"]
OTHERS = ["fastmcp", "fastmcp_alike"]
PEERS = [*OTHERS, *OWN] if HAS_FASTMCP else OWN


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    file = tmp_path_factory.mktemp("dispatch") / "dispatch.json"
    done = run("--quick", "--json", str(file))
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


def test_every_peer_is_measured_at_every_number_of_tools_and_depth(quick: tuple[dict[str, Any], str]) -> None:
    report, _ = quick
    cases = [(row["tools"], row["depth"], row["peer"]) for row in report["rows"]]
    assert cases == list(product([10, 30], [1, 3], PEERS))


def test_every_row_has_its_ratios_to_the_base(quick: tuple[dict[str, Any], str]) -> None:
    report, _ = quick
    assert report["base"] == PEERS[0]
    for row in report["rows"]:
        assert row["calls"] >= 2 and 0 < row["p50_ms"] <= row["p99_ms"]
        assert 0 < row["x_p50_lo"] <= row["x_p50"] <= row["x_p50_hi"]
        if row["peer"] == report["base"]:
            assert row["x_p50_lo"] == row["x_p50_hi"] == 1


def test_the_report_names_versions_options_and_who_is_left_out(quick: tuple[dict[str, Any], str]) -> None:
    report, shown = quick
    assert (report["benchmark"], report["options"]["quick"]) == ("dispatch", True)
    assert {"python", "mcp-toolset", "fastmcp"} <= report["versions"].keys()
    assert list(report["left_out"]) == ([] if HAS_FASTMCP else OTHERS)
    assert len(shown.splitlines()) == 2 + len(report["rows"])


@pytest.mark.parametrize(
    ("option", "value"), [("--rounds", "0"), ("--tools", "0"), ("--depth", "0"), ("--budget", "0")]
)
def test_a_wrong_option_is_a_usage_error(refused: Refused, option: str, value: str) -> None:
    assert option in refused(SCRIPT, option, value)
