"""The core names no extension: neither in code nor in texts, but for the words that are listed here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import mcp_toolset
from mcp_toolset import _lazy
from mcp_toolset._index import homes, owners
from mcp_toolset.tools.call import CAPABILITIES

SOURCE = Path(mcp_toolset.__file__).parent
FOLDERS = [path.name for path in (SOURCE / "extensions").iterdir() if (path / "__init__.py").exists()]
FACES: Final = (
    "__init__.py",
    "_lazy.py",
    "audit.py",
    "auth.py",
    "code.py",
    "journal.py",
    "middleware.py",
    "policy.py",
    "rounds.py",
    "search.py",
    "shared/__init__.py",
    "telemetry.py",
)
"""The public names of extensions, and where they are found."""

ENGLISH: Final = {"add", "code", "limits", "login", "registry", "suspended", "tasks"}
"""Names that are words of the core as well: errors have a `code`, and say when a `login` is needed."""

NAMES: Final = (
    frozenset(
        [
            *homes("key"),
            *owners("entry"),
            *homes("commands"),
            *FOLDERS,
            *("code_mode", "run_code", "runs_code", "stated_limits", "LimitTable"),
            *(
                name
                for name, home in _lazy.HOMES.items()
                if home.startswith("extensions.") and len(re.findall("[A-Z]", name)) > 1
            ),
        ]
    )
    - ENGLISH
    - {"auth", "oauth", "single"}
)
"""What the index has, and the classes whose names are of more than one English word, as `Record` is one.

    ("config/sections.py", "approvals"): "the page about calls that a policy asks about",
    ("catalog/pins/risky_text.py", "approvals"): "an English word, in texts that mislead models",
    ("catalog/search/lexical.py", "statistics"): "English words that mean the same in a search",
    ("catalog/search/lexical.py", "stats"): "English words that mean the same in a search",
`auth` is a keyword of the core, `oauth` is of the protocol's errors, `single` is English.
"""

EXCEPTIONS: Final = {"processes": "a capability of tools, which `ToolContext` has for whoever provides it"}
"""Why the core has the word of an extension. The list may only shrink."""

_WRITTEN: Final = re.compile(r"(?:`|--|\btoolset\.|\bmcp-toolset )(\w+\b)(?!\.)|\b(\w+)(?:`|=)")
"""How a text names a key, an option, a keyword or a command."""

_CLASS: Final = re.compile(r"\w*[a-z][A-Z]\w*|\w+_\w+")


def words(path: Path) -> Iterator[str]:
    """The identifiers of a module, and what its texts name, but for docstrings.

    A text names what it has whole or as a list of words, and in prose what is written as names are.
    """
    tree = ast.parse(path.read_text())
    nodes = [*ast.walk(tree)]
    told = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    split = (node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "split")
    lists = {id(node.value) for node in split}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            text = node.value
            is_list = id(node) in lists or re.fullmatch(r"[\w./-]+", text)
            yield from re.findall(r"\w+", text) if is_list else _named(text)
            continue
        for name, value in ast.iter_fields(node):
            if name != "value":
                every = value if isinstance(value, list) else [value]
                yield from (word for one in every if isinstance(one, str) for word in one.split("."))


def _named(text: str) -> Iterator[str]:
    for one in _WRITTEN.finditer(text):
        name = one[1] or one[2]
        yield f"={name}" if name in ENGLISH else name
    yield from _CLASS.findall(text)


def found() -> set[tuple[str, str]]:
    core = (path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "extensions")
    return {
        (path.relative_to(SOURCE).as_posix(), word.lstrip("_"))
        for path in core
        if path.relative_to(SOURCE).as_posix() not in FACES
        for word in named(path)
    }


def named(path: Path) -> list[str]:
    """What a module has of extensions; `=login` is the English word, written as a name in a text."""
    return [word for word in words(path) if word.lstrip("_") in NAMES or word.startswith("=")]


def test_the_core_names_no_extension() -> None:
    named = {(path, word) for path, word in found() if word not in EXCEPTIONS}
    assert not named, "say it without the name, have it from the index, or tell why in EXCEPTIONS"


def test_every_exception_is_needed() -> None:
    assert {*EXCEPTIONS} - {word for _, word in found()} == set(), "no module says it any more; remove it"
    assert {*EXCEPTIONS} <= {*CAPABILITIES}


@pytest.mark.parametrize(
    "line",
    [
        "journal = 1",
        "import journal",
        "place = 'toolset.audit'",
        "keys = 'permissions audit'.split()",
        "say = 'write `journal`'",
        "say = f'give {here}(journal=True)'",
        "say = 'run mcp-toolset stats'",
        "say = 'run mcp-toolset login'",
        "say = 'such as PolicyGuard(policy)'",
        "say = 'see large_results here'",
    ],
)
def test_a_name_is_found_in_each_form(line: str, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(line)
    assert named(tmp_path / "one.py")


def test_prose_names_nothing(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text('"""The journal."""\nsay = "several processes keep statistics of it"')
    assert not named(tmp_path / "one.py")


def test_the_names_are_those_of_the_index() -> None:
    assert {"stats", "journal", "idempotency", "large_results", "durable_rounds", "JournalGuard"} <= NAMES
