"""`Statistics`: the calls of a server and the tokens of its tools are counted, for `mcp-toolset stats`.

It counts the lists that clients read, and saves the sums every few seconds.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import anyio
import anyio.to_thread

from mcp_toolset._records import dataclass
from mcp_toolset.calls.observers import client_label
from mcp_toolset.concurrency.tasks import beside
from mcp_toolset.context.connection import RequestContext, stream_of
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import StoreError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.statistics import counts
from mcp_toolset.protocol.json_rpc import json_of
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.view import Made, ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.extension import Answer
    from mcp_toolset.extending.host import Host

Tools = list[dict[str, Any]]

SAVED_EVERY: Final = 5.0
"""Seconds between two saves: what a process that is killed loses at most."""

SESSION: Final = 3600.0
"""Seconds after which a client of the modern era, which has no sessions, counts as a new one."""

_MOST: Final = 1_000
_KEY: Final = "statistics"
_log = logging.getLogger("mcp_toolset.server")


@dataclass(slots=True)
class _Session:
    """The list that a client has read so far, and the time at which it is forgotten."""

    until: float
    tools: Tools | None = None
    names: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Reading:
    """A client has read a list for the first time in its session, or tools that are new on it."""

    client: str
    tools: Tools
    table: Mapping[str, ToolBinding]
    identity: Identity | None
    preview: str = ""
    is_first: bool = False


class Statistics(Extension):
    """Sums what one server does for its clients, in a file that `mcp-toolset stats` reads."""

    key: ClassVar = "stats"
    served: ClassVar = True

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        """Count nothing yet.

        Args:
            path: The file; by default the user's.
        """
        self._path = None if path is None else Path(path)
        self.counts = counts.CallCounts()
        self._sessions: OrderedDict[tuple[str, str, str], _Session] = OrderedDict()
        self._readings: list[_Reading] = []
        self._sizes = Made(_size_of)
        self._unsaved: dict[tuple[str, str, str], int] = {}
        self._warned = False

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self | None:
        """Build the extension from its keyword; a configuration can turn it off, but not on."""
        if said is True or said is None:
            return cls() if said and counts.is_counting() else None
        return cls(said)

    def bind(self, host: Host) -> Self:
        """Count by this server alone."""
        bound = type(self)(self._path)
        bound.host = host
        return bound

    def observer(self) -> counts.CallCounts:
        self.counts.search = frozenset(self.host.catalog_names)
        return self.counts

    def intercept(self, method: str, answer: Answer) -> Answer:
        """Count what clients read of lists."""
        if method != "tools/list":
            return answer

        async def listed(request: RequestContext) -> dict[str, Any]:
            result = await answer(request)
            self._listed(request, result["tools"])
            return result

        return listed

    def running(self) -> AbstractAsyncContextManager[None]:
        """Save every few seconds, and before mounted servers are closed: many clients kill a slow server."""
        return beside(self._save_again, last=self.save)

    async def _save_again(self) -> None:
        while True:
            await anyio.sleep(SAVED_EVERY)
            await self.save()

    async def save(self) -> None:
        """Add what was counted to the file; if that fails, the next save adds it."""
        readings, self._readings = self._readings, []
        sums = self.counts.taken()
        if readings or sums or self._unsaved:
            await anyio.to_thread.run_sync(self._write, self.host.served_as, readings, sums)

    def _write(self, served: str, readings: Iterable[_Reading], sums: counts.Sums) -> None:
        for key, number in (*sums.items(), *(each for one in readings for each in self._cost(one))):
            self._unsaved[key] = self._unsaved.get(key, 0) + number
        # What writes is loaded by the thread that writes, when a server has long answered its first requests.
        from mcp_toolset.extensions.statistics.counts import statistics_path
        from mcp_toolset.extensions.statistics.store import StatisticsStore

        path = self._path or statistics_path()
        try:
            if path is not None:
                StatisticsStore(path).add(served, self._unsaved)
            self._unsaved = {}
        except StoreError as fault:
            # Statistics are no reason to disturb a server; the command tells what is wrong.
            _log.log(logging.DEBUG if self._warned else logging.INFO, "%s", fault)
            self._warned = True

    def _listed(self, request: RequestContext, tools: Tools) -> None:
        """Note that a client reads a list; of a longer one later in its session only what is new."""
        context = WireContext(request)
        session = self._session_of(request, context)
        if session.tools is tools:
            return
        names = frozenset(tool["name"] for tool in tools)
        first, new = session.tools is None, names - session.names
        session.tools, session.names = tools, session.names | names
        if not (first or new) or len(self._readings) >= _MOST:
            return
        fresh = tools if first else [tool for tool in tools if tool["name"] in new]
        client = self.counts.client(client_label(context))
        reading = _Reading(client, fresh, self.host.table, context.identity)
        if first:
            reading.is_first = True
            reading.preview = self.host.preview(context.identity) or ""
        self._readings.append(reading)

    def _session_of(self, request: RequestContext, context: WireContext) -> _Session:
        now = monotonic()
        if not request.modern:
            return request.connection.state.setdefault(_KEY, _Session(now))
        key = (stream_of() or "", client_label(context), context.principal or "")
        session = self._sessions.get(key)
        if session is None or session.until < now:
            session = self._sessions[key] = _Session(now + SESSION)
            if len(self._sessions) > _MOST:
                self._sessions.popitem(last=False)
        return session

    def _cost(self, reading: _Reading) -> Iterator[tuple[tuple[str, str, str], int]]:
        """The cost of a list, and for a new session the cost of a list of all tools."""
        client = reading.client
        for tool in reading.tools:
            binding = reading.table.get(tool["name"])
            source = "" if binding is None else binding.source
            server = counts.SEARCH if tool["name"] in self.counts.search else source
            yield (server, client, counts.SHOWN), len(json_of(tool))
        if not reading.is_first:
            return
        yield ("", client, counts.SESSIONS), 1
        if reading.preview:
            yield (counts.SEARCH, client, counts.SHOWN), len(reading.preview.encode())
        # What servers that were still starting have listed since is of the catalog, too.
        bindings = [one for name, one in self.host.table.items() if name not in self.counts.search]
        for binding, size in zip(bindings, self._sizes.of(bindings), strict=True):
            if not self.host.hides(binding, reading.identity):
                yield (binding.source, client, counts.LISTED), size


def _size_of(binding: ToolBinding) -> int:
    return len(json_of(binding.to_wire()))


EXTENSION = Statistics
