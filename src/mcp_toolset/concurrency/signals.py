"""Graceful shutdown by a signal: the program is unwound in order, and quickly when a person waits.

After a Ctrl-C (SIGINT) child processes and open requests get fractions of a second, after SIGTERM and SIGHUP
the usual time. A second signal ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

import anyio
import anyio.abc

_GRACE: Final = 0.5  # Seconds within which worker threads must end after the program.


class _Stop:
    """The signal that has asked for the shutdown."""

    signal: signal.Signals | None = None
    before: Callable[[], Awaitable[None]] | None = None


_stop: Final[ContextVar[_Stop | None]] = ContextVar("mcp_toolset_stop", default=None)


def time_to_close(usual: float, hurried: float) -> float:
    """The time limit for something that is closed: `hurried` seconds after a Ctrl-C, else `usual`."""
    stop = _stop.get()
    return hurried if stop is not None and stop.signal is signal.SIGINT else usual


@contextmanager
def before_unwinding(work: Callable[[], Awaitable[None]]) -> Generator[None]:
    """In a block: await `work` after a SIGTERM, before the program is unwound."""
    stop = _stop.get()
    if stop is None:
        yield
        return
    stop.before = work
    try:
        yield
    finally:
        stop.before = None


async def run_until_signal(run: Callable[[], Awaitable[None]]) -> signal.Signals | None:
    """Run an async function until it ends, or a SIGINT, SIGTERM or SIGHUP, which is returned, cancels it."""
    stop = _Stop()
    token = _stop.set(stop)
    try:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                await group.start(_listen, stop, scope, group)
                await run()
            group.cancel_scope.cancel()
    finally:
        _stop.reset(token)
    return stop.signal


async def _listen(
    stop: _Stop,
    scope: anyio.CancelScope,
    group: anyio.abc.TaskGroup,
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    if sys.platform == "win32":
        # An event loop in another thread gets no signals: only a Ctrl-C ends it in order.
        return task_status.started()
    handled = [signal.SIGINT, signal.SIGTERM]
    # `nohup` makes a process ignore SIGHUP, so that it outlives its terminal.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handled.append(signal.SIGHUP)
    with anyio.open_signal_receiver(*handled) as signals:
        task_status.started()
        async for number in signals:
            if stop.signal is not None:
                # The shutdown after the first signal still runs: something takes long to close.
                leave(128 + number)
            stop.signal = number
            # In a task, so that this loop receives a second signal.
            group.start_soon(_unwind, stop, scope)


async def _unwind(stop: _Stop, scope: anyio.CancelScope) -> None:
    if stop.before is not None and stop.signal is signal.SIGTERM:
        await stop.before()
    scope.cancel()


def leave_no_thread(code: int) -> None:
    """Wait a moment for worker threads; end the process now if one still runs."""
    deadline = time.monotonic() + _GRACE
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                leave(code)


def leave(code: int) -> None:
    """End the process now, without unwinding; only buffered output is written."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)
