"""The types that users rely on, proved by a type checker: right uses pass and wrong ones do not."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TYPING = ROOT / "tests" / "typing"
MARK = re.compile(r"#.*\bexpected-error\b")


@cache
def _errors() -> list[Any]:
    """What `pyright` says of all files of uses, read in one run."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "--project", str(TYPING)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 3
    return [one for one in report["generalDiagnostics"] if one["severity"] == "error"]


def pyright(uses: Path) -> dict[int, str]:
    """The errors in the uses by line, as `pyright` sees them."""
    found = [one for one in _errors() if Path(one["file"]).name == uses.name]
    return {one["range"]["start"]["line"] + 1: one["message"] for one in found}


def mypy(uses: Path) -> dict[int, str]:
    """The errors in the uses by line, as `mypy` sees them."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--output=json",
        "--strict",
        "--config-file=",
        "--no-incremental",
    ]
    done = subprocess.run([*command, str(uses)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert not done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        one["line"]: one["message"]
        for one in found
        if one["severity"] == "error" and Path(one["file"]).name == uses.name
    }


def check(uses: Path, found: dict[int, str], least: int) -> None:
    lines = uses.read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if MARK.search(line)}
    assert len(expected) >= least
    assert {number: found[number] for number in found.keys() - expected} == {}
    assert [lines[number - 1] for number in sorted(expected - found.keys())] == []


def test_l7_every_right_use_passes_and_every_wrong_one_is_an_error():
    uses = TYPING / "right_and_wrong.py"
    check(uses, pyright(uses), 30)


def test_u103_the_verbs_of_a_toolset_keep_the_types_of_its_calls():
    text = (TYPING / "right_and_wrong.py").read_text()
    part = text[text.index("# Every verb keeps") : text.index("\nAppCall = ")]
    first = text[: text.index(part)].count("\n") + 1
    lines = range(first, first + part.count("\n"))
    found = {line for line in pyright(TYPING / "right_and_wrong.py") if line in lines}
    assert found == {line for line in lines if MARK.search(text.splitlines()[line - 1])} != set()


@pytest.mark.parametrize("checker", [pyright, pytest.param(mypy, marks=pytest.mark.long)])
def test_u104_both_checkers_narrow_the_calls_of_declared_classes(checker: Callable[[Path], dict[int, str]]):
    uses = TYPING / "calls.py"
    check(uses, checker(uses), 3)


def test_u104_a_toolset_of_declared_classes_infers_its_calls():
    uses = TYPING / "inferred.py"
    check(uses, pyright(uses), 2)
