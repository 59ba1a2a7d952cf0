"""`beside`: tasks that run for the length of a block, and what is done once they have ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio

__all__ = ["beside"]


@asynccontextmanager
async def beside(
    *tasks: Callable[[], Coroutine[Any, Any, object]], last: Callable[[], Awaitable[object]] | None = None
) -> AsyncGenerator[None]:
    """Run tasks for the length of a block.

    Args:
        tasks: They are cancelled when the block ends.
        last: Called then; it is not cancelled with the block.
    """
    async with anyio.create_task_group() as group:
        for task in tasks:
            group.start_soon(task)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
            if last is not None:
                with anyio.CancelScope(shield=True):
                    await last()
