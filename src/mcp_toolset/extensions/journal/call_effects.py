"""`CallEffects`: the steps of a call that is recorded, each with a record of its own.

A call that was cut off can then run again: the steps that are done give their recorded values, and the step
that was under way is not done again unless the handler allows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import anyio.lowlevel
from pydantic_core import PydanticSerializationError, from_json, to_json

from mcp_toolset._records import dataclass
from mcp_toolset.errors import CallError, DefinitionError, UpstreamError
from mcp_toolset.extensions.journal.answers import SHOWN, UNKNOWN, moment
from mcp_toolset.extensions.journal.journal_store import Found, Intent, JournalStore, Outcome, Record
from mcp_toolset.extensions.journal.unit import LONGEST_KEY, Unit

Step = Callable[[Awaitable[Any], str], Awaitable[Any]]
"""One step of the journal, and what it is for in the error."""

_BEGIN: Final = "record a step of the call, which was not done"


@dataclass(frozen=True, slots=True)
class CallEffects:
    """The steps of one call."""

    journal: JournalStore  # where they are recorded
    unit: Unit  # the unit of work of the call
    intent: Intent  # how the call is recorded
    most: int  # bytes of a value that are kept
    step: Step  # does one step of the journal

    async def once(
        self, key: str, work: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...], *, repeat: bool
    ) -> Any:
        """Do a step, or give the recorded value of it; see `ToolContext.effect`."""
        if not 0 < len(key) <= LONGEST_KEY:
            raise DefinitionError(f"the key of an effect has 1 to {LONGEST_KEY} characters, not {len(key)}")
        unit, intent = self.unit.part(key), self._intent(key)
        found = cast("Found | None", await self.step(self.journal.begin(intent), _BEGIN))
        attempt = 1
        if found is not None:
            record, standing = found
            if standing == "done":
                return self._recorded(unit, record, key)
            if standing == "running":
                raise CallError(f"the step {key!r} runs already; give each step of a call a key of its own")
            if not repeat:
                raise CallError(self._unknown(record, key))
            if not await self.step(self.journal.take_over(intent, record.attempt), _BEGIN):
                raise CallError(f"another process does the step {key!r} now; make the call again")
            attempt = record.attempt + 1
        return await self._done(unit, intent, attempt, work, arguments, key)

    def _intent(self, key: str) -> Intent:
        name = f"{self.intent.tool} · {key[:80]}"
        told = hashlib.sha256(
            f"{self.intent.fingerprint}\n{key}".encode("utf-8", "surrogatepass")
        ).hexdigest()
        return self.intent._replace(id=self.unit.part(key).id, fingerprint=told, tool=name, source="effect")

    async def _done(
        self,
        unit: Unit,
        intent: Intent,
        attempt: int,
        work: Callable[..., Awaitable[Any]],
        arguments: tuple[Any, ...],
        key: str,
    ) -> Any:
        outcome: Outcome | None = None
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            outcome = UNKNOWN
            written = _json(await work(*arguments), key)
            outcome = self._kept(unit, written)
            return from_json(written)
        except UpstreamError as fault:
            outcome = UNKNOWN if fault.sent else None
            raise
        finally:
            if outcome is None:
                end = self.journal.release(intent.id, attempt)
            else:
                end = self.journal.end(intent.id, attempt, outcome)
            await self.step(end, "record the outcome of a step")

    def _kept(self, unit: Unit, written: bytes) -> Outcome:
        sealed = unit.sealed(from_json(written))
        if len(sealed) > self.most:
            return Outcome("done", note=f"its value of {len(written)} bytes was not kept")
        return Outcome("done", sealed)

    def _recorded(self, unit: Unit, record: Record, key: str) -> Any:
        if record.outcome is not None:
            return unit.opened(record.outcome)
        if record.attempt and record.note.startswith("its value of "):
            raise CallError(f"the step {key!r} is done, and {record.note}; return less from it")
        return record.note

    def _unknown(self, record: Record, key: str) -> str:
        return (
            f"the step {key!r} began at {moment(record.began)}, and its outcome is not known. Look where it "
            f"has its effect whether it has happened, then say so by `mcp-toolset journal settle "
            f"{record.intent.id[:SHOWN]}` with --done or --never"
        )


def _json(value: Any, key: str) -> bytes:
    try:
        return to_json(value)
    except (PydanticSerializationError, ValueError) as fault:
        raise DefinitionError(
            f"the step {key!r} is done, and its value has no JSON form ({fault}); return plain values"
        ) from None
