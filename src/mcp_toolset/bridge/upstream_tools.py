"""`UpstreamTools`: what one mounted server lists, what of it is usable, and how long that may be kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import anyio
import mcp_types as types

from mcp_toolset.bridge.beside import BIG, in_worker
from mcp_toolset.bridge.caching import STRICTEST, CacheHint
from mcp_toolset.bridge.heap import staying
from mcp_toolset.bridge.link import Link
from mcp_toolset.bridge.listing import Listing, usable_over_http
from mcp_toolset.catalog.pins import Pins
from mcp_toolset.catalog.source import EMPTY_SNAPSHOT, CatalogSnapshot, take_snapshot
from mcp_toolset.errors import UpstreamProtocolError, UpstreamTimeoutError


class UpstreamTools:
    """The list of one server's tools, taken as a whole each time.

    Attributes:
        pins: What judges its definitions.
        snapshot: The tools that are served, and those that are set aside.
    """

    def __init__(self, link: Link, pins: Pins, request: Callable[..., Awaitable[dict[str, Any]]]) -> None:
        """List what `link` leads to, by `request`; nothing is known yet."""
        self.pins = pins
        self.snapshot: CatalogSnapshot = EMPTY_SNAPSHOT
        self._link = link
        self._request = request
        self._listed: CatalogSnapshot = EMPTY_SNAPSHOT
        self._hint, self._began = STRICTEST, float("-inf")
        self._admitting = anyio.Lock()

    async def walked(self, seconds: float, declared: types.ServerCapabilities | None) -> Listing:
        """The whole list as it is now; empty for a server that declares prompts or resources alone.

        Raises:
            UpstreamError: the server cannot be asked, refused, or listed nothing in time.
        """
        listing = Listing()
        try:
            await listing.walk(self._request, seconds)
        except TimeoutError:
            raise UpstreamTimeoutError(self._link.name, "it listed no tools in time") from None
        except UpstreamProtocolError as fault:
            if fault.code != types.METHOD_NOT_FOUND or declared is None or declared.tools is not None:
                raise
            listing.complete = True
        return listing

    async def admit(self, listing: Listing) -> str:
        """Take a list as the state of the server, without what is held back; what is to be said of it."""
        # A big list takes its time, in which others are to have theirs.
        with staying() if len(listing.tools) > BIG else nullcontext():
            async with self._admitting:
                self._listed, self.snapshot = await in_worker(partial(self._judged, listing))
        self._hint, self._began = listing.hint, listing.began
        return (
            "" if listing.complete else f"its list of tools has no end; it was cut after {len(listing.tools)}"
        )

    async def judged_anew(self) -> None:
        """Hold what was listed last against the pins and their policy as they are now."""
        async with self._admitting:
            self.snapshot = await in_worker(partial(self._admissible, self._listed))

    def hint(self, *, told_of_changes: bool) -> CacheHint:
        """How long the list may be kept from now on.

        What a server tells the changes of is good for the whole time from any moment at which it has
        told none. Otherwise the time since the listing is gone.
        """
        if told_of_changes or not self._hint.ttl_ms:
            return self._hint
        return self._hint.aged(anyio.current_time() - self._began)

    @property
    def outlived(self) -> bool:
        """Whether the time for which the list may be kept has gone by."""
        return bool(self._hint.ttl_ms) and not self.hint(told_of_changes=False).ttl_ms

    def _judged(self, listing: Listing) -> tuple[CatalogSnapshot, CatalogSnapshot]:
        """What is usable in a list, and what of that is to be served."""
        listed = take_snapshot(listing.tools, previous=self._listed, complete=listing.complete)
        return listed, self._admissible(listed)

    def _admissible(self, listed: CatalogSnapshot) -> CatalogSnapshot:
        return self.pins.admit(usable_over_http(listed) if self._link.transport == "http" else listed)
