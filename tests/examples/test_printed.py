"""Programs of these pages print what the pages say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.support.warm import Warm

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"<!-- (examples/[^ ]+) -->\n```python\n(?:(?!```).)*?```\n\n```text\n(.*?)```", re.DOTALL)
PAGES = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "observing",
        "grants",
        "replicas",
        "audit",
        "large-results",
        "what-a-model-reads",
        "offers",
        "journal",
        "suspended",
    )
]
PROGRAMS = dict(found for page in PAGES for found in SHOWN.findall(page.read_text()))


def test_the_programs_are_found() -> None:
    assert len(PROGRAMS) == 14


@pytest.mark.parametrize("file", PROGRAMS)
def test_a_program_prints_what_its_page_says(file: str, warm: Warm) -> None:
    command = warm.command(str(ROOT / file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, PROGRAMS[file]), done.stderr
