"""`EventParser`: the events in a stream of server-sent events (HTML, "Server-sent events")."""

from __future__ import annotations

from typing import Final, NamedTuple

from mcp_toolset.transports.allowance import PER_LINE

_BOM: Final = b"\xef\xbb\xbf"


class EventTooLongError(Exception):
    """An event has more bytes than it may have."""


class Event(NamedTuple):
    """One event of a stream."""

    name: bytes  # the field `event`; empty where the event has none, which means `message`
    data: bytes  # the lines of the field `data`


class EventParser:
    """Parses one stream of events that arrives in chunks of any size.

    Attributes:
        last_id: The id of the last complete event, with which a client resumes the stream.
        retry: Milliseconds that the server asks clients to wait before they resume; `None` if it does not.
        work: The cost of the bytes that are not data of events; the reader resets it.
    """

    __slots__ = (
        "_after_cr",
        "_begun",
        "_data",
        "_id",
        "_limit",
        "_name",
        "_parts",
        "_size",
        "last_id",
        "retry",
        "work",
    )

    def __init__(self, limit: int, last_id: bytes = b"", retry: int | None = None) -> None:
        self.last_id = self._id = last_id
        self.retry = retry
        self._limit = limit
        self._parts: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._size = self.work = 0
        self._begun = self._after_cr = False

    @property
    def is_between_events(self) -> bool:
        return not self._size

    def feed(self, chunk: bytes) -> list[Event]:
        if chunk and self._after_cr:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        if b"\n" not in chunk and b"\r" not in chunk:
            # A part of a long line.
            self._add(chunk)
            return []
        ended = chunk.endswith((b"\n", b"\r"))
        lines = chunk.splitlines()
        rest = b"" if ended else lines.pop()
        events: list[Event] = []
        self.work += PER_LINE * len(lines)
        if self._parts:
            self._parts.append(lines[0])
            self._size -= sum(map(len, self._parts[:-1]))
            lines[0] = b"".join(self._parts)
            self._parts = []
        if not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            if line:
                self._take(line)
            elif (event := self._event()) is not None:
                events.append(event)
        if rest:
            self._add(rest)
        return events

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._count(len(part))

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise EventTooLongError(f"an event has more than {self._limit} bytes")

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            self._count(len(line))
            self._data.append(value)
        elif field == b"event":
            self._count(len(line))
            self._name = value
        elif field == b"id" and b"\0" not in value:
            self._count(len(line))
            self._id = value
        elif field == b"retry" and value.isdigit():
            # Python refuses to read thousands of digits; twelve are more than any wait.
            self.retry = int(value.lstrip(b"0")[:12] or b"0")
        else:
            self.work += len(line)

    def _event(self) -> Event | None:
        """The event that an empty line ends, if it has data; its id counts even without data."""
        data, name, self.last_id = self._data, self._name, self._id
        self._size = 0
        if not data and not name:
            return None
        self._data, self._name = [], b""
        return Event(name, data[0] if len(data) == 1 else b"\n".join(data)) if data else None
