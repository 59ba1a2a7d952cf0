"""`staying`: what is made to stay, such as a big catalog, kept out of garbage collections.

Python looks through all that a program has, again and again, while a catalog of thousands of tools is
built, and once in a while afterwards: a tenth of a second each time, in which nobody is answered.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

BIG: Final = 500
"""Tools from which on a catalog is big: it takes more than some 20 ms to compile."""


@contextmanager
def staying() -> Generator[None]:
    """Make something without looking for garbage in it, now or later.

    It still goes when nothing refers to it any more; only cycles in it would be kept. Nothing is done
    for a program that has switched collection off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
