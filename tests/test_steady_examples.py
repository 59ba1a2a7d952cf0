"""Examples that are drawn are the same in every process, whatever it has loaded before."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[tuple[list[str], int]]:
    seen: list[tuple[list[str], int]] = []

    @settings(max_examples=200)
    @given(st.lists(st.text()), st.integers())
    def draw(texts: list[str], number: int) -> None:
        seen.append((texts, number))

    draw()
    return seen


def test_a_module_that_is_loaded_changes_no_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = drawn()
    constants = [f"constant {number}" for number in range(100)]
    source = f"WORDS = {constants}\nNUMBERS = {list(range(1000, 1100))}"
    (tmp_path / "full_of_constants.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    import_module("full_of_constants")
    assert drawn() == before
    del sys.modules["full_of_constants"]
