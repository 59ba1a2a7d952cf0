"""`ProcessRecords`: the records of processes in a `Store`, which programs share.

The store tells which of its users live. So a process whose program was killed is seen as lost at once,
without a clock.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Self, TypeVar

import anyio
from pydantic_core import from_json, to_json

from mcp_toolset._records import replace
from mcp_toolset.concurrency.tasks import answer_of
from mcp_toolset.stores.store import Entry, Place, Put, StorePlace, store_at
from mcp_toolset.tools.result import encodable
from mcp_toolset.tools.services import Process, ProcessEvent

STEP_TIMEOUT: Final = 10.0
"""Seconds that one step may take."""

EVENTS_KEPT: Final = 1_000
"""Events that are kept of one process; the oldest are dropped."""

NOTE_LENGTH: Final = 4_000
"""Characters that are kept of the error of a process."""

NAME: Final = "the record of processes"
"""What errors call the store; they may reach a model."""

_CHUNK: Final = 100

_T = TypeVar("_T")


class Owner(NamedTuple):
    """Whose processes they are."""

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
        self, place: StorePlace, lifetime: float, longest: float, now: Callable[[], float] = time.time
    ) -> None:
        """Keep records.

        Args:
            place: Where.
            lifetime: Seconds for which a process that has ended is remembered.
            longest: Seconds that a process takes at most.
            now: Seconds since the epoch.
        """
        self.now = now
        self._store = store_at(place, NAME, owned=True, now=now)
        self._lifetime = lifetime
        self._longest = longest

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
        put = self._put(process, None, owner, self._lifetime + self._longest)
        to = "record the process, which was not started"
        await self._done(to, self._store.write(put._replace(at=time.time_ns() // 1000)))

    async def end(self, process: Process, result: bytes | None, owner: Owner) -> None:
        """Record how a process of this program has ended."""
        process = replace(process, ended=self.now(), note=process.note[:NOTE_LENGTH])
        put = self._put(process, result, owner, self._lifetime)
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
        put = Put(self._asked(kept.host), kept.process.id, b"", at=1, seconds=self._longest)
        await self._done("be told to stop a process", self._store.write(put))

    async def stopping(self) -> Sequence[str]:
        """The processes of this program that someone has asked to end."""
        return await self._done("be read", self._store.names(self._asked()))

    async def note(self, id: str, number: int, kind: str, data: bytes) -> None:
        """Record an event, and drop the oldest if there are too many."""
        value = to_json([encodable(kind), self.now()]) + b"\n" + data
        seconds = self._lifetime + self._longest
        put = Put(_events(id), str(number), value, at=number, seconds=seconds, most=EVENTS_KEPT)
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

    def _put(self, process: Process, result: bytes | None, owner: Owner, seconds: float) -> Put:
        told = (encodable(process.name), process.state, process.tool, process.began, process.ended)
        line = to_json([*told, encodable(process.note), self.own, owner.own])
        value = line if result is None else line + b"\n" + result
        return Put(owner.shelf, process.id, value, seconds=seconds)

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
