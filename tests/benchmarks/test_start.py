"""The benchmark of starts runs; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "start.py"


def test_quick_measures_servers_and_imports_against_their_bases(tmp_path: Path) -> None:
    file = tmp_path / "start.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["program"]: row for row in json.loads(file.read_text())["rows"]}
    bases = ["the SDK's hello server", "import pydantic"]
    assert [name for name, row in rows.items() if row["ratio"] == 1] == bases
    assert len(rows) == 6
    assert all(row["ms"] > 0 and row["memory_mb"] > 0 for row in rows.values())
