"""`Running`: a process while it runs, as its work sees it; and the checks of what a process keeps."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

import anyio
from pydantic_core import PydanticSerializationError, from_json, to_json

from mcp_toolset._records import dataclass
from mcp_toolset.calls.background import EVENT_BYTES
from mcp_toolset.errors import CallError
from mcp_toolset.extensions.processes.records import Owner, ProcessRecords
from mcp_toolset.tools.services import Process

RESULT_BYTES: Final = 1_000_000
"""Bytes of a result that are kept."""

NAME_LENGTH: Final = 200
"""Characters of a name or of the kind of an event."""


@dataclass(eq=False, slots=True)
class Running:
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
