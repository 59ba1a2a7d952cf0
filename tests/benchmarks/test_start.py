"""The benchmarks of starts run; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_quick_measures_servers_and_imports_against_their_bases(tmp_path: Path) -> None:
    file = tmp_path / "start.json"
    command = [sys.executable, str(BENCHMARKS / "start.py"), "--quick", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["program"]: row for row in json.loads(file.read_text())["rows"]}
    bases = ["the SDK's hello server", "import pydantic"]
    assert [name for name, row in rows.items() if row["ratio"] == 1] == bases
    assert len(rows) == 6
    assert all(row["ms"] > 0 and row["memory_mb"] > 0 for row in rows.values())


def test_m1_a_lazy_hub_lists_and_searches_without_a_process(tmp_path: Path) -> None:
    file = tmp_path / "hub.json"
    command = [sys.executable, str(BENCHMARKS / "hub_start.py"), "--quick", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["program"]: row for row in json.loads(file.read_text())["rows"]}
    processes = {name.rpartition(", ")[2]: row["children"] for name, row in rows.items() if row["search_ms"]}
    assert processes["lazy"] == 0
    assert processes["background"] > 0
