"""A test that needs an extension says which, and is skipped only where its folder is not there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.support import needs

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("test_*.py"))


def said(path: Path) -> set[str]:
    """All that the marks of a module name."""
    text = path.read_text()
    if "mark.needs(" not in text:
        return set()
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    marks = (call for call in calls if ast.unparse(call.func).endswith("mark.needs"))
    return {ast.literal_eval(name) for call in marks for name in call.args}


def test_every_mark_names_folders_that_are_there() -> None:
    wrong = {path.name: gone for path in FILES if (gone := needs.missing(said(path)))}
    assert not wrong, "nothing is skipped where all folders are there"


def test_a_module_says_it_to_whoever_does_not_import_it(tmp_path: Path) -> None:
    path = tmp_path / "test_one.py"
    path.write_text("import missing\npytestmark = [pytest.mark.anyio, pytest.mark.needs('journal', 'code')]")
    assert needs.needed_by(path) == ("journal", "code")


def test_without_its_folder_a_test_is_skipped_with_the_reason(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    request.applymarker(pytest.mark.needs("journal"))
    needs.pytest_runtest_setup(request.node)
    monkeypatch.setattr(needs, "FOLDERS", tmp_path)
    with pytest.raises(pytest.skip.Exception, match="journal not there"):
        needs.pytest_runtest_setup(request.node)


def test_without_its_folder_a_module_is_skipped_and_not_imported(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "test_two.py"
    path.write_text("raise AssertionError('imported')\npytestmark = pytest.mark.needs('journal')")
    assert needs.pytest_pycollect_makemodule(path, request.session) is None
    monkeypatch.setattr(needs, "FOLDERS", tmp_path)
    made = needs.pytest_pycollect_makemodule(path, request.session)
    assert made is not None
    with pytest.raises(pytest.skip.Exception, match="journal not there"):
        made.collect()
