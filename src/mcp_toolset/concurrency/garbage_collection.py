"""Garbage collection in a process that does nothing but serve.

Python looks through all that a program has, again and again, while a catalog of thousands of tools is
built, and once in a while afterwards, a tenth of a second each time in which nobody is answered. `serve`
and the command line own their process and keep what stays out of that (`owning`). In any other program
the collector is the host's: it is neither run, nor paused, nor told that anything stays.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

MUCH: Final = 100_000
"""Objects from which on looking through them takes long enough to be noticed: some 10 ms."""

_owned: Final[ContextVar[bool]] = ContextVar("mcp_toolset_owns_its_process", default=False)


@contextmanager
def owning() -> Generator[None]:
    """Have the process do nothing but serve for the length of a block."""
    token = _owned.set(True)
    try:
        yield
    finally:
        _owned.reset(token)


@contextmanager
def staying() -> Generator[None]:
    """Make something without looking for garbage in it, now or later.

    It still goes when nothing refers to it any more; only cycles of that moment are kept, which is why
    there are few when it begins, and why little is not made to stay. Nothing is done for a host
    application, nor for a program that has switched collection off.
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
