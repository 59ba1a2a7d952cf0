"""Work on big catalogs beside what is served, so that calls go on meanwhile.

It is done in a worker thread, where the interpreter lets others have their turn every few milliseconds.
In a process that does nothing but serve it is kept out of garbage collections as well (`garbage_collection`).
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
"""Tools from which on a catalog is big: it takes more than some 20 ms to compile."""

_TURN: Final = 0.01
_AWAY: Final = 0.0005
"""Seconds between two moments in which the loop gives way to a worker, and how long they are."""

_T = TypeVar("_T")


async def beside(work: Callable[[], _T], tools: int) -> _T:
    """Do work that takes long for so many tools, and next to nothing for few: that is done at once."""
    if tools <= BIG:
        return work()
    with staying():
        return await in_worker(work)


async def in_worker(work: Callable[[], _T]) -> _T:
    """Do work in a worker thread, to which an event loop that is never idle gives way now and then.

    A loop under full load lets go of the interpreter many times between two calls, but each time for
    less than a waiting thread takes to wake up: work of 50 ms took it seconds.
    """
    done: list[_T] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_give_way)
            done.append(await anyio.to_thread.run_sync(work))
            group.cancel_scope.cancel()
    except BaseExceptionGroup as raised:
        # The work's own fault, which is nobody's business in a group of one.
        raise sole(raised) from None
    return done[0]


async def _give_way() -> None:
    while True:
        await anyio.sleep(_TURN)
        # On purpose the whole loop: what is waited for is that it lets go of the interpreter.
        time.sleep(_AWAY)  # noqa: ASYNC251, TID251
