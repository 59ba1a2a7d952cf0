"""`Handling`: the tasks in which one connection's requests are handled, all ended with it.

They are asyncio's own: a task of an anyio group costs as much as everything else that a bridge does
for a call. Each handler is in a cancel scope of its own, a `TaskScope`, so that anyio's rules hold within.

Tasks are started from callbacks of the event loop as well, where no task runs. anyio makes nothing there:
it tells by the running task which loop it is on.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any

import anyio


class TaskScope:
    """A cancel scope that is made by its task, and may be cancelled before that task has begun."""

    __slots__ = ("_cancelled", "_scope")

    def __init__(self) -> None:
        """Needs no running task, unlike a scope of anyio's."""
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False

    def begun(self) -> anyio.CancelScope:
        """The scope, for the task to enter first of all."""
        scope = self._scope = anyio.CancelScope()
        if self._cancelled:
            scope.cancel()
        return scope

    def cancel(self) -> None:
        """Cancel the task, now or as soon as it begins."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()


class Handling:
    """Tasks that end with their owner, who waits for them; a failure of one is the owner's to hear of."""

    def __init__(self, failed: Callable[[], None]) -> None:
        """Start without any; `failed` is called when one has raised, which handlers of requests never do."""
        self._loop = asyncio.get_running_loop()
        self._failed = failed
        self._tasks: dict[asyncio.Task[None], TaskScope] = {}
        self._none = asyncio.Event()
        self._awaited = False
        self.fault: BaseException | None = None

    def start(
        self, scope: TaskScope, handler: Coroutine[Any, Any, None], context: Context | None = None
    ) -> None:
        """Run `handler`, which begins `scope` first of all, in the caller's context or a given one.

        Where Python can do that (3.12), it is begun at once and not in the next turn of the loop.
        """
        if sys.version_info >= (3, 12):
            task = asyncio.Task(handler, loop=self._loop, context=context, eager_start=True)
        else:
            task = self._loop.create_task(handler, context=context)
        self._tasks[task] = scope
        task.add_done_callback(self._done)

    def begin(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, in a scope made for it."""
        scope = TaskScope()

        async def scoped() -> None:
            with scope.begun():
                await work()

        self.start(scope, scoped())

    @property
    def busy(self) -> bool:
        """Whether a task runs."""
        return bool(self._tasks)

    async def done(self) -> None:
        """Wait until no task runs."""
        self._awaited = True
        while self._tasks:
            self._none.clear()
            await self._none.wait()

    async def end(self) -> None:
        """Cancel what still runs, and wait for it."""
        for scope in self._tasks.values():
            scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.done()

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self.fault = fault
            self._failed()
        if self._awaited and not self._tasks:
            self._none.set()
