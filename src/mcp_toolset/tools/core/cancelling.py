"""Who cancelled: the caller, or something that a tool has waited for."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError

__all__ = ["CancelledError", "from_outside"]


def from_outside(fault: BaseException) -> bool:
    """Whether a `CancelledError` says that this very task is cancelled, so that it has to go on.

    A tool that waits for a task of its own gets one as well if that task was cancelled. Then nobody has
    cancelled the call: it has failed like any other.
    """
    task = asyncio.current_task() if isinstance(fault, CancelledError) else None
    return task is not None and task.cancelling() > 0
