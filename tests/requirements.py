"""The manifest that ties every row of the requirements to its tests, read and compared with the tests.

`tests/requirements.toml` and `tests/findings.toml` have a table for each row: `does` in our own words,
`state` (`held`, `partly`, `open`), `tests` (node ids, `*` allowed in the name), and `missing`, the reason
of a row that is not held.

    python tests/requirements.py --missing    tests named after a row that the manifest does not have there
    python tests/requirements.py              how many rows are held, and what is missing of the others
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MANIFESTS = (Path(__file__).with_suffix(".toml"), Path(__file__).with_name("findings.toml"))
GROUPS = {"L": range(1, 29), "A": [*range(1, 15), 16, 18], "O": range(1, 10), "N": range(1, 12)} | {
    "H": range(1, 27),
    "P": range(1, 14),
    "X": range(1, 10),
    "I": range(1, 11),
    "M": range(1, 11),
    "J": range(1, 8),
    "R": [1, 2, 3, 4, 5, 7],
    "E": range(1, 11),
    "F": range(1, 48),
    "U": [*range(1, 63), *range(65, 126)],
    "S": range(1, 8),
    "K": range(1, 11),
    "G": range(1, 9),
}
ROWS = [f"{group}{number}" for group, numbers in GROUPS.items() for number in numbers]
_AT_THE_EDGE = re.compile(r"^(?:async )?def (test_\w+)|^(Test\w+) = ", re.MULTILINE)
_FURTHER_IN = re.compile(r"^    (?:async )?def test_|^    Test\w+ = ", re.MULTILINE)
_IN_NAME = re.compile(r"(?<=_)[laonhpxfusimejrkg]\d{1,3}(?=_|$)")


@dataclass(frozen=True)
class Row:
    """One row of the manifest."""

    id: str
    does: str
    state: str
    tests: tuple[str, ...]
    missing: str

    def names(self, test: str) -> bool:
        """True if one of its patterns stands for a test."""
        return any(fnmatchcase(test, pattern) for pattern in self.tests)


def manifest() -> dict[str, Row]:
    """The rows by their ids, in the order of the files."""
    return {
        id: Row(id, row["does"], row["state"], tuple(row.get("tests", ())), row.get("missing", ""))
        for file in MANIFESTS
        for id, row in tomllib.loads(file.read_text()).items()
    }


@cache
def every_test() -> tuple[str, ...]:
    """Every test as `tests/path.py::name`, read from the sources without running them."""
    return tuple(test for file in sorted((ROOT / "tests").rglob("test_*.py")) for test in _tests_in(file))


def _tests_in(file: Path) -> Iterator[str]:
    place, text = file.relative_to(ROOT).as_posix(), file.read_text()
    if not _FURTHER_IN.search(text):
        # Most files have no test in a class, and need not be parsed.
        yield from (f"{place}::{found[1] or found[2]}" for found in _AT_THE_EDGE.finditer(text))
        return
    tree = ast.parse(text)
    inside = (node for each in tree.body if isinstance(each, ast.ClassDef) for node in each.body)
    for node in chain(tree.body, inside):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield f"{place}::{name}"
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("Test"):
                yield f"{place}::{name}"
            case _:
                pass


def rows_in(test: str) -> list[str]:
    """The rows that a test's name carries: `test_l17_l26_…` has two."""
    return [row.upper() for row in _IN_NAME.findall(test.rpartition("::")[2])]


def unlisted() -> list[tuple[str, str]]:
    """Tests that are named after a row and that the manifest does not have there: the row, the test."""
    rows = manifest()
    named = [(row, test) for test in every_test() for row in rows_in(test)]
    return [(row, test) for row, test in named if row not in rows or not rows[row].names(test)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--missing", action="store_true", help="only the tests that are not listed")
    if parser.parse_args().missing:
        lines = dict.fromkeys(
            f'{row}: "{test.split("::")[0]}::*_{row.lower()}_*"' for row, test in unlisted()
        )
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    rows = manifest().values()
    sys.stdout.write(f"{sum(row.state == 'held' for row in rows)} of {len(rows)} rows are held\n")
    sys.stdout.writelines(f"{row.id} ({row.state}): {row.missing}\n" for row in rows if row.missing)


if __name__ == "__main__":
    main()
