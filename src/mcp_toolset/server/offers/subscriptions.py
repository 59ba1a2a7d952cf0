"""`Subscriptions`: modern clients that listen, and the changes that they asked to hear of (2026-07-28).

A `subscriptions/listen` request lasts: its stream begins with what is granted, has every change with the
id of the request, and ends with a result when serving does. What a slow client has not been sent yet is
kept once: that a list has changed, or a resource, is no news while the same is still to be told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import field
from functools import partial
from time import monotonic
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.context.client import ServedClient, stream_of
from mcp_toolset.context.connection import Connection, RequestContext
from mcp_toolset.context.offer_kinds import ListChange
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, INVALID_REQUEST, MCPError
from mcp_toolset.protocol.revisions import SUBSCRIPTION_ID_META_KEY
from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.tools.core.call import Identity

MAX_STREAMS: Final = 1024
"""Requests to listen that one server may have open."""

OWN_STREAMS: Final = 256
"""The same of one caller."""

OVERLAP: Final = 15.0
"""Seconds for which replicas tell a change to clients that begin to listen."""

TOOLS: Final = "notifications/tools/list_changed"
PROMPTS: Final = "notifications/prompts/list_changed"
RESOURCES: Final = "notifications/resources/list_changed"
UPDATED: Final = "notifications/resources/updated"

_LISTS: Final[Mapping[str, str]] = {
    "toolsListChanged": TOOLS,
    "promptsListChanged": PROMPTS,
    "resourcesListChanged": RESOURCES,
}

_NO_WATCH: Final = nullcontext()

Recipients = Callable[[Identity | None], bool]
"""Whether a caller is told of a change."""

Change = tuple[str, str | None]
"""The method of a notification, and the resource that it is about."""


def everybody(identity: Identity | None) -> bool:
    """Every caller is told."""
    return True


NOTIFY_DEADLINE: Final = 5.0
"""Seconds that one slow client may hold up the news of a change."""


class Subscriptions:
    """The requests to listen that are open."""

    def __init__(self, *, overlap: float = 0.0) -> None:
        """Start without any.

        Args:
            overlap: Seconds for which a change of a list, and the start of this process, are told to clients
                that begin to listen. A client whose replica ended listens at another one: what changed
                meanwhile would be lost.
        """
        self._listeners: set[_Listener] = set()
        self._overlap = overlap
        self._latest: dict[str, tuple[float, Recipients]] = {}
        if overlap:
            self._latest.update(dict.fromkeys(_LISTS.values(), (monotonic(), everybody)))

    def publish(
        self, method: str, uri: str | None = None, *, to: Recipients = everybody, client: str = ""
    ) -> None:
        """Tell every client that listens for it of a change, of those who are to be told; or one client."""
        if method in self._latest and not client:
            self._latest[method] = (monotonic(), to)
        for listener in self._listeners:
            if to(listener.identity) and client in ("", listener.client):
                listener.note((method, uri))

    def end_streams(self) -> None:
        """Let each stream end with what is still to be told, and its result."""
        for listener in self._listeners:
            listener.end()

    async def listen(
        self,
        request: RequestContext,
        granted: Mapping[str, Any],
        watching: AbstractAsyncContextManager[None] = _NO_WATCH,
        *,
        share: str = "",
    ) -> dict[str, Any]:
        """Tell a client of changes until `end_streams`.

        Args:
            request: The client's request.
            granted: What it gets of what it asked for, as in `notifications` of the request.
            watching: Watches the resources of it; entered if there is room for one more request to listen.
            share: Whose share of these requests it takes; empty if the caller is unknown.
        """
        if request.request_id is None:
            raise MCPError(INVALID_REQUEST, "subscriptions/listen requires a request id")
        if len(self._listeners) >= MAX_STREAMS:
            raise MCPError(INTERNAL_ERROR, "Subscription limit reached")
        if share and sum(each.share == share for each in self._listeners) >= OWN_STREAMS:
            told = f"Subscription limit reached: {OWN_STREAMS} streams of this caller are open; end one"
            raise MCPError(INTERNAL_ERROR, told)
        meta = {SUBSCRIPTION_ID_META_KEY: request.request_id}
        listener = _Listener(granted, request.identity, share)
        # Before the first message goes: a change that comes meanwhile is sent after it.
        self._listeners.add(listener)
        for method, (at, to) in self._latest.items():
            if monotonic() - at < self._overlap and to(listener.identity):
                listener.note((method, None))
        try:
            async with watching:
                first = {"notifications": dict(granted), "_meta": meta}
                await request.way.notify("notifications/subscriptions/acknowledged", first)
                while (change := await listener.next()) is not None:
                    method, uri = change
                    about = {} if uri is None else {"uri": uri}
                    await request.way.notify(method, {**about, "_meta": meta})
        finally:
            self._listeners.discard(listener)
        return {"_meta": meta}


class _Listener:
    """One stream: what its client asked for and is granted, and what it has not been sent yet."""

    def __init__(self, granted: Mapping[str, Any], identity: Identity | None, share: str) -> None:
        self.identity = identity
        self.share = share
        self.client = stream_of()
        uris = granted.get("resourceSubscriptions") or ()
        self._wanted: frozenset[Change] = frozenset(
            [(_LISTS[name], None) for name in _LISTS if granted.get(name)] + [(UPDATED, uri) for uri in uris]
        )
        self._pending: dict[Change, None] = {}
        self._ended = False
        self._news = anyio.Event()

    def note(self, change: Change) -> None:
        """Have a change told, unless that is to be done already."""
        if change in self._wanted and not self._ended:
            self._pending[change] = None
            self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def next(self) -> Change | None:
        """The next change to be told, once there is one; `None` when there will be none."""
        while not self._pending:
            if self._ended:
                return None
            self._news = anyio.Event()
            await self._news.wait()
        change = next(iter(self._pending))
        del self._pending[change]
        return change


@dataclass(eq=False)
class Announcements:
    """The legacy sessions of a server, its subscriptions, and what is announced to them.

    Attributes:
        subscriptions: The modern clients that listen.
        offering: Knows which clients are told by sessions of their own.
    """

    subscriptions: Subscriptions
    offering: Offering
    _sessions: dict[int, tuple[Connection, Identity | None]] = field(
        default_factory=dict[int, "tuple[Connection, Identity | None]"], init=False
    )

    def add(self, connection: Connection, identity: Identity | None = None) -> None:
        """Tell a legacy client from now on, until its connection ends."""
        if id(connection) not in self._sessions:
            self._sessions[id(connection)] = (connection, identity)
            connection.on_close(partial(self._sessions.pop, id(connection), None))

    async def tools(self, sources: Collection[str] = (), *, to: Recipients = everybody) -> None:
        """Tell clients, of both eras, that the list of tools has changed: that of some sources alone."""
        await self._announce(TOOLS, sources, to)

    async def grants(self) -> None:
        """Tell every legacy client that its own list may have changed: what it was granted is in it."""
        async with anyio.create_task_group() as group:
            for connection, _ in list(self._sessions.values()):
                group.start_soon(_notify, connection, TOOLS)

    async def offers(self, news: Mapping[str, Collection[str]], others: Recipients | None = None) -> None:
        """Tell clients that lists have changed, of `resources`, of `prompts`: those of some sources.

        Callers for whom `others` holds are told in any case: other sources exist for them than before.
        """
        for capability in ("resources", "prompts"):
            sources = news.get(capability)
            if sources is not None or (others is not None and self.offering.has(capability)):
                to = partial(self._is_concerned, sources, others)
                await self._announce(_METHODS[capability], sources or (), to)

    def _is_concerned(
        self, sources: Collection[str] | None, others: Recipients | None, identity: Identity | None
    ) -> bool:
        sees = sources is not None and self.offering.sees_some(sources, identity)
        return sees or (others is not None and others(identity))

    async def _announce(self, method: str, sources: Collection[str], to: Recipients) -> None:
        self.subscriptions.publish(method, to=to)
        async with anyio.create_task_group() as group:
            for connection, identity in list(self._sessions.values()):
                if to(identity) and not self._hears_by_itself(connection, sources):
                    group.start_soon(_notify, connection, method)

    def _hears_by_itself(self, connection: Connection, sources: Collection[str]) -> bool:
        """Whether a client is told of these sources by sessions of its own, so that this would be twice."""
        client: ServedClient | None = connection.client
        if client is None or not sources:
            return False
        return all(self.offering.tells_itself(source, client) for source in sources)

    async def lists(self, news: Collection[ListChange]) -> None:
        """Tell the clients of single sessions that what they see has changed."""
        for each in news:
            for connection, _ in list(self._sessions.values()):
                client: ServedClient | None = connection.client
                if client is not None and each.is_for(client):
                    await _notify(connection, _METHODS[each.capability])
            self.subscriptions.publish(_METHODS[each.capability], client=each.client_key)

    async def to(self, connection: Connection) -> None:
        """Tell one legacy client that its own list has changed, as by a grant."""
        await _notify(connection, TOOLS, seen_by_all=False)


_METHODS: Final[Mapping[str, str]] = {"tools": TOOLS, "resources": RESOURCES, "prompts": PROMPTS}


async def _notify(connection: Connection, method: str, *, seen_by_all: bool = True) -> None:
    with anyio.move_on_after(NOTIFY_DEADLINE):
        await connection.notify(method, seen_by_all=seen_by_all)
