"""`JournalStore`: where calls are recorded, first that one begins and then what it came to.

A row is written before a tool runs. So if the process dies, the row is still there, and a repeat of the call
learns that its outcome is not known, instead of running it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

LIFETIME: Final = 7 * 86_400.0
"""Seconds for which a call is remembered, unless a journal says otherwise."""

DAY: Final = 86_400.0
"""Seconds for which a record is kept at least, so that a call that runs still is not forgotten."""

Kept = Literal["begun", "asked", "done", "unknown"]
"""What a row says: `asked` is a call that has ended with a question to the client, to be made again."""

Standing = Literal["running", "asked", "done", "unknown"]
"""What that means now: a call that was begun runs as long as the process does that has begun it."""


class Intent(NamedTuple):
    """A call that is about to run.

    Attributes:
        id: What the same unit of work of the same caller has, and nothing else; see `unit_of`.
        fingerprint: Digests of the tool and its arguments; see `fingerprint_of`.
        who: What people call the caller.
        session: A digest of the caller's session, if it has one.
        server: The mounted server of the tool; empty for a local tool.
        tool: The tool's public name.
        arguments: The arguments as people see them: shortened, without secrets.
        source: Where the key of the call is from: `client`, `call id` or `none`.
        nonce: What no other call has, and no repeat of this one.
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
        intent: What was to run.
        attempt: How often it was begun; a call is only begun again if that is allowed.
        state: What the row says.
        owner: The process that has begun it.
        began: When it was begun last, in seconds since the epoch.
        ended: When the row was last written; 0 before.
        outcome: What it came to, sealed; `None` if nothing was kept.
        note: Why there is no outcome, or what a person has said of it.
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
    """A record, and how the call stands now."""

    record: Record
    standing: Standing


class Outcome(NamedTuple):
    """How an attempt has ended.

    Attributes:
        state: What is known of it now.
        sealed: What it came to.
        note: Why there is no outcome.
    """

    state: Kept
    sealed: bytes | None = None
    note: str = ""


@runtime_checkable
class JournalStore(AbstractAsyncContextManager[Any], Protocol):
    """Where calls are recorded: `SqliteJournal`, `RedisJournal`, `PostgresJournal`, or one of yours.

    It is entered before it is used, and left when it is not used any more; several users of one object may
    enter it. Each method is one step that no other process can come between, and is on disk, or as safe as
    the store makes it, when it returns. What fails is a `StoreError`.
    """

    @property
    def name(self) -> str:
        """What errors and the log call it; without credentials."""
        ...

    async def begin(self, intent: Intent) -> Found | None:
        """Record that a call begins; `None` if it may run now, else what there is under its id."""
        ...

    async def find(self, id: str) -> Found | None:
        """What there is under an id, as `begin` would say; it records nothing."""
        ...

    async def take_over(self, intent: Intent, attempt: int) -> bool:
        """Begin a recorded call again as the attempt after `attempt`; false if another one has done so."""
        ...

    async def end(self, id: str, attempt: int, outcome: Outcome) -> None:
        """Record how an attempt has ended; nothing happens if it is not the newest."""
        ...

    async def release(self, id: str, attempt: int) -> None:
        """Forget a call that has certainly not happened, or whose outcome no repeat can ask for."""
        ...

    async def records(self, *, prefix: str = "", limit: int = 100, undone: bool = False) -> Sequence[Found]:
        """The records, the newest first.

        Args:
            prefix: Those whose ids begin with it.
            limit: How many.
            undone: Only those of calls that are not done, as far as is known.
        """
        ...

    async def settle(self, id: str, note: str | None) -> bool:
        """Let a person say what became of a call that does not run.

        Args:
            id: The whole id.
            note: What it came to; `None` if it never happened, so that it may be made again.

        Returns:
            Whether there is such a call, and it does not run.
        """
        ...
