"""`ProgramReport`: a child of `serve --reload` reports the files that it has loaded, or why it cannot serve.

The report is a file that the parent names. The child writes it again when the program imports more modules.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import anyio
import click

from mcp_toolset._records import dataclass
from mcp_toolset.cli.program import is_of_project
from mcp_toolset.cli.target import Module, Program
from mcp_toolset.concurrency.atomic_file import replace_file
from mcp_toolset.concurrency.task_set import beside
from mcp_toolset.errors import TargetError, ToolsetError
from mcp_toolset.hub.watch import Stamp, stamp

__all__ = ["Child", "ProgramReport", "main_file"]

_AGAIN: Final = 1.0
"""Seconds between two looks at the imported modules."""


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """What a child has loaded.

    Attributes:
        files: The files of the program's folder that are in use, each as it was after loading.
        fault: Why the program cannot be served; empty if it can.
        decides: Whether the program decides by caller: it has `auth` or a `policy`.
    """

    files: Mapping[Path, Stamp] = field(default_factory=dict[Path, Stamp])
    fault: str = ""
    decides: bool = False

    @classmethod
    def read(cls, path: Path) -> ProgramReport:
        """The report in a file; empty if the child has written none."""
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            return cls()
        files = {Path(name): tuple(stamped) if stamped else None for name, stamped in found["files"].items()}
        return cls(files, found["fault"], found["decides"])

    def write(self, path: Path) -> None:
        """Replace the report in a file."""
        files = {str(name): stamped for name, stamped in self.files.items()}
        text = json.dumps({"files": files, "fault": self.fault, "decides": self.decides})
        replace_file(path, text.encode(), durable=False)


class Child:
    """The child's side: what it reports, and where."""

    def __init__(self, target: Program | Module, path: Path) -> None:
        """Report about a program to the file at `path`."""
        self._target = target
        self._path = path
        self._decides = False
        self._known: frozenset[Path] = frozenset()

    @contextmanager
    def loading(self) -> Generator[None]:
        """Report a program that cannot be loaded, and end this process: the parent tells the reason."""
        try:
            yield
        except ToolsetError as fault:
            frames = _frames_of(fault)
            self._write([name for name, _ in frames], self._placed(fault, frames))
            raise click.exceptions.Exit(1) from None

    def loaded(self, *, decides: bool) -> None:
        """Report a program that is loaded."""
        self._decides = decides
        self._write(())

    def following(self) -> AbstractAsyncContextManager[None]:
        """Report modules that the program imports later, for the length of a block."""
        return beside(self._follow)

    async def _follow(self) -> None:
        while True:
            await anyio.sleep(_AGAIN)
            if not self._files(()) <= self._known:
                self._write(())

    def _placed(self, fault: ToolsetError, frames: Iterable[tuple[str, int | None]]) -> str:
        """The text of an error, with the place in the program if it names none."""
        own = main_file(self._target)
        places = [(name, line) for name, line in frames if is_of_project(Path(name), own)]
        if isinstance(fault, TargetError) or not places:
            return str(fault)
        name, line = places[-1]
        return f"{self._target if name == str(own) else name}: line {line}: {fault}"

    def _files(self, more: Iterable[str]) -> frozenset[Path]:
        own = main_file(self._target)
        found = {file for file in map(Path, (*_imported(), *more)) if is_of_project(file, own)}
        return frozenset(found | {own})

    def _write(self, more: Collection[str], fault: str = "") -> None:
        self._known = self._files(more)
        ProgramReport({file: stamp(file) for file in self._known}, fault, self._decides).write(self._path)


def main_file(target: Program | Module) -> Path:
    """The file of a program; the modules in its folder belong to it."""
    if isinstance(target, Program):
        return Path(target.path).absolute()
    first, *_ = target.module.split(".")
    return Path.cwd() / f"{first}.py"


def _imported() -> Iterator[str]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield file


def _frames_of(fault: BaseException) -> list[tuple[str, int | None]]:
    """The places that an error has passed; a module that has failed is not among those that are imported."""
    found: list[tuple[str, int | None]] = []
    raised: BaseException | None = fault
    while raised is not None:
        found += ((frame.filename, frame.lineno) for frame in traceback.extract_tb(raised.__traceback__))
        if isinstance(raised, SyntaxError) and raised.filename:
            found.append((raised.filename, raised.lineno))
        raised = raised.__cause__ or raised.__context__
    return found
