"""Tasks and threads that end with their owner, deadlines, and askers who share one run."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Hashable
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context, ContextVar
from functools import cache
from math import inf
from typing import Any, Final, Generic, TypeVar, cast

import anyio
import anyio.to_thread
from anyio.lowlevel import current_token

from mcp_toolset.errors import StoreError, sole


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


MUCH: Final = 100_000  # Number of objects from which a scan takes noticeably long, about 10 ms.

_owned: Final[ContextVar[bool]] = ContextVar("mcp_toolset_owns_its_process", default=False)


@contextmanager
def owning() -> Generator[None]:
    token = _owned.set(True)
    try:
        yield
    finally:
        _owned.reset(token)


@contextmanager
def starting() -> Generator[None]:
    """Pause the collector while a program starts: next to nothing of what it loads and makes is garbage."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def staying() -> Generator[None]:
    """Pause the collector for the length of a block and exempt the objects made in it.

    Only reference cycles among them stay; so young garbage is collected first, and few objects are not
    exempted. In a host application, or while collection is disabled, nothing happens.
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


_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1
_LARGE: Final = 1024 * 1024
_AT_TOP: Final = 8 * 1024 * 1024
"""Bytes from which on a block goes back when it is freed, and of free memory that an arena may end with."""


def give_back_large_blocks() -> None:
    """Make glibc give the memory of large results back to the system once they are freed, where it is used.

    Of itself it keeps blocks of up to 32 MiB in the arena of each thread once the first has been freed.
    """
    if sys.platform == "linux":
        import ctypes

        with suppress(AttributeError, OSError):
            libc = ctypes.CDLL(None)
            libc.mallopt(_MMAP_THRESHOLD, _LARGE)
            libc.mallopt(_TRIM_THRESHOLD, _AT_TOP)


BIG: Final = 500  # Number of tools from which a catalog is large: compiling it takes more than about 20 ms.

_TURN: Final = 0.01
_AWAY: Final = 0.0005
"""Seconds between two pauses of the event loop for the worker thread, and the length of a pause."""

_T = TypeVar("_T")


async def in_worker_if_large(work: Callable[[], _T], tools: int) -> _T:
    if tools <= BIG:
        return work()
    with staying():
        return await in_worker(work)


async def in_worker(work: Callable[[], _T]) -> _T:
    """Do work in a worker thread; a busy event loop pauses for it now and then.

    A busy loop releases the interpreter lock often, but each time for less than a waiting thread needs to
    wake up: without the pauses, 50 ms of work took seconds.
    """
    done: list[_T] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_give_way)
            done.append(await anyio.to_thread.run_sync(work))
            group.cancel_scope.cancel()
    except BaseExceptionGroup as raised:
        # The caller wants the error of the work itself, not a group with one error.
        raise sole(raised) from None
    return done[0]


async def _give_way() -> None:
    while True:
        await anyio.sleep(_TURN)
        # This blocks the whole loop on purpose, so that it releases the interpreter lock.
        time.sleep(_AWAY)  # noqa: ASYNC251, TID251


_SLACK: Final = 0.01  # Seconds that a deadline may be late, so that all are looked at this seldom.

REQUEST_TIMEOUT: Final = 30.0  # Seconds for the head of an HTTP request, and then for its body.


class WorkingTime:
    """The deadline of a cancel scope that can be paused, such as while a user answers a question."""

    __slots__ = ("_left", "_scope", "_stops")

    def __init__(self, scope: anyio.CancelScope) -> None:
        self._scope = scope
        self._stops = 0
        self._left = 0.0

    def pause(self) -> None:
        self._stops += 1
        if self._stops == 1:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = float("inf")

    def resume(self) -> None:
        self._stops -= 1
        if self._stops == 0:
            self.give(self._left)

    def give(self, seconds: float) -> None:
        """Let it end so many seconds from now.

        The timer has no context: asyncio keeps a cancelled one until its time, and with it what a call knows.
        """
        Context().run(setattr, self._scope, "deadline", anyio.current_time() + seconds)


class Deadlines(Generic[_T]):
    """The times that things of one kind have, with one timer: one for each would cost a call too much."""

    __slots__ = ("_late", "_next", "_timer", "_until")

    def __init__(self, late: Callable[[_T], None]) -> None:
        self._late = late
        self._until: dict[_T, float] = {}
        self._next = inf
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, one: _T, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        until = self._until[one] = now + seconds
        # A time that is over was that of an event loop that has ended.
        if until < self._next or self._next < now:
            self._arm(loop, until)

    def end(self, one: _T) -> None:
        self._until.pop(one, None)

    def stop(self) -> None:
        self._until.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = until
        # Without the variables of the call that happens to be the first.
        self._timer = loop.call_at(until, self._look, context=Context())

    def _look(self) -> None:
        self._timer, self._next = None, inf
        loop = asyncio.get_running_loop()
        now = loop.time()
        for one in [one for one, until in self._until.items() if until <= now]:
            del self._until[one]
            self._late(one)
        if self._until:
            self._arm(loop, max(min(self._until.values()), now + _SLACK))


STORE_TIMEOUT: Final = 2.0  # Seconds that a store has for one answer unless told otherwise.
_log = logging.getLogger("mcp_toolset.stores")


async def answer_of(
    name: str, asked: Awaitable[_T], *, within: float, to: str, error: type[StoreError] = StoreError
) -> _T:
    """The answer of the store `name`, within so many seconds; `to` says what it was asked to do."""
    try:
        with anyio.fail_after(within):
            return await asked
    except TimeoutError:
        reason = f"it gave no answer within {within:g} s"
        _log.error("%s: %s (%s)", name, reason, to)
    # A store is the application's code and may raise anything; its words may have credentials in them.
    except Exception as fault:
        if isinstance(fault, error):
            raise
        if isinstance(fault, StoreError):
            # The store has logged it, and says it for models.
            raise error(str(fault)) from None
        reason = "it cannot be used now"
        _log.error("%s: %s failed: %r", name, to, fault)
    raise error(f"{name}: {reason}, so it could not {to}; try again later")


_K = TypeVar("_K", bound=Hashable)


class SingleFlight(Generic[_K]):
    """One run for each key at a time, of the task that asked first; if cancelled, another one begins anew."""

    def __init__(self) -> None:
        self._flights: dict[_K, asyncio.Future[Any]] = {}

    async def run(self, key: _K, fetch: Callable[[], Awaitable[_T]]) -> _T:
        """The result of `fetch`, in this run or in the run of a caller that asked before."""
        while (other := self._flights.get(key)) is not None:
            await asyncio.wait([other])
            if not other.cancelled():
                return cast("_T", other.result())
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        try:
            value = await fetch()
            flight.set_result(value)
            return value
        # Whatever it is, those who wait must learn of it.
        except Exception as fault:
            flight.set_exception(fault)
            flight.exception()  # it is raised here if nobody waits
            raise
        finally:
            del self._flights[key]
            flight.cancel()
