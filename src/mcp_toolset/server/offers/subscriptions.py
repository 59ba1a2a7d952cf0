"""`Subscriptions`: modern clients that listen, and the changes that they asked to hear of (2026-07-28).

A `subscriptions/listen` request lasts: its stream begins with what is granted, has every change with the
id of the request, and ends with a result when serving does. What a slow client has not been sent yet is
kept once: that a list has changed, or a resource, is no news while the same is still to be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio

from mcp_toolset.context.incoming import RequestContext
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, INVALID_REQUEST, MCPError
from mcp_toolset.protocol.revisions import SUBSCRIPTION_ID_META_KEY

MAX_STREAMS: Final = 1024
"""Requests to listen that one server may have open."""

TOOLS: Final = "notifications/tools/list_changed"
PROMPTS: Final = "notifications/prompts/list_changed"
RESOURCES: Final = "notifications/resources/list_changed"
UPDATED: Final = "notifications/resources/updated"

_LISTS: Final[Mapping[str, str]] = {
    "toolsListChanged": TOOLS,
    "promptsListChanged": PROMPTS,
    "resourcesListChanged": RESOURCES,
}

Change = tuple[str, str | None]
"""The method of a notification, and the resource that it is about."""


class Subscriptions:
    """The requests to listen that are open."""

    def __init__(self) -> None:
        """Start without any."""
        self._listeners: set[_Listener] = set()

    def publish(self, method: str, uri: str | None = None) -> None:
        """Tell every client that listens for it of a change."""
        for listener in self._listeners:
            listener.note((method, uri))

    def end_streams(self) -> None:
        """Let each stream end with what is still to be told, and its result."""
        for listener in self._listeners:
            listener.end()

    async def listen(self, request: RequestContext, granted: Mapping[str, Any]) -> dict[str, Any]:
        """Tell a client of changes until `end_streams`.

        Args:
            request: The client's request.
            granted: What it gets of what it asked for, as in `notifications` of the request.

        Raises:
            MCPError: it is a notification, or too many listen.
        """
        if request.request_id is None:
            raise MCPError(INVALID_REQUEST, "subscriptions/listen requires a request id")
        if len(self._listeners) >= MAX_STREAMS:
            raise MCPError(INTERNAL_ERROR, "Subscription limit reached")
        meta = {SUBSCRIPTION_ID_META_KEY: request.request_id}
        listener = _Listener(granted)
        # Before the first message goes: a change that comes meanwhile is sent after it.
        self._listeners.add(listener)
        try:
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

    def __init__(self, granted: Mapping[str, Any]) -> None:
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
        """Take no more changes."""
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
