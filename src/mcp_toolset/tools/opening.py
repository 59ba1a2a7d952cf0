"""`open_sources`: starts the sources of a toolset concurrently. `OpeningReport`: tells which are slow."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import anyio.lowlevel

from mcp_toolset._records import dataclass
from mcp_toolset.errors import sole
from mcp_toolset.tools.hidden_text import visible

if TYPE_CHECKING:
    pass

from mcp_toolset.tools.source import ToolSource

QUIET: Final = 1.0  # Seconds before the first line of the report; most servers are ready earlier.


class OpeningReport:
    """Reports on a terminal, after `QUIET` seconds, which servers are waited for, and each outcome."""

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        self._all = len(sources)
        self._waiting = list(sources)
        self._speaks = False
        self._done = anyio.Event()
        if not sources:
            self._done.set()

    async def run(self) -> None:
        """Begin to report if not all servers are ready in `QUIET` seconds."""
        with anyio.move_on_after(QUIET):
            await self._done.wait()
            return
        self._speaks = sys.stderr.isatty()
        self._say(f"waiting for {self._names()} {self._count()} …")

    def settled(self, source: ToolSource) -> None:
        """Note that a server is ready or has failed."""
        if source not in self._waiting:
            return
        self._waiting.remove(source)
        status = source.status
        outcome = f"{status.tools} tools" if status.is_up else status.reason
        self._say(f"{source.source_name}: {status.state} ({outcome}) {self._count()}")
        if not self._waiting:
            self._done.set()

    def ended(self) -> None:
        """Note that nothing is waited for any more."""
        if self._waiting:
            self._say(f"going on without {self._names()}: still starting")

    def _names(self) -> str:
        return ", ".join(source.source_name for source in self._waiting)

    def _count(self) -> str:
        return f"({self._all - len(self._waiting)} of {self._all} servers settled)"

    def _say(self, line: str) -> None:
        if self._speaks:
            sys.stderr.write(f"mcp-toolset: {visible(line)}\n")
            sys.stderr.flush()


TIMEOUT: Final = 3.0  # Seconds to wait for the other servers, once a tool can be used.

MOMENT: Final = 1.0  # Seconds to wait for servers of this process, if no other server is waited for.


@dataclass(frozen=True, slots=True)
class OpeningWait:
    """Seconds for which opening waits for the first attempts of the sources."""

    # Seconds; `None`: the `start_timeout` of each source; 0: wait for servers of this process only.
    timeout: float | None = None
    # Seconds to wait for the other sources once a tool can be used; `None`: wait for all.
    rest_timeout: float | None = None
    tells: bool = False  # Whether a terminal shows which sources are waited for.


class _FirstAttempt(anyio.abc.TaskStatus[None]):
    """Notes that a source's first attempt has succeeded or failed."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def started(self, value: Any = None) -> None:
        self.event.set()


async def open_sources(
    group: anyio.abc.TaskGroup, sources: Sequence[ToolSource], waiting: OpeningWait, *, has_local_tools: bool
) -> None:
    """Start all sources in a task group, and wait for their first attempts as `waiting` says."""
    opened = [(source, _FirstAttempt()) for source in sources]
    for source, status in opened:
        group.start_soon(partial(source.run, task_status=status))
    # After this checkpoint, the status of each source says that its first attempt has begun.
    await anyio.lowlevel.checkpoint()
    if waiting.timeout == 0:
        opened = [(source, status) for source, status in opened if getattr(source, "at_hand", False)]
    if not opened:
        return
    report = OpeningReport(sources if waiting.tells else ())
    with anyio.CancelScope() as scope:
        if waiting.timeout is not None:
            scope.deadline = anyio.current_time() + (waiting.timeout or MOMENT)
        if has_local_tools:
            _shorten(scope, waiting.rest_timeout)
        async with anyio.create_task_group() as watch:
            for source, status in opened:
                watch.start_soon(_watch, source, status, scope, waiting.rest_timeout, report)
            watch.start_soon(report.run)
    report.ended()


async def _watch(
    source: ToolSource,
    status: _FirstAttempt,
    scope: anyio.CancelScope,
    rest_timeout: float | None,
    report: OpeningReport,
) -> None:
    """Wait for the first attempt of a source; if it succeeds, shorten the wait for the others."""
    await status.event.wait()
    report.settled(source)
    if source.status.is_up:
        _shorten(scope, rest_timeout)


def _shorten(scope: anyio.CancelScope, rest_timeout: float | None) -> None:
    if rest_timeout is not None:
        scope.deadline = min(scope.deadline, anyio.current_time() + rest_timeout)


async def settled(sources: Sequence[ToolSource]) -> None:
    """Wait until no source is starting."""
    for source in sources:
        changed = anyio.Event()
        stop = source.on_change(changed.set)
        try:
            while source.status.state == "starting":
                await changed.wait()
                stop()
                changed = anyio.Event()
                stop = source.on_change(changed.set)
        finally:
            stop()


async def unwind(
    stack: AsyncExitStack,
    kind: type[BaseException] | None,
    fault: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Close what a stack holds; an error of the block is raised itself, not in a group of one."""
    try:
        await stack.__aexit__(kind, fault, trace)
    except BaseExceptionGroup as group:
        if sole(group) is not fault:
            raise
