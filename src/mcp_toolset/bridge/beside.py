"""Work on big catalogs beside what is served, so that calls go on meanwhile.

It is done in a worker thread, where the interpreter lets others have their turn every few milliseconds.
And it is kept out of garbage collections: Python looks through all that a program has, again and again,
while a catalog of thousands of tools is built, and once in a while afterwards, a tenth of a second each
time in which nobody is answered.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar

import anyio.to_thread

BIG: Final = 500
"""Tools from which on a catalog is big: it takes more than some 20 ms to compile."""

MUCH: Final = 100_000
"""Objects from which on looking through them takes long enough to be noticed: some 10 ms."""

_T = TypeVar("_T")


async def beside(work: Callable[[], _T], tools: int) -> _T:
    """Do work that takes long for so many tools, and next to nothing for few: that is done at once."""
    if tools <= BIG:
        return work()
    with staying():
        return await anyio.to_thread.run_sync(work)


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
