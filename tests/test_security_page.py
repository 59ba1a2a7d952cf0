"""The promises of SECURITY.md name tests that exist, and its links lead somewhere."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from tests.support.rows import rows

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text()
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::([^`]+))?`", PAGE)))


def test_i9_the_page_names_tests() -> None:
    assert len(TESTS) > 15


@rows("file, pattern", TESTS)
def test_i9_a_promise_names_tests_that_exist(file: str, pattern: str) -> None:
    names = re.findall(r"^ *(?:async )?def (test_\w+)", (ROOT / file).read_text(), re.MULTILINE)
    assert [name for name in names if fnmatchcase(name, pattern or "*")]


def test_i9_links_of_the_page_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", PAGE)
    assert links
    for link, part in links:
        heads = re.findall(r"^#+ (.+)$", (ROOT / link).read_text(), re.MULTILINE)
        assert not part or part in {re.sub(r"[^\w-]", "", head.lower().replace(" ", "-")) for head in heads}
