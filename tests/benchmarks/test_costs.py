"""The benchmark of what the bridge costs runs; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "costs.py"


def test_quick_measures_lists_and_big_results(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())["figures"]
    assert len(figures) == 3
    assert all(figure > 0 for figure in figures.values())
