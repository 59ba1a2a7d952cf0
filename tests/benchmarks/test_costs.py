"""The benchmark of what the bridge costs runs; no time is asserted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.support.warm import Warm

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "costs.py"


def test_quick_measures_lists_and_big_results(tmp_path: Path, warm: Warm) -> None:
    file = tmp_path / "costs.json"
    command = warm.command(str(SCRIPT), "--quick", "--json", str(file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())["figures"]
    assert len(figures) == 3
    assert all(figure > 0 for figure in figures.values())
