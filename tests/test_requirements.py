"""The manifest and the tests say the same, read from either side; nothing is run for it."""

from __future__ import annotations

from fnmatch import filter as matching

import pytest
from tests.requirements import ROWS, Row, every_test, manifest, rows_in, unlisted
from tests.support.rows import rows

pytestmark = pytest.mark.needs("*")


MANIFEST = manifest()


def test_every_row_is_in_the_manifest_in_order_and_no_other() -> None:
    assert list(MANIFEST) == ROWS


@rows("row", MANIFEST.values(), lambda row: row.id)
def test_what_a_row_names_exists(row: Row) -> None:
    assert [pattern for pattern in row.tests if not matching(every_test(), pattern)] == []


@rows("row", MANIFEST.values(), lambda row: row.id)
def test_a_row_says_what_it_does_and_what_is_missing(row: Row) -> None:
    assert row.does.strip()
    assert row.state in ("held", "partly", "open")
    assert bool(row.tests) == (row.state != "open")
    assert bool(row.missing) == (row.state != "held")


def test_every_test_that_is_named_after_a_row_is_listed_there() -> None:
    assert unlisted() == []


def test_rows_are_read_from_names() -> None:
    assert rows_in("tests/a.py::test_l17_l26_hooks") == ["L17", "L26"]
    assert rows_in("tests/a.py::test_f31") == ["F31"]
    assert rows_in("tests/l1_x.py::test_utf8_of_sha256_xl4_l4x") == []


def test_a_test_that_no_pattern_has_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tests.requirements.every_test", lambda: ("tests/a.py::test_l1_new", "tests/a.py::test_x99_no")
    )
    assert unlisted() == [("L1", "tests/a.py::test_l1_new"), ("X99", "tests/a.py::test_x99_no")]
