"""`serve FILE.py --reload`: a child process runs the program, and is exchanged when a file of it changes.

The files of the program are polled, as those of a configuration are. After a change a new child is started.
If it lists its tools, it takes the place of the old child, whose calls in flight have some time to end.
Otherwise the old child keeps answering, and the reason is logged.

A child reports in a file that the parent names: the files that it has loaded, or why it cannot serve. It
writes the report again when the program imports more modules.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.abc
import anyio.to_thread
import click

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.registry.registry import SourceHandle
from mcp_toolset.cli.mount import MountOptions, is_of_project
from mcp_toolset.cli.target import Module, ProgramFile, default_name
from mcp_toolset.concurrency.atomic_file import replace_file
from mcp_toolset.concurrency.tasks import beside
from mcp_toolset.errors import TargetError, ToolsetError
from mcp_toolset.extending.extension import served_keywords
from mcp_toolset.hub.reload import INTERVAL, Stamp, stamp
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.source import STDERR_LOGGER
from mcp_toolset.tools.toolset import Toolset

if TYPE_CHECKING:
    from mcp_toolset.extending.extension import Keywords
    from mcp_toolset.upstream.toolset import RemoteToolset

_AGAIN: Final = 1.0  # seconds between two looks at the imported modules


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """The files that a child has loaded, and why it cannot serve; `decides` if rules depend on the caller."""

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
        files = {str(name): stamped for name, stamped in self.files.items()}
        text = json.dumps({"files": files, "fault": self.fault, "decides": self.decides})
        replace_file(path, text.encode(), durable=False)


class Child:
    """Reports about a program to the file at `path`."""

    def __init__(self, target: ProgramFile | Module, path: Path) -> None:
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
        imported = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        files = map(Path, (*(file for file in imported if isinstance(file, str)), *more))
        found = {file for file in files if is_of_project(file, own)}
        return frozenset(found | {own})

    def _write(self, more: Collection[str], fault: str = "") -> None:
        self._known = self._files(more)
        ProgramReport({file: stamp(file) for file in self._known}, fault, self._decides).write(self._path)


def main_file(target: ProgramFile | Module) -> Path:
    """The file of a program; the modules in its folder belong to it."""
    if isinstance(target, ProgramFile):
        return Path(target.path).absolute()
    first, *_ = target.module.split(".")
    return Path.cwd() / f"{first}.py"


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


_log: Final = logging.getLogger("mcp_toolset.reload")

_ANY_TIME: Final = 7 * 24 * 3600.0
"""Seconds that a call may take: a program that is served without a child in between has no limit either."""

_START: Final = 60.0  # seconds in which a child must have listed its tools


def front(target: ProgramFile | Module, options: MountOptions) -> ToolsetServer:
    """The server in front of a program; `ProgramReload` adds the tools.

    What is recorded of calls, such as the audit log, is recorded here and not by the children.
    """
    name = options.name or default_name(str(target))
    return ToolsetServer(
        Toolset(name=name),
        name=name,
        keep=False,
        **cast("Keywords", {**served_keywords(True), **options.extensions}),
        max_instruction_tokens=0,
    )


class ProgramReload:
    """Runs a program in a child process, and exchanges the child after changes of the program's files."""

    def __init__(
        self,
        server: ToolsetServer,
        target: ProgramFile | Module,
        arguments: Sequence[str] = (),
        *,
        shared: bool = False,
        every: float = INTERVAL,
        tell: Callable[[str], None] = _log.info,
        # No bytecode is cached: the cache compares times in whole seconds, and misses a second quick edit.
        command: Sequence[str] = (sys.executable, "-B", "-P", "-m", "mcp_toolset"),
    ) -> None:
        """Serve a program, whose options of `serve` are `arguments`; `shared` if several callers reach it."""
        self._server = server
        self._target = target
        self._command = (*command, "serve", str(target), *arguments, "--reported-to")
        self._shared = shared
        self._every = every
        self._tell = tell
        self._name = default_name(str(target))
        self._loaded: Mapping[Path, Stamp] = {}
        self._listed: Mapping[str, ToolDefinition] | None = None
        self._report: Path | None = None
        self._count = 0
        self._fault = ""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        with TemporaryDirectory(prefix="mcp-toolset-") as folder, _relayed(self._name):
            handle = await self._server.attach(Toolset(name=self._name))
            async with anyio.create_task_group() as group:
                await self._exchange(Path(folder), handle, group, {})
                group.start_soon(self._watch, Path(folder), handle, group)
                yield
                group.cancel_scope.cancel()

    async def _watch(self, reports: Path, handle: SourceHandle, group: anyio.abc.TaskGroup) -> None:
        while True:
            await anyio.sleep(self._every)
            now = await anyio.to_thread.run_sync(self._look)
            if now == self._loaded:
                continue
            # A file that is still being written is left alone.
            await anyio.sleep(self._every)
            if await anyio.to_thread.run_sync(self._look) == now:
                await self._exchange(reports, handle, group, now)

    def _look(self) -> dict[Path, Stamp]:
        """The files of the program as they are now, with those that it has imported since it was started."""
        if self._report is not None:
            self._loaded = {**ProgramReport.read(self._report).files, **self._loaded}
        return {file: _state(file) for file in self._loaded}

    async def _exchange(
        self, reports: Path, handle: SourceHandle, group: anyio.abc.TaskGroup, now: Mapping[Path, Stamp]
    ) -> None:
        """Start a new child and serve it if it works; calls in flight at the old one go on meanwhile."""
        self._count += 1
        path = reports / f"{self._count}.json"
        remote = self._child(path)
        toolset = Toolset(remote, name=self._name)
        # If the program lacks a module, a new one in its folder is a change.
        folder = main_file(self._target).parent
        lacking = {folder: _state(folder)}
        decided = anyio.Event()

        def accept() -> None:
            report = ProgramReport.read(path)
            # An edit after the look is another change, even if the child has read it already.
            files = {file: now.get(file, stamped) for file, stamped in report.files.items()}
            self._loaded = {**self._loaded, **now, **files, **lacking}
            self._check(report, remote)
            self._loaded, self._report, self._fault = files, path, ""
            toolset.instructions = remote.instructions
            if info := remote.server_info():
                self._server.answers.handshake.info = info
            self._told({binding.name: binding.definition for binding in remote.bindings()})
            decided.set()

        async def replace() -> None:
            try:
                await self._server.replace(handle, toolset, accept=accept)
            except ToolsetError as fault:
                self._complain(str(fault))
            finally:
                decided.set()

        group.start_soon(replace)
        await decided.wait()

    def _child(self, report: Path) -> RemoteToolset:
        from mcp_toolset.catalog.pins.policy import PinPolicy
        from mcp_toolset.transports.stdio_client import ProcessTarget
        from mcp_toolset.upstream.toolset import RemoteToolset

        program, *rest = *self._command, str(report)
        # The variables are those of the program itself, so nothing is blanked in its answers.
        process = ProcessTarget(program, tuple(rest), dict(os.environ), shows_env=True)
        return RemoteToolset(
            process,
            name=self._name,
            # In earlier revisions, some clients would have a child each.
            protocol="modern",
            timeout=_ANY_TIME,
            start_timeout=_START,
            start="eager",
            pins=PinPolicy("accept", "accept", "flag"),
        )

    def _check(self, report: ProgramReport, remote: RemoteToolset) -> None:
        if report.fault:
            raise TargetError(report.fault)
        if not remote.status.is_up:
            raise TargetError(f"{self._target}: {remote.status.reason}")
        if self._shared and report.decides:
            raise TargetError(
                f"{self._target}: it decides by caller (auth, policy or access), and --reload does not tell "
                "it who calls; serve it over stdio, or without --reload"
            )

    def _told(self, listed: Mapping[str, ToolDefinition]) -> None:
        before, self._listed = self._listed, listed
        if before is not None:
            self._tell(f"{self._target} was loaded again: {_difference(before, listed)}")

    def _complain(self, fault: str) -> None:
        if fault == self._fault:
            return
        self._fault = fault
        rest = "nothing is served until then" if self._listed is None else "what is served stays as it was"
        _log.error("%s; %s", fault, rest)


def _state(path: Path) -> Stamp:
    """The state of a file, or which modules are in a folder."""
    if not path.is_dir():
        return stamp(path)
    try:
        modules = [one.name for one in path.iterdir() if one.suffix == ".py" or one.is_dir()]
    except OSError:
        return None
    return 0, 0, hash(frozenset(modules))


def _difference(before: Mapping[str, ToolDefinition], now: Mapping[str, ToolDefinition]) -> str:
    changed = [name for name in now if name in before and now[name] != before[name]]
    kinds: Iterable[tuple[str, list[str]]] = (
        ("added", [name for name in now if name not in before]),
        ("removed", [name for name in before if name not in now]),
        ("changed", changed),
    )
    said = [f"{verb} {', '.join(names)}" for verb, names in kinds if names]
    return "; ".join(said) or "its list of tools is the same"


@contextmanager
def _relayed(name: str) -> Generator[None]:
    """Show what the program writes to stderr, which it would write itself without a child."""
    log, handler = logging.getLogger(f"{STDERR_LOGGER}.{name}"), logging.StreamHandler(sys.stderr)
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]
