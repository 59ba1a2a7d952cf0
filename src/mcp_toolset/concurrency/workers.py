"""Compile large catalogs in a worker thread without stalling the event loop.

Python lets other threads run every few milliseconds, so calls are answered in between. In a process that only
serves, what was compiled is also exempt from the cyclic garbage collector (`staying`).
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from mcp_toolset.errors import sole

MUCH: Final = 100_000  # Number of objects from which a scan takes noticeably long, about 10 ms.

_owned: Final[ContextVar[bool]] = ContextVar("mcp_toolset_owns_its_process", default=False)


@contextmanager
def owning() -> Generator[None]:
    token = _owned.set(True)
    try:
        yield
    finally:
        _owned.reset(token)


@contextmanager
def starting() -> Generator[None]:
    """Pause the collector while a program starts: next to nothing of what it loads and makes is garbage."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def staying() -> Generator[None]:
    """Pause the collector for the length of a block and exempt the objects made in it.

    Only reference cycles among them stay; so young garbage is collected first, and few objects are not
    exempted. In a host application, or while collection is disabled, nothing happens.
    """
    if not (_owned.get() and gc.isenabled()):
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


_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1
_LARGE: Final = 1024 * 1024
_AT_TOP: Final = 8 * 1024 * 1024
"""Bytes from which on a block goes back when it is freed, and of free memory that an arena may end with."""


def give_back_large_blocks() -> None:
    """Have glibc give the memory of large results back to the system once they are freed, where it is used.

    Of itself it keeps blocks of up to 32 MiB in the arena of each thread once the first has been freed.
    """
    if sys.platform == "linux":
        import ctypes

        with suppress(AttributeError, OSError):
            libc = ctypes.CDLL(None)
            libc.mallopt(_MMAP_THRESHOLD, _LARGE)
            libc.mallopt(_TRIM_THRESHOLD, _AT_TOP)


BIG: Final = 500  # Number of tools from which a catalog is large: compiling it takes more than about 20 ms.

_TURN: Final = 0.01
_AWAY: Final = 0.0005
"""Seconds between two pauses of the event loop for the worker thread, and the length of a pause."""

_T = TypeVar("_T")


async def in_worker_if_large(work: Callable[[], _T], tools: int) -> _T:
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
