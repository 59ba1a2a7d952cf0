"""`TaskSet`: tasks that end with their connection; `ThreadEvent`; why a request or task was cancelled.

The tasks are asyncio's own: a task of an anyio group costs as much CPU as all other work of the bridge for a
call. Each handler runs in a `TaskScope`, so that anyio's rules hold within. Tasks are also started from
callbacks of the event loop, where anyio cannot make a cancel scope, as it finds the event loop by the running
task.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar
from functools import cache
from typing import Any, Final

import anyio
from anyio.lowlevel import current_token


class ThreadEvent:
    """An auto-reset event: setting it several times wakes the waiting task once."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._thread = threading.get_ident()
        self._soon: Callable[[Callable[[], None]], Any] | None = None

    def attach(self) -> None:
        if not self._event.is_set():
            # The old event may belong to an event loop on which the server was open before.
            self._event = anyio.Event()
        native: Any = current_token().native_token
        self._thread = threading.get_ident()
        # asyncio has this function on the loop, Trio on its token, under another name.
        self._soon = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon

    def set(self) -> None:
        """Wake the waiting task, or the next one to wait; never blocks; may be called in any thread."""
        if self._soon is None or threading.get_ident() == self._thread:
            self._event.set()
            return
        try:
            self._soon(lambda: self._event.set())
        except RuntimeError:
            # That event loop is closed: the next one to attach finds the event set.
            self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def clear(self) -> None:
        if self._event.is_set():
            self._event = anyio.Event()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = anyio.Event()


@cache
def _scope_class() -> type[anyio.CancelScope]:
    return type(anyio.CancelScope())


def new_scope() -> anyio.CancelScope:
    """A cancel scope; anyio finds out each time which event loop runs, which takes ten function calls."""
    return _scope_class()()


class TaskScope:
    """A cancel scope that its task creates, and that may be cancelled before the task starts."""

    __slots__ = ("_cancelled", "_scope")

    def __init__(self) -> None:
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False

    def begun(self) -> anyio.CancelScope:
        scope = self._scope = _scope_class()()
        if self._cancelled:
            scope.cancel()
        return scope

    def cancel(self) -> None:
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()


class TaskSet:
    """Tasks that end with their owner, who waits for them and learns of a failure."""

    def __init__(self, failed: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._failed = failed
        self._tasks: dict[asyncio.Task[None], TaskScope] = {}
        self._none = asyncio.Event()
        self._awaited = False
        self.fault: BaseException | None = None

    def start(
        self, scope: TaskScope, handler: Coroutine[Any, Any, None], context: Context | None = None
    ) -> None:
        """Run `handler`, which enters `scope` first; from Python 3.12 on it starts at once."""
        if sys.version_info >= (3, 12):
            task = asyncio.Task(handler, loop=self._loop, context=context, eager_start=True)
        else:
            task = self._loop.create_task(handler, context=context)
        self._tasks[task] = scope
        task.add_done_callback(self._done)

    def begin(self, work: Callable[[], Awaitable[None]]) -> None:
        scope = TaskScope()

        async def scoped() -> None:
            with scope.begun():
                await work()

        self.start(scope, scoped())

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    async def done(self) -> None:
        self._awaited = True
        while self._tasks:
            self._none.clear()
            await self._none.wait()

    async def end(self) -> None:
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


@asynccontextmanager
async def beside(
    *tasks: Callable[[], Coroutine[Any, Any, object]], last: Callable[[], Awaitable[object]] | None = None
) -> AsyncGenerator[None]:
    """Run tasks for the length of a block, which cancels them; then await `last`, shielded."""
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


Reason = Callable[[], str | None]

given_up: Final[ContextVar[Reason | None]] = ContextVar("mcp_toolset_given_up", default=None)
"""Returns why the requests of the current task are cancelled, if the peer gave a reason."""


def reason_in(params: object) -> str | None:
    reason: Any = params.get("reason") if isinstance(params, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return reason if isinstance(reason, str) else None


def reason_or(otherwise: str) -> str:
    ask = given_up.get()
    return (ask() if ask is not None else None) or otherwise


OWN_CANCEL: Final = "it awaited something that was cancelled"  # Why work failed that nobody cancelled.


def from_outside(fault: BaseException) -> bool:
    """True if a `CancelledError` means that the current task is cancelled, so that it must propagate.

    A tool that awaits a cancelled task of its own also gets one; its call has failed like any other call.
    """
    task = asyncio.current_task() if isinstance(fault, CancelledError) else None
    return task is not None and task.cancelling() > 0
