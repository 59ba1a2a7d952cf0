"""The page about tests: its program prints what the page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.warm import Warm

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"<!-- (examples/testing/[^ ]+) -->\n```python\n.*?```.*?```text\n(.*?)```", re.DOTALL)


def test_the_program_of_the_page_prints_what_the_page_says(warm: Warm) -> None:
    ((file, printed),) = SHOWN.findall((ROOT / "docs" / "testing.md").read_text())
    command = warm.command(str(ROOT / file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
