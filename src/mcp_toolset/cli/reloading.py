"""`serve FILE.py --reload`: a child process runs the program, and is replaced when a file of it changes.

The parent polls the files of the program. After a change it starts a new child. If the new child lists its
tools, it replaces the old child, whose calls in flight have some time to end. Otherwise the old child keeps
answering, and the parent logs the reason.

A child writes a report to a file that the parent names: the files that it has loaded, or why it cannot serve.
It writes the report again when the program imports more modules.
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

_IMPORTS_POLL: Final = 1.0  # seconds between two checks for newly imported modules


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """A report of a child.

    Attributes:
        files: The files that it has loaded.
        fault: Why it cannot serve; empty if it can.
        decides: True if rules of the program depend on the caller.
    """

    files: Mapping[Path, Stamp] = field(default_factory=dict[Path, Stamp])
    fault: str = ""
    decides: bool = False

    @classmethod
    def read(cls, path: Path) -> ProgramReport:
        """The report in a file; empty if the child has written none."""
        try:
            data: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            return cls()
        files = {Path(name): tuple(stamped) if stamped else None for name, stamped in data["files"].items()}
        return cls(files, data["fault"], data["decides"])

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
        """Report a program that cannot be loaded, and end this process; the parent logs the reason."""
        try:
            yield
        except ToolsetError as fault:
            frames = _frames_of(fault)
            self._write([name for name, _ in frames], self._with_place(fault, frames))
            raise click.exceptions.Exit(1) from None

    def loaded(self, *, decides: bool) -> None:
        """Report that the program was loaded."""
        self._decides = decides
        self._write(())

    def following(self) -> AbstractAsyncContextManager[None]:
        """Report modules that the program imports later, for the length of a block."""
        return beside(self._follow)

    async def _follow(self) -> None:
        """Report again whenever the program has imported more modules."""
        while True:
            await anyio.sleep(_IMPORTS_POLL)
            if not self._files(()) <= self._known:
                self._write(())

    def _with_place(self, fault: ToolsetError, frames: Iterable[tuple[str, int | None]]) -> str:
        """The text of an error, with the place in the program if it names none."""
        own = main_file(self._target)
        places = [(name, line) for name, line in frames if is_of_project(Path(name), own)]
        if isinstance(fault, TargetError) or not places:
            return str(fault)
        name, line = places[-1]
        return f"{self._target if name == str(own) else name}: line {line}: {fault}"

    def _files(self, more: Iterable[str]) -> frozenset[Path]:
        """The files of the program: of its imported modules, and those of `more` in its folder."""
        own = main_file(self._target)
        imported = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        files = map(Path, (*(file for file in imported if isinstance(file, str)), *more))
        own_files = {file for file in files if is_of_project(file, own)}
        return frozenset(own_files | {own})

    def _write(self, more: Collection[str], fault: str = "") -> None:
        self._known = self._files(more)
        ProgramReport({file: stamp(file) for file in self._known}, fault, self._decides).write(self._path)


def main_file(target: ProgramFile | Module) -> Path:
    """The main file of a program, in whose folder its modules are."""
    if isinstance(target, ProgramFile):
        return Path(target.path).absolute()
    first, *_ = target.module.split(".")
    return Path.cwd() / f"{first}.py"


def _frames_of(fault: BaseException) -> list[tuple[str, int | None]]:
    """The files and lines that an error has passed: they include a module whose import has failed."""
    frames: list[tuple[str, int | None]] = []
    raised: BaseException | None = fault
    while raised is not None:
        frames += ((frame.filename, frame.lineno) for frame in traceback.extract_tb(raised.__traceback__))
        if isinstance(raised, SyntaxError) and raised.filename:
            frames.append((raised.filename, raised.lineno))
        raised = raised.__cause__ or raised.__context__
    return frames


_log: Final = logging.getLogger("mcp_toolset.reload")

_ANY_TIME: Final = 7 * 24 * 3600.0
"""Seconds that a call to the child may take: practically no limit, as without `--reload`."""

_START_TIMEOUT: Final = 60.0  # seconds that a child has to list its tools


def front(target: ProgramFile | Module, options: MountOptions) -> ToolsetServer:
    """The server in front of a program; `ProgramReload` adds the tools.

    This server records calls, for example in the audit log; the children do not.
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
    """Runs a program in a child process, and replaces the child when the program's files change."""

    def __init__(
        self,
        server: ToolsetServer,
        target: ProgramFile | Module,
        arguments: Sequence[str] = (),
        *,
        shared: bool = False,
        every: float = INTERVAL,
        tell: Callable[[str], None] = _log.info,
        # `-B`: the cache of bytecode compares times in whole seconds, and would miss a second quick edit.
        command: Sequence[str] = (sys.executable, "-B", "-P", "-m", "mcp_toolset"),
    ) -> None:
        """Describe the reload; nothing is started yet.

        Args:
            server: The server in front of the program; see `front`.
            target: The program.
            arguments: Options of `serve` for the child.
            shared: True if several callers use the server.
            every: Seconds between two checks of the files.
            tell: Shows a line about each reload.
            command: The start of the child's command.
        """
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
        """Serve the program, and reload it, for the length of a block."""
        with TemporaryDirectory(prefix="mcp-toolset-") as folder, _stderr_relayed(self._name):
            handle = await self._server.attach(Toolset(name=self._name))
            async with anyio.create_task_group() as group:
                await self._replace_child(Path(folder), handle, group, {})
                group.start_soon(self._watch, Path(folder), handle, group)
                yield
                group.cancel_scope.cancel()

    async def _watch(self, reports: Path, handle: SourceHandle, group: anyio.abc.TaskGroup) -> None:
        """Replace the child after each change of the files."""
        while True:
            await anyio.sleep(self._every)
            now = await anyio.to_thread.run_sync(self._present_files)
            if now == self._loaded:
                continue
            # A file may still be being written: wait until two checks agree.
            await anyio.sleep(self._every)
            if await anyio.to_thread.run_sync(self._present_files) == now:
                await self._replace_child(reports, handle, group, now)

    def _present_files(self) -> dict[Path, Stamp]:
        """The present state of each file of the program, with files imported since the child was started."""
        if self._report is not None:
            self._loaded = {**ProgramReport.read(self._report).files, **self._loaded}
        return {file: _state_of(file) for file in self._loaded}

    async def _replace_child(
        self, reports: Path, handle: SourceHandle, group: anyio.abc.TaskGroup, now: Mapping[Path, Stamp]
    ) -> None:
        """Start a new child, and serve it if it works; the old child goes on with its calls meanwhile."""
        self._count += 1
        path = reports / f"{self._count}.json"
        remote = self._child(path)
        toolset = Toolset(remote, name=self._name)
        # A new module in the folder counts as a change: the program may have failed for want of it.
        folder = main_file(self._target).parent
        folder_state = {folder: _state_of(folder)}
        decided = anyio.Event()

        def accept() -> None:
            report = ProgramReport.read(path)
            # An edit after the check is another change, even if the child has read it already.
            files = {file: now.get(file, stamped) for file, stamped in report.files.items()}
            self._loaded = {**self._loaded, **now, **files, **folder_state}
            self._check(report, remote)
            self._loaded, self._report, self._fault = files, path, ""
            toolset.instructions = remote.instructions
            if info := remote.server_info():
                self._server.answers.handshake.info = info
            self._note_tools({binding.name: binding.definition for binding in remote.bindings()})
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
        """A mount of a new child, which writes its report to `report`."""
        from mcp_toolset.catalog.pins.policy import PinPolicy
        from mcp_toolset.transports.stdio_client import ProcessTarget
        from mcp_toolset.upstream.toolset import RemoteToolset

        program, *rest = *self._command, str(report)
        # The environment is that of the program itself, so its values are not removed from answers.
        process = ProcessTarget(program, tuple(rest), dict(os.environ), shows_env=True)
        return RemoteToolset(
            process,
            name=self._name,
            # With earlier revisions of the protocol, some clients would need a separate child each.
            protocol="modern",
            timeout=_ANY_TIME,
            start_timeout=_START_TIMEOUT,
            start="eager",
            pins=PinPolicy("accept", "accept", "flag"),
        )

    def _check(self, report: ProgramReport, remote: RemoteToolset) -> None:
        """Refuse a child that cannot serve."""
        if report.fault:
            raise TargetError(report.fault)
        if not remote.status.is_up:
            raise TargetError(f"{self._target}: {remote.status.reason}")
        if self._shared and report.decides:
            raise TargetError(
                f"{self._target}: it decides by caller (auth, policy or access), and --reload does not tell "
                "it who calls; serve it over stdio, or without --reload"
            )

    def _note_tools(self, listed: Mapping[str, ToolDefinition]) -> None:
        """Note the tools of a new child, and show how they differ from those before."""
        before, self._listed = self._listed, listed
        if before is not None:
            self._tell(f"{self._target} was loaded again: {_difference(before, listed)}")

    def _complain(self, fault: str) -> None:
        """Log why a child is not served, once for each reason."""
        if fault == self._fault:
            return
        self._fault = fault
        rest = "nothing is served until then" if self._listed is None else "what is served stays as it was"
        _log.error("%s; %s", fault, rest)


def _state_of(path: Path) -> Stamp:
    """The state of a file; that of a folder is the names of its modules."""
    if not path.is_dir():
        return stamp(path)
    try:
        modules = [one.name for one in path.iterdir() if one.suffix == ".py" or one.is_dir()]
    except OSError:
        return None
    return 0, 0, hash(frozenset(modules))


def _difference(before: Mapping[str, ToolDefinition], now: Mapping[str, ToolDefinition]) -> str:
    """The added, removed and changed tools, in words."""
    changed = [name for name in now if name in before and now[name] != before[name]]
    kinds: Iterable[tuple[str, list[str]]] = (
        ("added", [name for name in now if name not in before]),
        ("removed", [name for name in before if name not in now]),
        ("changed", changed),
    )
    parts = [f"{verb} {', '.join(names)}" for verb, names in kinds if names]
    return "; ".join(parts) or "its list of tools is the same"


@contextmanager
def _stderr_relayed(name: str) -> Generator[None]:
    """Copy the stderr of the child to this process's stderr, for the length of a block."""
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
