"""Open and close sources, all at once, and report the slow ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Final

import anyio
import anyio.abc
import anyio.lowlevel

from mcp_toolset._records import dataclass
from mcp_toolset.errors import sole
from mcp_toolset.tools.core.source import AtHand, ToolSource, fits
from mcp_toolset.tools.text.hidden_text import visible

QUIET: Final = 1.0  # Seconds of waiting before the first line; most servers are ready earlier.


class OpeningReport:
    """Lines on a terminal after `QUIET` seconds: which servers are waited for, and each outcome."""

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        self._all = len(sources)
        self._waiting = list(sources)
        self._speaks = False
        self._done = anyio.Event()
        if not sources:
            self._done.set()

    async def run(self) -> None:
        with anyio.move_on_after(QUIET):
            await self._done.wait()
            return
        self._speaks = sys.stderr.isatty()
        self._say(f"waiting for {self._names()} {self._count()} …")

    def settled(self, source: ToolSource) -> None:
        if source not in self._waiting:
            return
        self._waiting.remove(source)
        status = source.status
        outcome = f"{status.tools} tools" if status.is_up else status.reason
        self._say(f"{source.source_name}: {status.state} ({outcome}) {self._count()}")
        if not self._waiting:
            self._done.set()

    def ended(self) -> None:
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


PATIENCE: Final = 3.0  # Seconds that an opened server with a usable tool waits for the rest.


MOMENT: Final = 1.0  # Seconds for servers in this process, if nothing else is waited for.


@dataclass(frozen=True, slots=True)
class OpeningWait:
    """How long opening waits for the first attempts of the sources."""

    # Seconds; `None` leaves it to each source's `start_timeout`, 0 waits for this process alone.
    limit: float | None = None
    # Seconds to wait for the rest once something is usable; `None` waits for all.
    patience: float | None = None
    tells: bool = False  # Whether to report on a terminal which sources are waited for.


class _Settled(anyio.abc.TaskStatus[None]):
    """Notes that a source's first attempt has succeeded or failed."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def started(self, value: Any = None) -> None:
        self.event.set()


async def open_sources(
    group: anyio.abc.TaskGroup, sources: Sequence[ToolSource], waiting: OpeningWait, *, has_local_tools: bool
) -> None:
    opened = [(source, _Settled()) for source in sources]
    for source, status in opened:
        group.start_soon(partial(source.run, task_status=status))
    # All sources have started their first attempts by now, and their statuses say so.
    await anyio.lowlevel.checkpoint()
    if waiting.limit == 0:
        opened = [(source, status) for source, status in opened if fits(source, AtHand) and source.at_hand]
    if not opened:
        return
    report = OpeningReport(sources if waiting.tells else ())
    with anyio.CancelScope() as scope:
        if waiting.limit is not None:
            scope.deadline = anyio.current_time() + (waiting.limit or MOMENT)
        if has_local_tools:
            _hurry(scope, waiting.patience)
        async with anyio.create_task_group() as watch:
            for source, status in opened:
                watch.start_soon(_watch, source, status, scope, waiting.patience, report)
            watch.start_soon(report.run)
    report.ended()


async def _watch(
    source: ToolSource,
    status: _Settled,
    scope: anyio.CancelScope,
    patience: float | None,
    report: OpeningReport,
) -> None:
    await status.event.wait()
    report.settled(source)
    if source.status.is_up:
        _hurry(scope, patience)


def _hurry(scope: anyio.CancelScope, patience: float | None) -> None:
    if patience is not None:
        scope.deadline = min(scope.deadline, anyio.current_time() + patience)


async def settled(sources: Sequence[ToolSource]) -> None:
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
