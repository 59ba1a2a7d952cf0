"""Odd requests have the same answers from our server and the SDK's, or `differences.toml` says why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import pytest
from tests.differences.comparison import (
    COLUMNS,
    Answers,
    Argued,
    Cell,
    Servers,
    argued,
    both_servers,
    faults_of,
    requests_of,
    within,
)
from tests.differences.odd_messages import odd_messages
from tests.differences.odd_posts import odd_posts


@pytest.fixture(scope="module")
def servers() -> Generator[Servers]:
    with both_servers() as servers:
        yield servers


@pytest.mark.long
@pytest.mark.parametrize("column", COLUMNS)
def test_odd_requests_are_answered_as_the_sdk_answers_them_or_the_difference_is_argued(
    servers: Servers, column: str
) -> None:
    cells = servers.cells(column)
    assert faults_of(cells, within(column, argued())) == []
    # A door that lets nothing through would have no differences either.
    assert len(cells) >= 150
    assert any(both == (both[0], both[0]) and "result" in both[0] for both in cells.values())


def test_the_tables_of_odd_requests_have_their_size_and_no_name_twice() -> None:
    names = Counter(request.name for request in (*odd_messages(), *odd_posts()))
    assert names.total() >= 400 and max(names.values()) == 1
    assert {column.split()[1] for column in COLUMNS} == {"legacy", "modern"}
    assert all(len(list(requests_of(column))) >= 150 for column in COLUMNS)


def test_each_entry_says_what_kind_of_difference_it_is_and_why() -> None:
    for entry in argued():
        assert entry.kind in ("stricter", "looser", "other"), entry
        assert entry.state in ("argued", "open"), entry
        assert entry.section and entry.why and "\n" not in entry.why, entry


def test_differences_that_are_new_or_gone_or_not_sent_are_faults() -> None:
    new, gone, same = ("new", "stdio legacy"), ("gone", "stdio legacy"), ("same", "stdio legacy")
    cells = {new: ("result", "error -32602"), gone: ("result", "result"), same: ("result", "result")}
    told = faults_of(
        cells, [_looser({gone: ("result", "no answer"), ("old", "http legacy"): ("200", "400")})]
    )
    assert _starts(told) == ["argued, but not sent", "a new difference", "a difference that is gone"]
    assert faults_of({same: cells[same]}, []) == []
    other = faults_of({new: cells[new]}, [_looser({new: ("result", "no answer")})])
    assert _starts(other) == ["a new difference"]


def _looser(cells: dict[Cell, Answers]) -> Argued:
    return Argued(cells, "looser", "argued", "basic", "for a test")


def _starts(faults: list[str]) -> list[str]:
    return [fault.partition(":")[0] for fault in faults]
