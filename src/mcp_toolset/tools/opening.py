"""Opening and closing sources: all at once, and none may hold up the others for long (F5, H24)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Final

import anyio
import anyio.abc

from mcp_toolset.errors import sole
from mcp_toolset.tools.source import ToolSource

PATIENCE: Final = 3.0
"""Seconds that something usable waits for the rest; what is not there by then joins later."""


class _Settled(anyio.abc.TaskStatus[None]):
    """Notes that a source's first attempt has succeeded or failed."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    def started(self, value: Any = None) -> None:
        self.event.set()


async def open_sources(
    group: anyio.abc.TaskGroup, sources: Sequence[ToolSource], *, has_local_tools: bool
) -> None:
    """Start every source in `group`, and wait until there is something to serve.

    Returns when each first attempt has succeeded or failed; or `PATIENCE` seconds after something
    was usable, which local tools are at once.
    """
    with anyio.CancelScope() as waiting:
        if has_local_tools:
            waiting.deadline = anyio.current_time() + PATIENCE
        async with anyio.create_task_group() as watch:
            for source in sources:
                status = _Settled()
                group.start_soon(partial(source.run, task_status=status))
                watch.start_soon(_watch, source, status, waiting)


async def _watch(source: ToolSource, status: _Settled, waiting: anyio.CancelScope) -> None:
    await status.event.wait()
    if source.status.state == "ready":
        waiting.deadline = min(waiting.deadline, anyio.current_time() + PATIENCE)


async def settled(sources: Sequence[ToolSource]) -> None:
    """Wait until no source is at its first attempt any more; each has its own deadline for that."""
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
    """Close what a stack holds; what the block itself raised leaves it as it is, not in a group of one."""
    try:
        await stack.__aexit__(kind, fault, trace)
    except BaseExceptionGroup as group:
        if sole(group) is not fault:
            raise
