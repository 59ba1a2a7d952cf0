"""The page of rows: its programs print what it says; it has every row of its rooms and says what is open."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.requirements import ROWS, manifest
from tests.support.warm import Warm

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "tests" / "rows.md").read_text()
SHOWN = re.compile(
    r"<!-- (?P<file>examples/features/[^ ]+) -->\n```python\n.*?```\n\n```text\n(?P<output>.*?)```", re.DOTALL
)
PROGRAMS = {shown["file"]: shown["output"] for shown in SHOWN.finditer(PAGE)}
ROOMS = {"L": 28, "A": 18, "O": 9, "N": 8, "H": 6, "P": 2}
SUBJECT = [row for row in ROWS if int(row[1:]) <= ROOMS.get(row[0], 0)] + ["X8"]
ROW = re.compile(r"\b[A-Z]\d{1,2}\b")


def cells() -> set[str]:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    return {row for line in lines for row in ROW.findall(line.split("|")[1])}


def test_every_program_is_on_the_page() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples" / "features").glob("*.py")}
    assert set(PROGRAMS) == files


@pytest.mark.parametrize("file", PROGRAMS)
def test_a_program_prints_what_the_page_says(file: str, warm: Warm) -> None:
    command = warm.command(str(ROOT / file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, PROGRAMS[file]), done.stderr


def test_every_row_of_tools_and_calls_is_on_the_page_and_no_other() -> None:
    assert sorted(cells()) == sorted(SUBJECT)


def test_what_the_manifest_does_not_call_held_the_page_calls_open() -> None:
    rows = manifest()
    listed = re.findall(r"^- (\w+):", PAGE.partition("## What is open")[2], re.MULTILINE)
    assert listed == [row for row in SUBJECT if rows[row].state != "held"]
