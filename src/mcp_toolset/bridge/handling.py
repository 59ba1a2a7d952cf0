"""`Handling`: the tasks in which one connection's requests are handled, all ended with it.

They are asyncio's own: a task of an anyio group costs as much as everything else that a bridge does
for a call. Each handler is in a cancel scope of its own, so that anyio's rules hold within.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

import anyio


class Handling:
    """Tasks that end with their owner, who waits for them; a failure of one is the owner's to hear of."""

    def __init__(self, failed: Callable[[], None]) -> None:
        """Start without any; `failed` is called when one has raised, which handlers of requests never do."""
        self._loop = asyncio.get_running_loop()
        self._failed = failed
        self._tasks: dict[asyncio.Task[None], anyio.CancelScope] = {}
        self._none = anyio.Event()
        self._closing = False
        self.fault: BaseException | None = None

    def start(
        self, scope: anyio.CancelScope, handler: Coroutine[Any, Any, None], context: Context | None = None
    ) -> None:
        """Run `handler`, which enters `scope` first of all, in the caller's context or a given one.

        Where Python can do that (3.12), it is begun at once and not in the next turn of the loop.
        """
        if sys.version_info >= (3, 12):
            task = asyncio.Task(handler, loop=self._loop, context=context, eager_start=True)
        else:
            task = self._loop.create_task(handler, context=context)
        self._tasks[task] = scope
        task.add_done_callback(self._done)

    async def end(self) -> None:
        """Cancel what still runs, and wait for it."""
        for scope in self._tasks.values():
            scope.cancel()
        self._closing = True
        with anyio.CancelScope(shield=True):
            while self._tasks:
                await self._none.wait()

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self.fault = fault
            self._failed()
        if self._closing and not self._tasks:
            self._none.set()
