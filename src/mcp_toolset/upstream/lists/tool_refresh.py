"""`ToolRefresh`: lists the tools of a mounted server at the start, and again after each change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio

from mcp_toolset.errors import UpstreamError, UpstreamTimeoutError, UpstreamUnavailableError
from mcp_toolset.protocol.cache_hints import STRICTEST, CacheHint
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.upstream.listing_session import ListingSession
from mcp_toolset.upstream.lists.tool_list import UpstreamTools
from mcp_toolset.upstream.mount_state import MountState
from mcp_toolset.upstream.pagination import Listing
from mcp_toolset.upstream.sessions.pool import SessionPool

REFRESH_GAP: Final = 0.5
"""Seconds between one listing and the next, however many changes are announced."""


class ToolRefresh:
    """When the tools of one server are listed, and what becomes of a list.

    Attributes:
        told_of_changes: Whether the server tells when its list has changed.
        on_lost: Is called when listing again has found the connection lost.
    """

    def __init__(
        self,
        tools: UpstreamTools,
        listing: ListingSession,
        pool: SessionPool,
        state: MountState,
        log: logging.Logger,
    ) -> None:
        """List nothing yet.

        Args:
            tools: What takes in a list.
            listing: The session that lists.
            pool: Knows how long starting and listing may take.
            state: Becomes ready with each list that is taken.
            log: Where it is noted that listing failed.
        """
        self.told_of_changes = False
        self.on_lost: Callable[[], None] = lambda: None
        self._tools = tools
        self._listing = listing
        self._pool = pool
        self._state = state
        self._log = log
        self._due = anyio.Event()
        self._tools_said = False
        self._said: set[str] = set()

    def begin(self) -> None:
        """Forget what was due over an earlier connection, which may have waited on another event loop."""
        self._due = anyio.Event()

    @property
    def is_due(self) -> bool:
        """Whether the tools are to be listed again."""
        return self._due.is_set()

    def outdated(self) -> None:
        """List again: a change may have been missed, or the server may not be there any more."""
        self._due.set()

    def heard(self) -> None:
        """List again, because the server has said that its list has changed."""
        self._tools_said = True
        self._due.set()

    def not_told(self) -> None:
        """The server does not tell of changes after all."""
        self.told_of_changes = False

    def said(self) -> set[str]:
        """`tools`, if the server has said that they have changed, once they are listed again; told once."""
        said, self._said = self._said, set()
        return said

    def hint(self) -> CacheHint | None:
        """How long the tools may be kept from now on; `None` if the server declares that it has none."""
        if self._state.now != "ready":
            return STRICTEST
        declared = self._listing.main.capabilities
        if declared is not None and "tools" not in declared:
            return None
        if not self.told_of_changes and self._tools.outlived:
            self._due.set()
        return self._tools.hint(told_of_changes=self.told_of_changes)

    async def keep_fresh(self) -> None:
        """List again after changes; any number of them during one listing cause one more."""
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            said, self._tools_said = self._tools_said, False
            try:
                await self._take_list_surely(said=said)
            except UpstreamUnavailableError:
                return self.on_lost()
            except UpstreamError as fault:
                self._failed(fault)
            await anyio.sleep(REFRESH_GAP)

    def _failed(self, fault: UpstreamError) -> None:
        health = self._listing.main.health
        reason = f"listing again failed, the last list stays: {fault}"
        self._log.warning("%s", in_log(reason))
        if isinstance(fault, UpstreamTimeoutError):
            health.missed(self._pool.start_timeout)
        if not health.fault:
            self._state.set("ready", reason)

    async def _take_list_surely(self, *, said: bool) -> None:
        """List, a second time if the request was lost on an open connection: one request proves nothing."""
        try:
            listing = await self.walked()
        except UpstreamUnavailableError:
            if self._listing.main.dispatcher is None:
                raise
            listing = await self.walked()
        await self.admit(listing, said=said)

    async def walked(self) -> Listing:
        """The list as the server gives it now; see `UpstreamTools.walked` for what it raises."""
        return await self._tools.walked(self._pool.start_timeout, self._listing.main.capabilities)

    async def admit(self, listing: Listing, *, said: bool = False) -> None:
        """Take a list as the state of the server; `said` if the server has said that it is another one."""
        fault = await self._tools.admit(listing)
        if said:
            self._said.add("tools")
        if fault:
            self._log.warning("%s", in_log(fault))
        self._state.set("ready", fault)
