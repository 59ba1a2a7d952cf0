"""`StoreMiss`: a check that never waits lacks something that a store elsewhere has.

A gate answers from what is in this process. If something is missing there, it raises `StoreMiss`. The caller
of the gate awaits `loaded`, which fetches it and asks the gate again. A call for which nothing is missing
does not wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from mcp_toolset.errors import StoreError

MAX_LOADS: Final = 16
"""Times that one check may lack something; a call of `call_tool` lacks at most some eight things."""

_T = TypeVar("_T")


class StoreMiss(Exception):
    """Control flow, not an error: something has to be fetched before the check can be made.

    Attributes:
        load: Fetches it, or raises why it cannot be fetched.
    """

    def __init__(self, load: Callable[[], Awaitable[object]]) -> None:
        """Say how to fetch what is missing."""
        super().__init__("something has to be fetched first")
        self.load = load


async def loaded(ask: Callable[[], _T], miss: StoreMiss | None = None) -> _T:
    """What a check says, once everything that it lacks was fetched.

    Args:
        ask: The check.
        miss: What it lacked when it was made before.

    Raises:
        StoreError: a store cannot be reached, or what it says is too old at once, again and again.
    """
    if miss is None:
        try:
            return ask()
        except StoreMiss as first:
            miss = first
    for _ in range(MAX_LOADS):
        await miss.load()
        try:
            return ask()
        except StoreMiss as again:
            miss = again
    raise StoreError("what the stores of this server say is too old at once; give them a longer max_age")
