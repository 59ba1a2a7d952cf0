"""The benchmark of the audit log runs; no time is asserted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.warm import Warm

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "audit.py"


@pytest.mark.needs("audit")
def test_i9_the_benchmark_measures_calls_and_a_long_log(tmp_path: Path, warm: Warm) -> None:
    file = tmp_path / "audit.json"
    options = ["--rounds", "1", "--calls", "3", "--lines", "100", "--json", str(file)]
    command = warm.command(str(SCRIPT), *options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert [(one["transport"], one["era"], one["lines"]) for one in found["calls"]] == [
        (transport, era, 8) for transport in ("stdio", "http") for era in ("legacy", "modern")
    ]
    assert found["log"]["lines"] == 102
