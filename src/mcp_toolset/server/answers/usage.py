"""`Usage`: the statistics of one server: its calls, and the tokens of its tools.

It counts the lists that clients read, and saves the sums every few seconds.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

import anyio
import anyio.to_thread

from mcp_toolset._records import dataclass
from mcp_toolset.calls.pipeline.call_report import client_label
from mcp_toolset.calls.statistics.counts import LISTED, SEARCH, SESSIONS, SHOWN, CallCounts, Sums
from mcp_toolset.concurrency.beside import beside
from mcp_toolset.context.client import stream_of
from mcp_toolset.context.incoming import RequestContext
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import StoreError
from mcp_toolset.protocol.codec import json_of
from mcp_toolset.tools.core.identity import Identity
from mcp_toolset.tools.view.made import Made
from mcp_toolset.tools.view.view import ToolBinding

Answer = Callable[[RequestContext], Awaitable[dict[str, Any]]]
Tools = list[dict[str, Any]]

SAVED_EVERY: Final = 5.0
"""Seconds between two saves: what a process that is killed loses at most."""

SESSION: Final = 3600.0
"""Seconds after which a client of the modern era, which has no sessions, counts as a new one."""

_MOST: Final = 1_000
_KEY: Final = "statistics"
_log = logging.getLogger("mcp_toolset.server")


class Served(Protocol):
    """The tools that a server serves at the moment."""

    @property
    def table(self) -> Mapping[str, ToolBinding]:
        """Everything that can be called, by public name; replaced, never changed."""
        ...

    def preview(self, identity: Identity | None) -> str | None:
        """What a caller is told of deferred tools at the beginning."""
        ...


@dataclass(slots=True)
class _Session:
    """What a client was listed so far, and when it is forgotten."""

    until: float
    tools: Tools | None = None
    names: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Reading:
    """A client has read a list for the first time in its session, or tools that are new on it."""

    client: str
    tools: Tools
    served: Served
    table: Mapping[str, ToolBinding]
    identity: Identity | None
    preview: str = ""
    is_first: bool = False


class Usage:
    """Sums what one server does for its clients.

    Attributes:
        counts: The observer of its calls.
    """

    def __init__(
        self,
        path: Path | None,
        search: Collection[str],
        hides: Callable[[ToolBinding, Identity | None], bool],
    ) -> None:
        """Count nothing yet.

        Args:
            path: The file; by default the user's.
            search: The tools that search and grant.
            hides: Whether a tool does not exist for a caller.
        """
        self.counts = CallCounts(search)
        self._path = path
        self._search = search
        self._hides = hides
        self._sessions: OrderedDict[tuple[str, str, str], _Session] = OrderedDict()
        self._readings: list[_Reading] = []
        self._sizes = Made(_size_of)
        self._unsaved: dict[tuple[str, str, str], int] = {}
        self._warned = False

    def around(self, served: Served, lists: Answer) -> Answer:
        """What answers `tools/list`, with what is read of the lists counted."""

        async def listed(request: RequestContext) -> dict[str, Any]:
            result = await lists(request)
            self._listed(request, result["tools"], served)
            return result

        return listed

    def running(self, served: Callable[[], str]) -> AbstractAsyncContextManager[None]:
        """Save every few seconds for the length of a block, and at its end; `served` names what is served."""
        return beside(partial(self._save_again, served), last=lambda: self.save(served()))

    async def _save_again(self, served: Callable[[], str]) -> None:
        while True:
            await anyio.sleep(SAVED_EVERY)
            await self.save(served())

    async def save(self, served: str) -> None:
        """Add what was counted to the file; if that fails, the next save adds it."""
        readings, self._readings = self._readings, []
        sums = self.counts.taken()
        if readings or sums or self._unsaved:
            await anyio.to_thread.run_sync(self._write, served, readings, sums)

    def _write(self, served: str, readings: Iterable[_Reading], sums: Sums) -> None:
        for key, number in (*sums.items(), *(each for one in readings for each in self._cost(one))):
            self._unsaved[key] = self._unsaved.get(key, 0) + number
        # What writes is loaded by the thread that writes, when a server has long answered its first requests.
        from mcp_toolset.calls.statistics.place import statistics_path
        from mcp_toolset.calls.statistics.store import StatisticsStore

        path = self._path or statistics_path()
        try:
            if path is not None:
                StatisticsStore(path).add(served, self._unsaved)
            self._unsaved = {}
        except StoreError as fault:
            # Statistics are no reason to disturb a server; the command tells what is wrong.
            _log.log(logging.DEBUG if self._warned else logging.INFO, "%s", fault)
            self._warned = True

    def _listed(self, request: RequestContext, tools: Tools, served: Served) -> None:
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
        reading = _Reading(client, fresh, served, served.table, context.identity)
        if first:
            reading.is_first = True
            reading.preview = served.preview(context.identity) or ""
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
        """What a list cost, and for a new session what all tools would have cost."""
        client = reading.client
        for tool in reading.tools:
            binding = reading.table.get(tool["name"])
            server = SEARCH if tool["name"] in self._search else "" if binding is None else binding.source
            yield (server, client, SHOWN), len(json_of(tool))
        if not reading.is_first:
            return
        yield ("", client, SESSIONS), 1
        if reading.preview:
            yield (SEARCH, client, SHOWN), len(reading.preview.encode())
        # What servers that were still starting have listed since is of the catalog, too.
        bindings = [one for name, one in reading.served.table.items() if name not in self._search]
        for binding, size in zip(bindings, self._sizes.of(bindings), strict=True):
            if not self._hides(binding, reading.identity):
                yield (binding.source, client, LISTED), size


def _size_of(binding: ToolBinding) -> int:
    return len(json_of(binding.to_wire()))
