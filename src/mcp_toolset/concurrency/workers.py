"""Compile large catalogs in a worker thread without stalling the event loop.

Python lets other threads run every few milliseconds, so calls are answered in between. In a process that only
serves, the work is also exempt from garbage collection (`garbage_collection`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from mcp_toolset.concurrency.garbage_collection import staying
from mcp_toolset.errors import sole

BIG: Final = 500
"""Number of tools from which a catalog is large: compiling it takes more than about 20 ms."""

_TURN: Final = 0.01
_AWAY: Final = 0.0005
"""Seconds between two pauses of the event loop for the worker thread, and the length of a pause."""

_T = TypeVar("_T")


async def in_worker_if_large(work: Callable[[], _T], tools: int) -> _T:
    """Do the work for so many tools: in a worker thread if they are many, else at once."""
    if tools <= BIG:
        return work()
    with staying():
        return await in_worker(work)


async def in_worker(work: Callable[[], _T]) -> _T:
    """Do work in a worker thread; a busy event loop pauses for it now and then.

    A busy loop releases the interpreter lock often, but each time for less than a waiting thread needs to
    wake up: without the pauses, 50 ms of work took seconds.
    """
    done: list[_T] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_give_way)
            done.append(await anyio.to_thread.run_sync(work))
            group.cancel_scope.cancel()
    except BaseExceptionGroup as raised:
        # The caller wants the error of the work itself, not a group with one error.
        raise sole(raised) from None
    return done[0]


async def _give_way() -> None:
    while True:
        await anyio.sleep(_TURN)
        # This blocks the whole loop on purpose, so that it releases the interpreter lock.
        time.sleep(_AWAY)  # noqa: ASYNC251, TID251
