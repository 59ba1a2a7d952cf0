"""What CONTRIBUTING.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.rows import rows

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parent.parent
PLACES = [ROOT, ROOT / "src" / "mcp_toolset"]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATH = r"`((?:[\w.-]+/)+[\w.-]*)`"
NAMED = sorted(set(re.findall(PATH, TEXT)))
WITHIN = sorted(
    f"{file} {name}"
    for file, names in re.findall(PATH + r" \(((?:`[\w.…]+`(?:, )?)+)\)", TEXT)
    for name in re.findall(r"[\w.]+", names)
)
"""Files with the names that stand in parentheses behind them, as in `FILE` (`NAME`)."""


def test_the_page_names_files():
    assert len(NAMED) > 30


@rows("name", NAMED)
def test_a_file_that_the_page_names_is_there(name: str):
    assert any((place / name).exists() for place in PLACES)


def test_the_page_names_what_is_in_files():
    assert len(WITHIN) > 25


@rows("named", WITHIN)
def test_what_the_page_names_in_a_file_is_there(named: str):
    file, name = named.split()
    [text] = [(place / file).read_text(encoding="utf-8") for place in PLACES if (place / file).is_file()]
    assert all(re.search(rf"\b{part}", text) for part in name.split("."))
