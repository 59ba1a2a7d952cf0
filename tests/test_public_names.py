"""What examples, pages and servers import has a public home, and each public home loads what it names."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
from tests.support.rows import rows

import mcp_toolset

pytestmark = pytest.mark.needs("*")


ROOT = Path(__file__).parents[1]
NAMESPACES = [
    "arguments",
    "audit",
    "auth",
    "code",
    "config",
    "errors",
    "extending",
    "grants",
    "journal",
    "middleware",
    "policy",
    "rounds",
    "search",
    "shared",
    "telemetry",
    "testing",
]
HOMES = {"mcp_toolset", *(f"mcp_toolset.{name}" for name in NAMESPACES)}
PROGRAMS = sorted([*(ROOT / "examples").rglob("*.py"), *(ROOT / "servers").rglob("*.py")])
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "servers").rglob("*.md")])
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
LAZY = [name for name in NAMESPACES if name not in ("config", "errors")]


def imported(source: str) -> set[tuple[str, str]]:
    """What a program imports of the package: module and name."""
    found: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
    return {one for one in found if one[0].partition(".")[0] == "mcp_toolset"}


def check(source: str) -> None:
    for module, name in imported(source):
        assert module in HOMES, f"{name or module} is imported from a path that is not public: {module}"
        assert not name or name in [*import_module(module).__all__, *NAMESPACES], f"{name} of {module}"


def test_programs_and_pages_are_found():
    assert len([path for path in PROGRAMS if imported(path.read_text())]) > 40
    assert len([code for page in PAGES for code in CODE.findall(page.read_text())]) > 20


@rows("path", PROGRAMS)
def test_a_program_imports_from_public_homes_only(path: Path):
    check(path.read_text())


@rows("page", PAGES)
def test_a_page_imports_from_public_homes_only(page: Path):
    for code in CODE.findall(page.read_text()):
        check(code)


@rows("name", sorted(HOMES))
def test_a_home_has_each_of_its_names_and_lists_them(name: str):
    module = import_module(name)
    assert list(module.__all__) == sorted(set(module.__all__))
    assert {one for one in module.__all__ if getattr(module, one) is None} == set()
    assert {*module.__all__} <= {*dir(module)}


def test_the_namespaces_are_names_of_the_package():
    assert {*NAMESPACES} <= {*dir(mcp_toolset)}
    assert {
        name for name in NAMESPACES if getattr(mcp_toolset, name) is not import_module(f"mcp_toolset.{name}")
    } == set()


def test_each_public_name_has_one_home_and_there_are_not_many():
    homes = [name for space in NAMESPACES for name in import_module(f"mcp_toolset.{space}").__all__]
    homes += mcp_toolset.__all__
    assert [name for name, count in Counter(homes).items() if count > 1] == ["ToolsetError"]
    assert len({*homes}) <= 155


@rows("name", ["mcp_toolset", *(f"mcp_toolset.{name}" for name in LAZY)])
def test_an_unknown_name_of_a_home_is_an_attribute_error(name: str):
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'no_such_name'"):
        _ = import_module(name).no_such_name


def test_importing_every_lazy_namespace_loads_nothing_behind_it():
    imports = "; ".join(f"import mcp_toolset.{name}" for name in LAZY)
    script = f"import json, sys; {imports}; print(json.dumps([n for n in sys.modules if 'mcp' in n]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    public = {"mcp_toolset", "mcp_toolset._lazy", *(f"mcp_toolset.{name}" for name in LAZY)}
    assert set(json.loads(done.stdout)) == public


def test_no_namespace_has_the_name_of_a_public_object():
    assert not {*NAMESPACES} & {*mcp_toolset.__all__}


def test_every_public_name_and_its_members_have_a_docstring():
    spaces = (mcp_toolset, *(import_module(f"mcp_toolset.{name}") for name in NAMESPACES))
    objects = {f"{space.__name__}.{name}": getattr(space, name) for space in spaces for name in space.__all__}
    objects = {name: one for name, one in objects.items() if inspect.isclass(one) or inspect.isfunction(one)}
    missing = [name for name, one in objects.items() if not inspect.getdoc(one)]
    for name, one in objects.items():
        for member in vars(one) if inspect.isclass(one) else ():
            found = inspect.getattr_static(one, member)
            has_one = isinstance(found, property | classmethod | staticmethod) or inspect.isfunction(found)
            if has_one and not member.startswith("_") and not inspect.getdoc(getattr(one, member)):
                missing.append(f"{name}.{member}")
    assert not missing


def test_the_page_of_public_names_has_all_of_them_and_no_others():
    text = (ROOT / "docs" / "glossary.md").read_text()
    first, namespaces, further = re.split(r"^### .*$", text, flags=re.MULTILINE)[1:]
    rows = dict(re.findall(r"^\| `(\w+)`: [^|]*\| (.*) \|$", namespaces, re.MULTILINE))
    listed = {name: re.findall(r"`(\w+)`", row) for name, row in rows.items()}
    assert listed == {name: list(import_module(f"mcp_toolset.{name}").__all__) for name in NAMESPACES}
    front = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \| ", first, re.MULTILINE)[1:])))
    assert 25 <= len(front) <= 35
    others = set(re.findall(r"`(\w+)`", further))
    assert front | others <= {*mcp_toolset.__all__}
    assert {*mcp_toolset.__all__} - front - others <= set().union(*listed.values())
