"""The page of observers: its program prints what the page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.warm import Warm

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"<!-- (examples/observing/[^ ]+) -->\n```python\n.*?```\n\n```text\n(.*?)```", re.DOTALL)


def test_the_program_prints_what_its_page_says(warm: Warm) -> None:
    file, printed = SHOWN.findall((ROOT / "docs" / "observing.md").read_text())[0]
    command = warm.command(str(ROOT / file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
