"""Garbage collection in a process that only serves: large catalogs are exempt from the cyclic collector.

While a catalog of thousands of tools is built, and sometimes afterwards, Python's collector scans every
object of the program, for a tenth of a second each time, and no request is answered meanwhile. `serve` and
the command line own their process (`owning`) and exempt long-lived objects (`staying`). In any other program
the collector belongs to the host: nothing here runs, pauses or freezes it.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

MUCH: Final = 100_000
"""Number of objects from which a scan takes noticeably long, about 10 ms."""

_owned: Final[ContextVar[bool]] = ContextVar("mcp_toolset_owns_its_process", default=False)


@contextmanager
def owning() -> Generator[None]:
    """Mark the process as one that only serves, for the length of a block."""
    token = _owned.set(True)
    try:
        yield
    finally:
        _owned.reset(token)


@contextmanager
def staying() -> Generator[None]:
    """Pause the collector for the length of a block and exempt the objects made in it.

    Reference counting still frees these objects; only reference cycles among them stay. Therefore young
    garbage is collected first, and few objects are not exempted. In a host application, or while collection
    is disabled, nothing happens.
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
