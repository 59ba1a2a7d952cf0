"""Run a command's async function in an event loop until it ends or a signal arrives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from mcp_toolset.concurrency.signals import run_until_signal

__all__ = ["run"]

_Result = TypeVar("_Result")


def run(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """The result of `work`.

    Raises:
        KeyboardInterrupt: A SIGINT or SIGTERM arrived first; everything was closed.
    """
    results: list[_Result] = []

    async def keep() -> None:
        results.append(await work())

    anyio.run(run_until_signal, keep)
    if not results:
        raise KeyboardInterrupt
    return results[0]
