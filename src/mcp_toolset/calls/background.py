"""`BackgroundWork`: work that goes on after its call; `EventLog`: what tools note for later calls.

Its owner is the block that opened it; at the end of the block all work is cancelled.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import field
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.abc
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.tasks import OWN_CANCEL, CancelledError, from_outside
from mcp_toolset.errors import CallError, StateError, sole
from mcp_toolset.tools.call import SessionEvent, ToolCall, ToolContext

MAX_EVENTS: Final = 1_000  # The default number of events that are kept; the oldest are dropped.
EVENT_BYTES: Final = 64_000  # The largest size of one event in bytes of JSON.


class EventLog:
    """A bounded record of events in memory."""

    def __init__(
        self, *, max_events: int = MAX_EVENTS, listener: Callable[[SessionEvent], None] | None = None
    ) -> None:
        """Keep at most `max_events` events; `listener` gets each, for events that outlive the process."""
        require_positive("EventLog", max_events=max_events)
        self._events: deque[SessionEvent] = deque(maxlen=max_events)
        self._listener = listener
        self._count = 0

    def append(self, kind: str, data: Any = None, *, call: ToolCall, context: ToolContext) -> SessionEvent:
        """Append an event of a call. Raises `CallError`: it has no kind, no JSON form, or is too long."""
        if not isinstance(kind, str) or not kind:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CallError(f"an event needs a kind, a text such as 'order.placed', not {kind!r}")
        event = SessionEvent(
            self._count + 1,
            kind,
            _plain(data, call.name),
            call.name,
            call.id,
            context.session,
            context.principal,
        )
        self._count = event.number
        self._events.append(event)
        if self._listener is not None:
            self._listener(event)
        return event

    def since(self, number: int = 0, *, session: str | None = None) -> list[SessionEvent]:
        """The kept events after the given number, of one session if given."""
        kept = (event for event in self._events if event.number > number)
        return [event for event in kept if session is None or event.session == session]


def _plain(data: Any, tool: str) -> Any:
    try:
        plain = to_jsonable_python(data, inf_nan_mode="null")
        size = len(to_json(plain))
    except (PydanticSerializationError, ValueError) as fault:
        raise CallError(f"{tool} noted an event that has no JSON form: {fault}") from None
    if size > EVENT_BYTES:
        raise CallError(f"{tool} noted an event of {size} bytes; at most {EVENT_BYTES} are kept")
    return plain


MAX_RUNNING: Final = 64  # The default number of works that may run at the same time.
WORK_TIMEOUT: Final = 3600.0  # The default seconds that one work may take.
WORKS_KEPT: Final = 256  # The number of ended works whose results are kept; the oldest are dropped.

_log = logging.getLogger("mcp_toolset.calls")


@dataclass(slots=True)
class _Work:
    owner: str
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)
    value: Any = None
    fault: str | None = None


class BackgroundWork:
    """Runs work that continues after its call, while the `async with` block is open."""

    def __init__(self, *, max_running: int = MAX_RUNNING, timeout: float = WORK_TIMEOUT) -> None:
        """Run at most `max_running` works at the same time, each for at most `timeout` seconds."""
        require_positive("BackgroundWork", max_running=max_running, timeout=timeout)
        self._max_running = max_running
        self._timeout = timeout
        self._under_way: dict[str, _Work] = {}
        self._done: OrderedDict[str, _Work] = OrderedDict()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._host = self

    def beside(self, *, max_running: int, timeout: float) -> BackgroundWork:
        """Further work with limits of its own, which runs while this block is open."""
        work = BackgroundWork(max_running=max_running, timeout=timeout)
        work._host = self
        return work

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise StateError("this background work is open already; open one block at a time")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        tasks, self._tasks = self._tasks, None
        tasks.cancel_scope.cancel()
        try:
            return await tasks.__aexit__(kind, fault, trace)
        except BaseExceptionGroup as group:
            if sole(group) is fault:
                return False
            raise

    def start(self, work: Callable[..., Awaitable[Any]], *arguments: Any, owner: str = "") -> str:
        """Run `work(*arguments)`; return an unguessable id, with which `owner` alone gets its result.

        Raises:
            StateError: the block is not open.
            CallError: too much work is running.
        """
        tasks = self._host._tasks
        if tasks is None:
            raise StateError(
                "background work is not open; start it inside `async with BackgroundWork() as work`"
            )
        if len(self._under_way) >= self._max_running:
            raise CallError(f"{self._max_running} works are running already; await one of them first")
        id, made = secrets.token_urlsafe(16), _Work(owner)
        self._under_way[id] = made
        tasks.start_soon(self._run, id, made, work, arguments)
        return id

    async def result(self, id: str, *, timeout: float | None = None, owner: str = "") -> Any:
        """The result of a work, once it has ended; `timeout` bounds the wait, in seconds.

        Raises `CallError` if the owner has no work with this id, it failed, or it has not ended in time.
        """
        work = self._found(id, owner)
        with anyio.move_on_after(timeout):
            await work.ended.wait()
        if not work.ended.is_set():
            raise CallError(f"the work {id} has not ended within {timeout:g} s; ask again later")
        if work.fault is not None:
            raise CallError(f"the work {id} {work.fault}")
        return work.value

    def cancel(self, id: str, *, owner: str = "") -> None:
        """Cancel a work; a work that has ended is ignored."""
        self._found(id, owner).scope.cancel()

    def owned_by(self, owner: str) -> OwnedWork:
        """The works of one owner, for a tool."""
        return OwnedWork(self, owner)

    def _found(self, id: str, owner: str) -> _Work:
        work = self._under_way.get(id) or self._done.get(id)
        if work is None or work.owner != owner:
            raise CallError(f"no background work {id!r} is known here; start it again")
        return work

    async def _run(
        self, id: str, made: _Work, work: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]
    ) -> None:
        made.fault = "was stopped"
        try:
            with made.scope, anyio.fail_after(self._timeout):
                made.value = await work(*arguments)
                made.fault = None
        except CancelledError as fault:
            if from_outside(fault):
                raise
            made.fault = f"failed: {OWN_CANCEL}"
        # It is the application's code and may raise anything, or try to exit; the others go on.
        except (Exception, SystemExit) as fault:
            _log.exception("background work %s failed", id)
            made.fault = f"failed: {str(fault) or type(fault).__name__}"
        finally:
            del self._under_way[id]
            self._done[id] = made
            if len(self._done) > WORKS_KEPT:
                self._done.popitem(last=False)
            made.ended.set()


@dataclass(frozen=True, slots=True)
class OwnedWork:
    """The background work of one owner; work of others cannot be awaited or cancelled with it."""

    work: BackgroundWork
    owner: str

    def start(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> str:
        return self.work.start(work, *arguments, owner=self.owner)

    async def result(self, id: str, *, timeout: float | None = None) -> Any:
        return await self.work.result(id, timeout=timeout, owner=self.owner)

    def cancel(self, id: str) -> None:
        self.work.cancel(id, owner=self.owner)
