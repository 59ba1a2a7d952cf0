"""Tell a cancelled call from a cancelled task that a tool awaited."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError

__all__ = ["CancelledError", "from_outside"]


def from_outside(fault: BaseException) -> bool:
    """Whether a `CancelledError` means that the current task is cancelled, so that it must propagate.

    A tool that awaits a task of its own also gets one if that task was cancelled. Then the call was not
    cancelled: it has failed like any other call.
    """
    task = asyncio.current_task() if isinstance(fault, CancelledError) else None
    return task is not None and task.cancelling() > 0
