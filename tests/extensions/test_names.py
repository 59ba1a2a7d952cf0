"""The core names no extension: neither in code nor in texts, but for the words that are listed here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import mcp_toolset
from mcp_toolset import _lazy, extensions

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

ENGLISH: Final = {
    *("auth", "code", "forward", "limits", "login", "logout", "oauth", "single", "suspended", "tasks"),
}
"""Words of the core: `auth` is a hook of programs, errors have a `code`, and say when a `login` is needed."""

NAMES: Final = (
    frozenset(
        [
            *extensions.KEYS,
            *extensions.SERVER_KEYS,
            *extensions.COMMANDS,
            *FOLDERS,
            *(
                "code_mode",
                "run_code",
                "runs_code",
                "stated_limits",
                "CountStore",
                "LimitTable",
                "SharedLimits",
            ),
            *(
                name
                for name, home in _lazy.HOMES.items()
                if home.startswith("extensions.") and len(re.findall("[A-Z]", name)) > 1
            ),
        ]
    )
    - ENGLISH
)
"""What the index has, and the classes whose names are of more than one English word, as `Record` is one."""

EXCEPTIONS: Final[dict[tuple[str, str], str]] = {
    ("calls/pipeline/rule_set.py", "PolicyGuard"): "an error says how a guard is given",
    ("config/sections.py", "approvals"): "the page about calls that a policy asks about",
    ("config/keys.py", "approvals"): "a rule in a wrong place is told by its look",
    ("catalog/pins/risky_patterns.py", "approvals"): "an English word, in texts that mislead models",
    ("catalog/search/aliases.py", "statistics"): "English words that mean the same in a search",
    ("catalog/search/aliases.py", "stats"): "English words that mean the same in a search",
    (
        "config/keys.py",
        "audit",
    ): "a rule in a wrong place is told by its look, also if it is none of the core's",
    ("cli/options.py", "processes"): "an English word, of a file that several can share",
    ("server/handler_context.py", "processes"): "a capability of tools, and how to have it",
    ("tools/core/call.py", "processes"): "a capability of tools",
    ("tools/core/capability.py", "processes"): "a capability of tools",
    ("tools/core/sampling.py", "sampler"): "the model of a program, which a mount can have as well",
    ("tools/declare/round_context.py", "processes"): "a capability of tools",
    ("catalog/search/ranking.py", "EmbeddingScorer"): "the error of a wrong scorer says how to mend it",
    ("tools/view/view.py", "ToolRound"): "an error says how to mend it",
    ("tools/core/call.py", "journal"): "the error of a tool that needs recorded calls says how to mend it",
}
"""Why the core has the word of an extension, by module and word. The list may only shrink."""


def words(path: Path) -> Iterator[str]:
    """The identifiers of a module, and the words of its texts; not those of its docstrings."""
    tree = ast.parse(path.read_text())
    told = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str) and id(node) not in told:
                    yield from re.findall(r"\w+", one)


def found() -> set[tuple[str, str]]:
    core = (path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "extensions")
    return {
        (path.relative_to(SOURCE).as_posix(), word)
        for path in core
        if path.relative_to(SOURCE).as_posix() not in FACES
        for word in words(path)
        if word.lstrip("_") in NAMES
    }


def test_the_core_names_no_extension() -> None:
    named = found() - {*EXCEPTIONS}
    assert not named, "say it without the name, or tell why in EXCEPTIONS"


def test_every_exception_is_needed() -> None:
    assert {*EXCEPTIONS} - found() == set(), "the core does not say it any more; remove it from EXCEPTIONS"


def test_the_names_are_those_of_the_index() -> None:
    assert {"stats", "journal", "idempotency", "large_results", "durable_rounds", "JournalStore"} <= NAMES
    assert all(EXCEPTIONS.values())
