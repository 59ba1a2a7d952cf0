"""`pytest.mark.needs("journal")`: a test of the core that is about extensions, skipped without their folders.

A module says it for all of its tests by `pytestmark`, and is not imported without them. `needs("*")` is for
what judges the package as a whole, such as its pages. `scripts/cut` deletes folders; where all are there,
nothing is skipped.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mcp_toolset import extensions

FOLDERS = Path(extensions.__file__).parent


def missing(names: Iterable[str]) -> list[str]:
    """Those of the folders of extensions that are not there."""
    every = [one for name in names for one in (extensions.TABLE if name == "*" else [name])]
    return [name for name in every if not (FOLDERS / name / "__init__.py").exists()]


@cache
def needed_by(path: Path) -> tuple[str, ...]:
    """What `pytestmark` of a module says that all of its tests need; the module is not imported."""
    text = path.read_text()
    if "mark.needs(" not in text:
        return ()
    assigned = (node for node in ast.parse(text).body if isinstance(node, ast.Assign))
    marks = (node.value for node in assigned if ast.unparse(node.targets[0]) == "pytestmark")
    calls = (call for mark in marks for call in ast.walk(mark) if isinstance(call, ast.Call))
    found = (call for call in calls if ast.unparse(call.func) == "pytest.mark.needs")
    return tuple(ast.literal_eval(name) for call in found for name in call.args)


class Absent(pytest.Module):
    """A module whose tests cannot run."""

    def collect(self) -> Iterator[Any]:
        pytest.skip(_why(missing(needed_by(self.path))), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    return Absent.from_parent(parent, path=module_path) if missing(needed_by(module_path)) else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    names = tuple(name for mark in item.iter_markers("needs") for name in mark.args)
    if gone := missing(names):
        pytest.skip(_why(gone))


def _why(gone: list[str]) -> str:
    return f"{', '.join(gone)} not there"
