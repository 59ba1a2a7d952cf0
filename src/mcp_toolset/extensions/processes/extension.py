"""`Processes`: work that tools start, list, await and cancel, with a record that outlives the program.

The work itself ends with the block that opened it. What was cut off is `lost`, and is not started again.

The store of the records tells which of its users live. So a process whose program was killed is seen as lost
at once, without a clock.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import field
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, TypeVar

import anyio
from pydantic_core import PydanticSerializationError, from_json, to_json

from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.background import EVENT_BYTES, MAX_RUNNING, BackgroundWork
from mcp_toolset.calls.observers import VIEW
from mcp_toolset.concurrency.tasks import OWN_CANCEL, CancelledError, answer_of, beside, from_outside
from mcp_toolset.errors import CallError, StateError, StoreError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.stores.store import Entry, Place, Put, StorePlace, store_at, users_file
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.result import InputRequired, encodable
from mcp_toolset.tools.services import (
    OwnProcesses,
    Process,
    ProcessesOf,
    ProcessEvent,
    ProcessState,
    RunningProcess,
)

if TYPE_CHECKING:
    from mcp_toolset.extending.host import Host
    from mcp_toolset.stores.store import StorePlace


STEP_TIMEOUT: Final = 10.0
"""Seconds that one step may take."""

EVENTS_KEPT: Final = 1_000
"""Events that are kept of one process; the oldest are dropped."""

NOTE_LENGTH: Final = 4_000
"""Characters that are kept of the error of a process."""

NAME: Final = "the record of processes"
"""The name of the store in errors, which may reach a model."""

_CHUNK: Final = 100

_T = TypeVar("_T")


class Owner(NamedTuple):
    """The owner of processes."""

    key: str  # the caller; all callers without a login have one key
    session: str | None = None  # the session that such a caller sees in lists; `None` for all of the key
    own: str = ""  # the session that a new process is recorded with

    @property
    def shelf(self) -> str:
        return f"processes {hashlib.sha256(self.key.encode('utf-8', 'surrogatepass')).hexdigest()}"


class Kept(NamedTuple):
    """A record."""

    process: Process  # the handle
    result: bytes | None  # the result as JSON
    host: str  # the program that has started the process
    session: str  # the session that it was started in


class ProcessRecords:
    """The records; each method is one step."""

    def __init__(
        self, place: StorePlace, ttl: float, timeout: float, clock: Callable[[], float] = time.time
    ) -> None:
        """Keep records.

        Args:
            place: The place of the store.
            ttl: Seconds for which a process that has ended is remembered.
            timeout: Seconds that a process takes at most.
            clock: Seconds since the epoch.
        """
        self.now = clock
        self._store = store_at(place, NAME, owned=True, clock=clock)
        self._ttl = ttl
        self._timeout = timeout

    @property
    def own(self) -> str:
        """This program, as a host of processes."""
        return self._store.own

    async def __aenter__(self) -> Self:
        await self._done("be opened", self._store.__aenter__())
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self._store.__aexit__(None, None, None)

    async def add(self, process: Process, owner: Owner) -> None:
        """Record a process that is about to run."""
        put = self._put(process, None, owner, self._ttl + self._timeout)
        to = "record the process, which was not started"
        await self._done(to, self._store.write(put._replace(at=time.time_ns() // 1000)))

    async def end(self, process: Process, result: bytes | None, owner: Owner) -> None:
        """Record how a process of this program has ended."""
        process = replace(process, ended=self.now(), note=process.note[:NOTE_LENGTH])
        put = self._put(process, result, owner, self._ttl)
        step = self._store.write(put, Put(self._asked(), process.id, None))
        await self._done("record the end of a process", step)

    async def found(self, id: str, owner: Owner) -> Kept | None:
        place = (owner.shelf, encodable(id))
        [entry] = await self._done("be read", self._store.get(place))
        return await self._kept(place, entry)

    async def listed(self, owner: Owner, limit: int) -> Sequence[Kept]:
        """The newest records of this owner."""
        names, found = await self._done("be read", self._store.names(owner.shelf)), list[Kept]()
        for first in range(0, len(names), _CHUNK):
            places = [(owner.shelf, name) for name in names[first : first + _CHUNK]]
            entries = await self._done("be read", self._store.get(*places))
            for place, entry in zip(places, entries, strict=True):
                if len(found) >= limit:
                    return found
                kept = await self._kept(place, entry)
                if kept is not None and owner.session in (None, kept.session):
                    found.append(kept)
        return found

    async def stop(self, kept: Kept) -> None:
        """Ask the program that runs a process to end it."""
        put = Put(self._asked(kept.host), kept.process.id, b"", at=1, ttl=self._timeout)
        await self._done("be told to stop a process", self._store.write(put))

    async def stopping(self) -> Sequence[str]:
        """The processes of this program that someone has asked to end."""
        return await self._done("be read", self._store.names(self._asked()))

    async def note(self, id: str, number: int, kind: str, data: bytes) -> None:
        """Record an event, and drop the oldest if there are too many."""
        value = to_json([encodable(kind), self.now()]) + b"\n" + data
        ttl = self._ttl + self._timeout
        put = Put(_events(id), str(number), value, at=number, ttl=ttl, max_entries=EVENTS_KEPT)
        await self._done("record an event", self._store.write(put, synced=False))

    async def events(self, id: str, after: int) -> Sequence[ProcessEvent]:
        """The events with numbers above `after`."""
        names = await self._done("be read", self._store.names(_events(id)))
        numbers = sorted(number for number in map(int, names) if number > after)
        places = ((_events(id), str(number)) for number in numbers)
        entries = await self._done("be read", self._store.get(*places))
        return [_event(number, one) for number, one in zip(numbers, entries, strict=True) if one is not None]

    def _asked(self, host: str = "") -> str:
        """The shelf of the processes of a program that are to end."""
        return f"stop {host or self.own}"

    def _put(self, process: Process, result: bytes | None, owner: Owner, ttl: float) -> Put:
        told = (encodable(process.name), process.state, process.tool, process.began, process.ended)
        line = to_json([*told, encodable(process.note), self.own, owner.own])
        value = line if result is None else line + b"\n" + result
        return Put(owner.shelf, process.id, value, ttl=ttl)

    async def _kept(self, place: Place, entry: Entry | None) -> Kept | None:
        """A record; a process that runs in a program that has ended is lost."""
        while entry is not None:
            line, has_ended, result = entry.value.partition(b"\n")
            *told, host, session = from_json(line)
            process = Process(place[1], *told)
            kept = Kept(process, result if has_ended else None, host, session)
            if process.state != "running" or host == self.own:
                return kept
            if await self._done("be read", self._store.lives(host)):
                return kept
            # It may have recorded an end just before its own.
            [again] = await self._done("be read", self._store.get(place))
            if again == entry:
                note = "the program that ran it ended in the middle"
                return kept._replace(process=replace(process, state="lost", note=note))
            entry = again
        return None

    async def _done(self, to: str, step: Awaitable[_T]) -> _T:
        """One step, which is not given up half done."""
        with anyio.CancelScope(shield=True):
            return await answer_of(NAME, step, within=STEP_TIMEOUT, to=to)
        raise AssertionError("nothing cancels this scope")


def _events(id: str) -> str:
    return f"events {id}"


def _event(number: int, entry: Entry) -> ProcessEvent:
    line, _, data = entry.value.partition(b"\n")
    kind, at = from_json(line)
    return ProcessEvent(number, kind, from_json(data), at)


RESULT_BYTES: Final = 1_000_000
"""Bytes of a result that are kept."""

NAME_LENGTH: Final = 200
"""Characters of a name or of the kind of an event."""


@dataclass(eq=False, slots=True)
class Running(RunningProcess):
    """A process that runs here; the first argument of its work."""

    process: Process
    owner: Owner
    records: ProcessRecords
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)
    is_stopped: bool = False
    events: int = 0

    @property
    def id(self) -> str:
        return self.process.id

    async def emit(self, kind: str, data: Any = None) -> None:
        if self.ended.is_set():
            raise CallError(f"the process {self.id} has ended; it notes no more events")
        check_name(kind, "the kind of an event")
        written = _json(data, "an event")
        if len(written) > EVENT_BYTES:
            raise CallError(f"an event of {len(written)} bytes; at most {EVENT_BYTES} are kept")
        self.events += 1
        await self.records.note(self.id, self.events, kind, written)

    def stop(self) -> None:
        self.is_stopped = True
        self.scope.cancel()


def kept_result(value: Any) -> tuple[bytes | None, str]:
    """The result as JSON; or nothing, and why, if it is too long."""
    written = _json(value, "its result")
    if len(written) > RESULT_BYTES:
        return None, f"its result of {len(written)} bytes was not kept, as {RESULT_BYTES} are the most"
    return written, ""


def _json(value: Any, what: str) -> bytes:
    try:
        written = to_json(value, inf_nan_mode="null")
        if len(written) <= RESULT_BYTES:
            from_json(written)  # what is too deep, or has too many digits, can be written and never read
    except (PydanticSerializationError, ValueError) as fault:
        raise CallError(f"{what} has no JSON form: {fault}; use plain values") from None
    return written


def check_name(name: object, what: str) -> None:
    """Check a name or kind; `CallError` if it is no text, empty or too long."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH:
        raise CallError(f"{what} is a text of 1 to {NAME_LENGTH} characters, not {name!r:.80}")


TIMEOUT: Final = 86_400.0
"""Seconds that one process may take, unless told otherwise."""

STOP_TIMEOUT: Final = 5.0
"""Seconds that a caller who cancels a process waits for its end."""

_FIRST_PAUSE: Final = 0.02
_LAST_PAUSE: Final = 0.5
"""Seconds between two looks at a process."""

_CURRENT: Final[ContextVar[RunningProcess | None]] = ContextVar("mcp_toolset_process", default=None)
_log = logging.getLogger("mcp_toolset.processes")


class Processes(Extension):
    """Runs processes while the `async with` block is open, and keeps their records in a store."""

    key: ClassVar = "processes"
    in_views: ClassVar = "shared"

    def __init__(
        self,
        place: StorePlace | None = None,
        *,
        max_running: int = MAX_RUNNING,
        timeout: float = TIMEOUT,
        ttl: float = 7 * 86_400.0,
    ) -> None:
        """Use a store, which is opened when the block is entered.

        Args:
            place: The path of a file, which only its user can read, the URL of a store, or a `Store`;
                `processes.sqlite3` in the user's folder for state unless given.
            max_running: The number of processes that may run at the same time.
            timeout: Seconds that one process may take.
            ttl: Seconds for which a process that has ended is remembered.

        Raises:
            DefinitionError: a number is not positive.
        """
        require_positive("Processes", max_running=max_running, timeout=timeout, ttl=ttl)
        self.serves_one = False
        self._max_running = max_running
        self._timeout = timeout
        place = users_file("processes") if place is None else place
        self.records = ProcessRecords(place, ttl, 2 * timeout)
        self._running: dict[str, Running] = {}
        self._work: BackgroundWork | None = None
        self._began = anyio.Event()
        self._stack: AsyncExitStack | None = None

    def bind(self, host: Host) -> Self:
        """Keep this object for every server: servers that open one after the other may share processes."""
        self.host = host
        return self

    def services(self) -> Mapping[type, object]:
        return {ProcessesOf: self}

    def alone(self) -> None:
        self.serves_one = True

    def running(self) -> Self:
        """The object itself: processes are open while tools can be called."""
        return self

    async def __aenter__(self) -> Self:
        """Open the store.

        Raises:
            StateError: it is open already.
            StoreError: it cannot be opened, or is of another program.
        """
        if self._stack is not None:
            raise StateError("these processes are open already; open one block at a time")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.records)
            await stack.enter_async_context(beside(self._follow))
            self._work = await stack.enter_async_context(
                BackgroundWork(max_running=self._max_running, timeout=2 * self._timeout)
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Cut off what runs, which is lost then, and close the store."""
        assert self._stack is not None
        stack, self._stack = self._stack, None
        return await stack.__aexit__(kind, fault, trace)

    def owned_by(self, context: ToolContext) -> CallersProcesses:
        """The processes of the caller of a call."""
        return CallersProcesses(self, self._owner(context), context.name)

    def _owner(self, context: ToolContext) -> Owner:
        session, view = context.session or "", VIEW.get()
        # Views of one server have one store, and each has its own processes.
        at = f"view:{view} " if view else ""
        if context.principal:
            return Owner(f"{at}principal:{context.principal}", own=session)
        if context.protocol_version is None:
            return Owner(f"{at}host:{session}", own=session)
        if self.serves_one:
            return Owner(f"{at}anonymous", own=session)
        # Without a login and a session there is no telling who lists: such a caller finds its own by id.
        return Owner(f"{at}anonymous", session or secrets.token_hex(), session)

    async def start(
        self,
        name: str,
        work: Callable[..., Awaitable[Any]],
        arguments: Sequence[Any] = (),
        *,
        owner: Owner,
        tool: str = "",
    ) -> Process:
        """Record a process and run it; see `OwnProcesses.start`."""
        check_name(name, "the name of a process")
        if self._stack is None or self._work is None:
            raise StateError("processes are not open; use them inside `async with Processes(…)`")
        if len(self._running) >= self._max_running:
            raise CallError(f"{self._max_running} processes run already; wait for one of them or cancel it")
        process = Process(secrets.token_urlsafe(16), name, "running", tool, self.records.now())
        running = self._running[process.id] = Running(process, owner, self.records)
        try:
            self._began.set()
            await self.records.add(process, owner)
            self._work.start(self._run, running, work, tuple(arguments))
        except BaseException:
            del self._running[process.id]
            raise
        return process

    async def found(self, id: str, owner: Owner) -> Kept:
        """The record of a process.

        Raises:
            CallError: the owner has none.
        """
        runs = frozenset(self._running)
        kept = await self.records.found(id, owner)
        if kept is None:
            raise CallError(f"no process {id!r} is known to this caller; list the processes that are")
        return self._standing(kept, runs)

    async def listed(self, owner: Owner, limit: int) -> Sequence[Process]:
        """The processes of an owner, the newest first."""
        runs = frozenset(self._running)
        found = await self.records.listed(owner, limit)
        return [self._standing(kept, runs).process for kept in found]

    async def ended(self, id: str, owner: Owner, timeout: float | None) -> Kept:
        """The record of a process, once it has ended or the time is over.

        Raises:
            CallError: the owner has none.
        """
        pause = _FIRST_PAUSE
        kept = await self.found(id, owner)
        with anyio.move_on_after(timeout):
            while kept.process.state == "running":
                with anyio.move_on_after(pause):
                    await self._ending(id)
                pause = min(pause * 2, _LAST_PAUSE)
                kept = await self.found(id, owner)
        return kept

    async def cancel(self, kept: Kept) -> None:
        """Ask for the end of a process, here or in another program."""
        if running := self._running.get(kept.process.id):
            running.stop()
        else:
            await self.records.stop(kept)

    def _standing(self, kept: Kept, runs: Collection[str]) -> Kept:
        """The record of a process whose end could not be recorded is that of a lost one.

        `runs` are the processes that ran here before the record was read.
        """
        process, is_here = kept.process, kept.host == self.records.own
        if process.state != "running" or not is_here or process.id in runs:
            return kept
        return kept._replace(process=replace(process, state="lost", note="its end could not be recorded"))

    async def _ending(self, id: str) -> None:
        """Wait for the end of a process that runs here; wait on for that of another program."""
        running = self._running.get(id)
        await (anyio.sleep_forever() if running is None else running.ended.wait())

    async def _run(
        self, running: Running, work: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]
    ) -> None:
        state: ProcessState = "lost"
        result, note = None, "the program that ran it was closed"
        _CURRENT.set(running)
        try:
            with running.scope, anyio.move_on_after(self._timeout):
                result, note = kept_result(await work(running, *arguments))
                state = "done"
            if state != "done":
                late = f"it took more than {self._timeout:g} s"
                state, note = ("cancelled", "") if running.is_stopped else ("failed", late)
        except CancelledError as fault:
            if from_outside(fault):
                raise
            state, note = "failed", OWN_CANCEL
        # It is the application's code and may raise anything, try to exit, or ask a client whose call has
        # ended; the others go on.
        except (Exception, SystemExit, InputRequired) as fault:
            _log.exception("the process %s failed", running.id)
            state, note = "failed", str(fault) or type(fault).__name__
        finally:
            await self._end(running, state, result, note)

    async def _end(self, running: Running, state: ProcessState, result: bytes | None, note: str) -> None:
        try:
            ended = replace(running.process, state=state, note=note)
            await self.records.end(ended, result, running.owner)
        except StoreError as fault:
            # The record says that it runs for as long as this program lives, and then that it is lost.
            _log.error("the end of the process %s (%s) was not recorded: %s", running.id, state, fault)
        del self._running[running.id]
        running.ended.set()

    async def _follow(self) -> None:
        """End the processes that other programs have asked to end."""
        while True:
            if not self._running:
                self._began = anyio.Event()
                await self._began.wait()
            await anyio.sleep(_LAST_PAUSE)
            await self._stop_asked()

    async def _stop_asked(self) -> None:
        try:
            asked = await self.records.stopping()
        except StoreError:
            return  # logged where it happened; the next look may succeed
        for id in asked:
            if running := self._running.get(id):
                running.stop()


@dataclass(frozen=True, slots=True)
class CallersProcesses(OwnProcesses):
    """The processes of a caller, as tools have them in `context.processes`."""

    processes: Processes
    owner: Owner
    tool: str

    @property
    def current(self) -> RunningProcess:
        running = _CURRENT.get()
        if running is None:
            raise CallError(f"{self.tool or 'this call'} does not run in a process, so it can note no events")
        return running

    async def start(self, name: str, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Process:
        return await self.processes.start(name, work, arguments, owner=self.owner, tool=self.tool)

    async def get(self, id: str) -> Process:
        return (await self.processes.found(id, self.owner)).process

    async def list(self, *, limit: int = 100) -> Sequence[Process]:
        return await self.processes.listed(self.owner, limit)

    async def result(self, id: str, *, timeout: float | None = None) -> Any:
        process, result, *_ = await self.processes.ended(id, self.owner, timeout)
        if process.state == "running":
            raise CallError(f"the process {id} has not ended within {timeout:g} s; ask again later")
        if process.state != "done" or result is None:
            raise CallError(f"the process {id} ({process.name}) {_told(process)}")
        return from_json(result)

    async def cancel(self, id: str) -> Process:
        kept = await self.processes.found(id, self.owner)
        if kept.process.state == "running":
            await self.processes.cancel(kept)
        return (await self.processes.ended(id, self.owner, STOP_TIMEOUT)).process

    async def events(self, id: str, *, after: int = 0) -> Sequence[ProcessEvent]:
        await self.get(id)
        return await self.processes.records.events(id, after)


def _told(process: Process) -> str:
    if process.state == "lost":
        return (
            f"is lost: {process.note}. What it has done is not known, and it is not started "
            "again; look before you start another one"
        )
    words = {"failed": "failed", "cancelled": "was cancelled"}.get(process.state, "is done")
    return f"{words}: {process.note}" if process.note else words


EXTENSION = Processes
