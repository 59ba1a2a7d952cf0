"""`Sources`: the Python files that a program imports from its own folder, found without running them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Final

from mcp_toolset._records import dataclass
from mcp_toolset.errors import TargetError

__all__ = ["Sources"]

_OURS: Final = "mcp_toolset"
_READS: Final = re.compile(r"\b(?:environ\s*(?:\[|\.get\()|getenv\()\s*['\"](\w+)['\"]")


@dataclass(frozen=True, slots=True)
class Sources:
    """What a program consists of.

    Attributes:
        files: Its own files, the program first.
        foreign: The top-level modules that it imports from elsewhere.
        reads: The environment variables that its text names.
    """

    files: tuple[Path, ...]
    foreign: frozenset[str]
    reads: frozenset[str]

    @classmethod
    def of(cls, program: Path, folder: Path) -> Sources:
        """Follow the imports of a program in its folder, those inside of functions too."""
        files: dict[Path, None] = {}
        foreign, reads, todo = set[str](), set[str](), [program]
        while todo:
            file = todo.pop(0)
            if file in files:
                continue
            files[file] = None
            text, names = _read(file, folder)
            reads.update(_READS.findall(text))
            for name in names:
                found = list(_found(folder, name))
                todo.extend(found)
                if not found and not (folder / name.split(".")[0]).is_dir():
                    foreign.add(name.split(".")[0])
        return cls(tuple(files), frozenset(foreign), frozenset(reads))

    def requirements(self) -> list[str]:
        """The installed distributions of the modules that it imports from elsewhere, with their versions."""
        owners = packages_distributions()
        names = self.foreign - sys.stdlib_module_names - {_OURS}
        found = {owner for name in names for owner in owners.get(name, ())}
        return sorted(f"{owner}=={version(owner)}" for owner in found)


def _read(file: Path, folder: Path) -> tuple[str, list[str]]:
    try:
        data = file.read_bytes()
        tree = ast.parse(data)
    except (OSError, SyntaxError, ValueError) as error:
        raise TargetError(
            f"{file}: cannot be read as Python ({error}); correct it, or leave it out"
        ) from None
    return data.decode("utf-8", "replace"), list(_imported(tree, file.parent.relative_to(folder).parts))


def _imported(tree: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """The dotted names that are imported; each may be a module, or a name in one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = [*above, *((node.module or "").split(".") if node.module else ())]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def _found(folder: Path, name: str) -> Iterator[Path]:
    """The files that importing a dotted name loads from a folder: its packages and its module."""
    path = folder
    for part in name.split("."):
        module, path = path / f"{part}.py", path / part
        yield from (file for file in (path / "__init__.py", module) if file.is_file())
        if not path.is_dir():
            return
