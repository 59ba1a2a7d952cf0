"""`Outside`: delivers what a server says outside of any call, if one client alone can be meant.

Up to 2025-11-25 a server may send log messages, and notifications of its own, at any time. They are for the
client of the session: where several clients have used a session, nothing says for which of them, and they
are dropped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from mcp_toolset.context.client import ServedClient
from mcp_toolset.context.delivery import Delivery
from mcp_toolset.context.request import WireContext
from mcp_toolset.protocol.eras.meta import forwarded_meta, meta_of, wants_log
from mcp_toolset.tools.core.call import ToolContext

Start = Callable[[Callable[[], Awaitable[None]]], object]


class Outside:
    """The client that has used a session, as long as it is the only one.

    Attributes:
        key: What tells the client of the latest request from others.
    """

    __slots__ = ("_client", "_delivery", "_ends", "_shared", "key")

    def __init__(self) -> None:
        """Know of no client that has used the session."""
        self.key: str | None = ""
        self._client: ServedClient | None = None
        self._shared = False
        self._ends: Callable[[], None] | None = None
        self._delivery = Delivery()

    def used_by(self, key: str | None, context: ToolContext) -> None:
        """Take note of a request of another client than that of the request before."""
        first, self.key = self.key == "", key
        self._forget()
        self._shared = self._shared or not first
        if not self._shared and isinstance(context, WireContext) and not context.modern:
            self.client_is(context.client)

    def meet(self, context: ToolContext) -> None:
        """Take note of a request that is no call."""
        key = context.client_key if isinstance(context, WireContext) else None
        if key != self.key:
            self.used_by(key, context)

    def client_is(self, client: ServedClient) -> None:
        """Belong to a client alone."""
        self.key, self._client = client.key, client
        self._ends = client.when_gone(self._forget)

    def take(self, method: str, params: Mapping[str, Any] | None, start: Start) -> None:
        """Send a notification on, on no request's stream, if it is sure whom it is for."""
        client = self._client
        if client is None:
            return
        if method == "notifications/message" and not wants_log(client.log_level, (params or {}).get("level")):
            return
        if params is not None and "_meta" in params:
            params = {**params, "_meta": forwarded_meta(meta_of(params))}
        self._delivery.add(partial(client.notify, method), params)
        if not self._delivery.running:
            self._delivery.running = True
            start(self._delivery.run)

    def _forget(self) -> None:
        self._client = None
        if self._ends is not None:
            self._ends()
            self._ends = None
