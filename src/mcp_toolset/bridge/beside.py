"""Work on big catalogs beside what is served, so that calls go on meanwhile.

It is done in a worker thread, where the interpreter lets others have their turn every few milliseconds.
And it is kept out of garbage collections: Python looks through all that a program has, again and again,
while a catalog of thousands of tools is built, and once in a while afterwards, a tenth of a second each
time in which nobody is answered.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from mcp_toolset.errors import sole

BIG: Final = 500
"""Tools from which on a catalog is big: it takes more than some 20 ms to compile."""

MUCH: Final = 100_000
"""Objects from which on looking through them takes long enough to be noticed: some 10 ms."""

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


@contextmanager
def staying() -> Generator[None]:
    """Make something without looking for garbage in it, now or later.

    It still goes when nothing refers to it any more; only cycles of that moment are kept, which is why
    there are few when it begins, and why little is not made to stay. Nothing is done for a program that
    has switched collection off.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect(1)
    gc.disable()
    try:
        yield
        if gc.get_count()[0] > MUCH:
            gc.freeze()
    finally:
        gc.enable()
