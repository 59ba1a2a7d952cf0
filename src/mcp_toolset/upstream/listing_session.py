"""`ListingSession`: the session over which the bridge lists a server's tools, replaced at each reconnect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.upstream.sessions.session import UpstreamSession
from mcp_toolset.upstream.target import Link


class ListingSession:
    """The session that lists; each connection of the owner has another one.

    Attributes:
        main: The session of the last connection; its `dispatcher` is `None` while it is not open.
        asking: How many requests of the bridge itself are in flight in it.
    """

    def __init__(self, link: Link, *, forwards: bool, shows: Mapping[str, Any]) -> None:
        """Describe the session.

        Args:
            link: How the upstream is reached.
            forwards: Whether a caller's own credentials are sent on.
            shows: What is declared for the sake of what is listed.
        """
        self._link = link
        self._forwards = forwards
        self._shows = shows
        self.asking = 0
        self.main = self._made()

    def _made(self) -> UpstreamSession:
        return UpstreamSession(self._link, forwards_credentials=self._forwards, shows=self._shows)

    def renew(self) -> UpstreamSession:
        """Another session in its place; it is for no client in particular, and none is asked through it."""
        self.main = self._made()
        return self.main

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        context: ToolContext | None = None,
        opts: CallOptions | None = None,
    ) -> dict[str, Any]:
        """Send a request of the bridge; see `UpstreamSession.request` for what it raises."""
        self.asking += 1
        try:
            return await self.main.request(method, params, context=context, opts=opts)
        finally:
            self.asking -= 1

    def met(self, context: ToolContext) -> None:
        """Note the caller of what is sent next, for messages of the server that are of no call."""
        self.main.calls.outside.meet(context)
