"""`pytest.mark.pairwise`: of a product of factors, each run has cases in which every pair of values meets.

The cases are the same in every run. `--every-case`, as in `scripts/doors`, runs the others too. What the
factors of a case are says `of`, by the values of its parameters; without it, each parameter is one. With
`meet=1` each value is in some case, whichever others it meets there.

`pytest.mark.long`: what takes long by nature, such as a run of a benchmark; `--every-case` alone runs it, as
in `scripts/long`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from itertools import combinations
from typing import Any

import pytest

Row = tuple[Hashable, ...]


@cache
def pairwise(rows: tuple[Row, ...], meet: int = 2) -> frozenset[Row]:
    """Rows in which each two values meet that meet in any row: again and again the first that adds most."""
    pairs = {row: frozenset(combinations(enumerate(row), meet)) for row in rows}
    missing = frozenset().union(*pairs.values())
    chosen: set[Row] = set()
    while missing:
        best = max(rows, key=lambda row: len(pairs[row] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return frozenset(chosen)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-case", action="store_true", help="run `long` tests, and what `pairwise` leaves out"
    )


def pytest_report_header(config: pytest.Config) -> str:
    every = config.getoption("--every-case")
    return f"pairwise: {'every case' if every else 'each pair of values; every case by --every-case'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--every-case"):
        left = {*left_out(items), *(item for item in items if item.get_closest_marker("long"))}
        config.hook.pytest_deselected(items=[*left])
        items[:] = [item for item in items if item not in left]


def left_out(items: Iterable[pytest.Item]) -> Iterable[pytest.Item]:
    """The cases of marked tests that have no pair of their own."""
    tests: defaultdict[str, dict[pytest.Item, Row]] = defaultdict(dict)
    for item in items:
        mark, call = item.get_closest_marker("pairwise"), getattr(item, "callspec", None)
        if mark is not None and call is not None:
            tests[item.nodeid.partition("[")[0]][item] = _row(mark.kwargs, call)
    for cases in tests.values():
        mark = next(iter(cases)).get_closest_marker("pairwise")
        meet = 2 if mark is None else mark.kwargs.get("meet", 2)
        chosen = pairwise(tuple(dict.fromkeys(cases.values())), meet)
        yield from (item for item, row in cases.items() if row not in chosen)


def _row(options: Mapping[str, Any], call: Any) -> Row:
    return tuple(options["of"](call.params) if "of" in options else map(repr, call.params.values()))
