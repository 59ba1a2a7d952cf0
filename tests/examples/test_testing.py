"""The page about tests: its programs print what the page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.warm import Warm

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"<!-- (examples/testing/[^ ]+) -->\n```python\n.*?```.*?```text\n(.*?)```", re.DOTALL)


def test_the_programs_of_the_page_print_what_the_page_says(warm: Warm) -> None:
    shown = SHOWN.findall((ROOT / "docs" / "testing.md").read_text())
    assert len(shown) == 2
    for file, printed in shown:
        command = warm.command(str(ROOT / file))
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (0, printed), done.stderr
