"""What CONTRIBUTING.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.rows import rows

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parent.parent
PLACES = [ROOT, ROOT / "src" / "mcp_toolset"]
NAMED = sorted(
    set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
)


def test_the_page_names_files():
    assert len(NAMED) > 30


@rows("name", NAMED)
def test_a_file_that_the_page_names_is_there(name: str):
    assert any((place / name).exists() for place in PLACES)
