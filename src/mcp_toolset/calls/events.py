"""`EventLog`: a bounded record of the events that tools report to the application."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.capability import SessionEvent

EVENT_LIMIT: Final = 1_000
"""The default number of events that are kept; the oldest are dropped."""

EVENT_BYTES: Final = 64_000
"""The largest size of one event in bytes of JSON, so that a tool cannot fill the host's memory."""


class EventLog:
    """A bounded record of events in memory."""

    def __init__(
        self, *, limit: int = EVENT_LIMIT, listener: Callable[[SessionEvent], None] | None = None
    ) -> None:
        """Start empty.

        Args:
            limit: The number of events to keep.
            listener: Called with each event as it is appended, for events that must outlive the process.

        Raises:
            DefinitionError: the limit is not positive.
        """
        if limit < 1:
            raise DefinitionError(f"an event log keeps at least one event, not {limit}")
        self._events: deque[SessionEvent] = deque(maxlen=limit)
        self._listener = listener
        self._count = 0

    def append(self, kind: str, data: Any = None, *, call: ToolCall, context: ToolContext) -> SessionEvent:
        """Append an event of a call.

        Raises:
            CallError: it has no kind, no JSON form, or is too long.
        """
        event = SessionEvent(
            self._count + 1,
            _kind(kind),
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


def _kind(kind: object) -> str:
    if not isinstance(kind, str) or not kind:
        raise CallError(f"an event needs a kind, a text such as 'order.placed', not {kind!r}")
    return kind


def _plain(data: Any, tool: str) -> Any:
    try:
        plain = to_jsonable_python(data, inf_nan_mode="null")
        size = len(to_json(plain))
    except (PydanticSerializationError, ValueError) as fault:
        raise CallError(f"{tool} noted an event that has no JSON form: {fault}") from None
    if size > EVENT_BYTES:
        raise CallError(f"{tool} noted an event of {size} bytes; at most {EVENT_BYTES} are kept")
    return plain
