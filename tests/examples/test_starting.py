"""The page about slow servers: its program prints what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "starting.md").read_text()


def test_u9_the_program_of_the_page_prints_what_it_says() -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "starting" / "app.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    shown = PAGE.rpartition("```text\n")[2].partition("```")[0]
    assert (done.returncode, done.stdout) == (0, shown), done.stderr
