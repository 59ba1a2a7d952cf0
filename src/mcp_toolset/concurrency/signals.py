"""Ending a program by a signal: it is unwound, in order, and not for long when a person waits.

Ctrl-C (SIGINT) is a person at a terminal: children and open requests get fractions of a second. SIGTERM is a
supervisor, and leaves them the usual time. A second signal ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Final

import anyio
import anyio.abc

_GRACE: Final = 0.5
"""Seconds that threads are given to end by themselves."""


class _Stop:
    """Which signal has asked for the end."""

    signal: signal.Signals | None = None


_stop: Final[ContextVar[_Stop | None]] = ContextVar("mcp_toolset_stop", default=None)


def patience(usual: float, hurried: float) -> float:
    """How long to wait for something that is to end: `hurried` seconds after a Ctrl-C, else `usual`."""
    stop = _stop.get()
    return hurried if stop is not None and stop.signal is signal.SIGINT else usual


async def run_until_signal(run: Callable[[], Awaitable[None]]) -> signal.Signals | None:
    """Run something until it ends by itself or a SIGINT or SIGTERM arrives; either way it is unwound.

    Returns:
        The signal that has ended it.
    """
    stop = _Stop()
    token = _stop.set(stop)
    try:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                await group.start(_listen, stop, scope)
                await run()
            group.cancel_scope.cancel()
    finally:
        _stop.reset(token)
    return stop.signal


async def _listen(
    stop: _Stop,
    scope: anyio.CancelScope,
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    if sys.platform == "win32":
        # Its event loops receive no signals: a Ctrl-C cancels what runs, and nothing else ends it in order.
        return task_status.started()
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            if stop.signal is not None:
                # The first one is still at work: something does not let itself be closed.
                leave(128 + number)
            stop.signal = number
            scope.cancel()


def leave_no_thread(code: int) -> None:
    """End the process though a tool's function is still at work in its thread: nobody waits for it."""
    deadline = time.monotonic() + _GRACE
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                leave(code)


def leave(code: int) -> None:
    """End the process now, with nothing unwound but what was written."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)
