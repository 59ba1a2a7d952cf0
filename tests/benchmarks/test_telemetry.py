"""The benchmark of metrics and traces runs; no time is asserted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.warm import Warm

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "telemetry.py"


@pytest.mark.needs("audit", "telemetry")
def test_e5_the_benchmark_measures_each_choice_beside_a_server_without(tmp_path: Path, warm: Warm) -> None:
    file = tmp_path / "telemetry.json"
    options = ["--rounds", "1", "--calls", "2", "--only", "http modern", "--json", str(file)]
    done = subprocess.run(
        warm.command(str(SCRIPT), *options), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    names = ["off", "off again", "prometheus", "otlp", "every request"]
    assert [one["telemetry"] for one in found["calls"]] == names
    # The last metrics and spans of two servers, when they are stopped.
    assert found["messages"] >= 4
