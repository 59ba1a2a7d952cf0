"""The page of rows has every row of its rooms and says what is open."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.requirements import ROWS, manifest

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "tests" / "rows.md").read_text()
ROOMS = {"L": 28, "A": 18, "O": 9, "N": 8, "H": 6, "P": 2}
SUBJECT = [row for row in ROWS if int(row[1:]) <= ROOMS.get(row[0], 0)] + ["X8"]
ROW = re.compile(r"\b[A-Z]\d{1,2}\b")


def cells() -> set[str]:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    return {row for line in lines for row in ROW.findall(line.split("|")[1])}


def test_every_row_of_tools_and_calls_is_on_the_page_and_no_other() -> None:
    assert sorted(cells()) == sorted(SUBJECT)


def test_what_the_manifest_does_not_call_held_the_page_calls_open() -> None:
    rows = manifest()
    listed = re.findall(r"^- (\w+):", PAGE.partition("## What is open")[2], re.MULTILINE)
    assert listed == [row for row in SUBJECT if rows[row].state != "held"]
