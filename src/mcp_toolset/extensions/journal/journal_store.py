"""`JournalStore`: the records of calls; each is written when a call begins, and changed when it ends.

A record is written, and synced to disk, before a tool runs. So if the process dies, the record is still
there, and a repeat of the call learns that its outcome is not known, instead of running it again. The outcome
is written before the caller gets it, and not synced: after a power cut the last outcomes are unknown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

from pydantic_core import from_json, to_json

from mcp_toolset.errors import StateError
from mcp_toolset.stores.store import ABSENT, Entry, Put, StorePlace, new_tag, store_at, users_file

Mode = Literal["off", "once", "repeat"]
"""`off`: not recorded. `once`: never run again. `repeat`: run again if its outcome is not known."""

Modes = Mapping[str, Mode]
"""Modes by pattern of tools."""

VARIABLE: Final = "MCP_TOOLSET_JOURNAL"
"""The environment variable with the path of another file."""


def journal_path() -> Path:
    """The file of the journal: that of `MCP_TOOLSET_JOURNAL`, else one in the user's folder for state."""
    if path := os.environ.get(VARIABLE, ""):
        return Path(path)
    return users_file("journal")


NAME: Final = "the journal of calls"
"""The name of the journal in errors."""

_SHELF: Final = "journal"
_CHUNK: Final = 100

TTL: Final = 7 * 86_400.0
"""Seconds for which a call is remembered by default."""

DAY: Final = 86_400.0
"""The least seconds for which a record is kept, so that the record of a running call stays."""

Kept = Literal["begun", "asked", "done", "unknown"]
"""The state in a row; `asked`: the call ended with a question to the client, who calls again."""

Standing = Literal["running", "asked", "done", "unknown"]
"""The present state of a call; a `begun` call is `running` while the process that began it lives."""


SHOWN: Final = 12
"""Characters of an id that people see, and by which they may name it."""


def moment(seconds: float) -> str:
    """A time as people read it."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


class Intent(NamedTuple):
    """A call that is about to run.

    Attributes:
        id: The id of the unit of work, the same for each repeat by the same caller; see `unit_of`.
        fingerprint: Digests of the tool and its arguments; see `fingerprint_of`.
        who: The caller's name for people.
        session: A digest of the caller's session, if it has one.
        server: The mounted server of the tool; empty for a local tool.
        tool: The tool's public name.
        arguments: The arguments as people see them: shortened, without secrets.
        source: The source of the call's key: `client`, `call id` or `none`.
        nonce: A value that is different for each call and each repeat.
    """

    id: str
    fingerprint: str
    who: str
    session: str
    server: str
    tool: str
    arguments: str
    source: str
    nonce: str = ""


class Record(NamedTuple):
    """A call that is recorded.

    Attributes:
        intent: The call.
        attempt: The number of attempts; a call is begun again only if that is allowed.
        state: The state in the row.
        owner: The process that made the last attempt.
        began: The beginning of the last attempt, in seconds since the epoch.
        ended: The time when the row was last written; 0 before.
        outcome: The sealed outcome; `None` if none was kept.
        note: The reason for a missing outcome, or a person's note.
    """

    intent: Intent
    attempt: int
    state: Kept
    owner: str
    began: float
    ended: float = 0.0
    outcome: bytes | None = None
    note: str = ""


class Found(NamedTuple):
    """A record, and the present state of its call."""

    record: Record
    standing: Standing


class Outcome(NamedTuple):
    """The end of an attempt.

    Attributes:
        state: The new state of the record.
        sealed: The sealed outcome.
        note: The reason for a missing outcome.
    """

    state: Kept
    sealed: bytes | None = None
    note: str = ""


class JournalStore:
    """The journal of calls.

    Use it within `async with`; several users of one object may enter it. Each method is one atomic step: when
    it returns, its change is on disk, or as safe as the store makes it. A failure is a `StoreError`.

    Attributes:
        store: The store; it is open while the journal is.
    """

    def __init__(
        self, place: StorePlace | None = None, *, ttl: float = TTL, clock: Callable[[], float] = time.time
    ) -> None:
        """Use a store.

        Args:
            place: A store that knows which of its users are alive, or an address; by default the user's file.
            ttl: Seconds for which a call is remembered.
            clock: Seconds since the epoch.
        """
        self.store = store_at(journal_path() if place is None else place, NAME, owned=True)
        self._ttl = ttl
        self._now = clock
        self._begun: dict[str, tuple[Record, int]] = {}

    @property
    def name(self) -> str:
        """The name of the store in errors and the log, without credentials."""
        return self.store.name

    async def __aenter__(self) -> Self:
        """Open the store.

        Raises:
            StoreError: it cannot be used.
        """
        await self.store.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store, once its last user has left."""
        await self.store.__aexit__(kind, fault, trace)

    async def begin(self, intent: Intent) -> Found | None:
        """Record that a call begins; `None` if it may run now, else the earlier record with its id."""
        known = ABSENT
        while True:
            standing = await self._begin(intent, 1, known)
            if standing is None:
                return None
            found, known = await self._found(intent.id, standing[0])
            if self._is_live(found):
                return found

    async def find(self, id: str) -> Found | None:
        """The record under an id, as `begin` would return it; nothing is recorded."""
        found, _ = await self._read(id)
        return found if self._is_live(found) else None

    async def take_over(self, intent: Intent, attempt: int) -> bool:
        """Begin a recorded call again as the attempt after `attempt`; false if another one has done so."""
        [entry] = await self.store.get((_SHELF, intent.id))
        if entry is None or _record(entry.value).attempt != attempt:
            return False
        return await self._begin(intent, attempt + 1, entry.tag) is None

    async def end(self, id: str, attempt: int, outcome: Outcome | None) -> None:
        """Record how an attempt has ended, or forget the call; nothing happens if it is not the newest."""
        known = self._begun.pop(id, None)
        while True:
            if known is None:
                [entry] = await self.store.get((_SHELF, id))
                known = None if entry is None else (_record(entry.value), entry.tag)
            if known is None or known[0].attempt != attempt:
                return
            if await self._change(*known, outcome, synced=False):
                return
            known = None

    async def release(self, id: str, attempt: int) -> None:
        """Forget a call that has certainly not happened, or whose outcome no repeat can ask for."""
        await self.end(id, attempt, None)

    async def records(self, *, prefix: str = "", limit: int = 100, undone: bool = False) -> Sequence[Found]:
        """The records, the newest first.

        Args:
            prefix: The beginning of their ids.
            limit: The largest number of records.
            undone: Only those of calls that are not done, as far as is known.
        """
        names = [name for name in await self.store.names(_SHELF) if name.startswith(prefix)]
        oldest, found = self._now() - self._ttl, list[Found]()
        for first in range(0, len(names), _CHUNK):
            some = names[first : first + _CHUNK]
            entries = await self.store.get(*((_SHELF, name) for name in some))
            for name, entry in zip(some, entries, strict=True):
                one, _ = await self._found(name, entry)
                if one is not None and one.record.began >= oldest and not (undone and one.standing == "done"):
                    found.append(one)
                if len(found) >= limit:
                    return found
        return found

    async def settle(self, id: str, note: str | None) -> bool:
        """Record a person's decision about a call that does not run.

        Args:
            id: The whole id.
            note: The outcome in words; `None` if the call never happened, so that it may be made again.

        Returns:
            True if there is such a call, and it does not run.
        """
        while True:
            found, tag = await self._read(id)
            if found is None or found.standing == "running":
                return False
            outcome = None if note is None else Outcome("done", note=note)
            if await self._change(found.record, tag, outcome, synced=True):
                return True

    async def _begin(self, intent: Intent, attempt: int, known: int) -> Sequence[Entry | None] | None:
        """Record that an attempt begins; returns the present entry if its tag is not `known`."""
        if not self.store.own:
            raise StateError(f"{self.name} is not open: use it within `async with`")
        now = self._now()
        record = Record(intent, attempt, "begun", self.store.own, now)
        at, seconds, tag = int(now * 1e6), max(self._ttl, DAY), new_tag()
        put = Put(_SHELF, intent.id, _value(record), known, at, seconds, tag=tag)
        standing = await self.store.write(put)
        if standing is None:
            self._begun[intent.id] = record, tag
        return standing

    async def _change(self, record: Record, tag: int, outcome: Outcome | None, *, synced: bool) -> bool:
        """Record an outcome, or forget the call; false if the record was changed meanwhile."""
        value = None
        if outcome is not None:
            state, sealed, note = outcome
            ended = record._replace(state=state, ended=self._now(), outcome=sealed, note=note)
            value = _value(ended)
        return await self.store.write(Put(_SHELF, record.intent.id, value, tag), synced=synced) is None

    async def _read(self, id: str) -> tuple[Found | None, int]:
        return await self._found(id, (await self.store.get((_SHELF, id)))[0])

    async def _found(self, id: str, entry: Entry | None) -> tuple[Found | None, int]:
        """A record with the present state of its call, and the tag that a change must name."""
        while entry is not None:
            record = _record(entry.value)
            if record.state != "begun":
                return Found(record, record.state), entry.tag
            if record.owner == self.store.own or await self.store.lives(record.owner):
                return Found(record, "running"), entry.tag
            # The process may have recorded an outcome just before it ended.
            [again] = await self.store.get((_SHELF, id))
            if again == entry:
                return Found(record, "unknown"), entry.tag
            entry = again
        return None, ABSENT

    def _is_live(self, found: Found | None) -> bool:
        """True if a record is there and not too old."""
        return found is not None and (
            found.standing == "running" or found.record.began >= self._now() - self._ttl
        )


def _value(record: Record) -> bytes:
    """A record as it is stored: a line of JSON, then the outcome if it is kept."""
    *members, sealed, note = record
    line = to_json([*members, note])
    return line if sealed is None else line + b"\n" + sealed


def _record(value: bytes) -> Record:
    """A record from the bytes that `_value` has made."""
    line, kept, sealed = value.partition(b"\n")
    intent, attempt, state, owner, began, ended, note = from_json(line)
    outcome = sealed if kept else None
    return Record(Intent(*intent), attempt, state, owner, began, ended, outcome, note)
