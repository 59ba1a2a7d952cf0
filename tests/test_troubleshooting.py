"""The texts that the page of troubleshooting explains are texts of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.rows import rows

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
SOURCE = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
TEXTS = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


def test_the_page_has_errors() -> None:
    assert len(TEXTS) > 15


@rows("text", TEXTS)
def test_e3_an_error_of_the_page_is_one_that_is_raised(text: str) -> None:
    # A name in capitals stands for whatever the message has there.
    parts = [part.strip() for part in re.split(r"\b[A-Z]{4,}\b", text) if part.strip()]
    assert [part for part in parts if part not in SOURCE] == []
