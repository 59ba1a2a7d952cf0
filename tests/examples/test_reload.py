"""The page of reloads: its program prints what it says."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.warm import Warm

ROOT = Path(__file__).parents[2]


def test_p13_the_program_of_the_page_prints_what_the_page_says(warm: Warm) -> None:
    file = ROOT / "examples" / "reload" / "changes.py"
    command = warm.command(str(file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    shown = (ROOT / "docs" / "configuration.md").read_text().partition("```text\n")[2].partition("```")[0]
    assert (done.returncode, done.stdout) == (0, shown), done.stderr
