"""`UnlistedMounts`: mounted servers without a first list, and how long requests wait for them.

A server is opened without waiting for what is mounted in it, so that a handshake never does. What a
request needs of a mount that has not listed anything, in this run or the last, is waited for by the
request itself, for a bounded time from the opening on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol, runtime_checkable

import anyio

from mcp_toolset.context.offer_kinds import OfferingSource
from mcp_toolset.tools.core.names import prefix_from
from mcp_toolset.tools.core.source import ToolSource, fits

LIST_PATIENCE: Final = 5.0
"""Seconds from the opening on in which requests wait for mounts of which nothing is known."""


@runtime_checkable
class Known(Protocol):
    """A source, or what it offers, that may be known before it is ready."""

    @property
    def known(self) -> bool:
        """Whether its lists are known, from this run or the last."""
        ...


class UnlistedMounts:
    """The mounts that were opened with a server and have neither listed nor failed so far."""

    def __init__(self, patience: float, current: Callable[[], Awaitable[None]]) -> None:
        """Wait for nothing yet.

        Args:
            patience: Seconds from `begin` on in which anything is waited for.
            current: Takes in what the mounts have listed by now.
        """
        self._patience = patience
        self._current = current
        self._mounts: list[ToolSource] = []
        self._listing = frozenset[int]()
        self._listed: list[ToolSource] = []
        self._is_sole = False
        self._until = float("-inf")
        self._presumed = False

    def begin(self, sources: Sequence[ToolSource], listing: Collection[ToolSource]) -> None:
        """Have been opened just now; of `sources`, those of `listing` have their tools in `tools/list`."""
        self._mounts = [source for source in sources if _is_pending(source)]
        self._listing = frozenset(map(id, listing))
        self._listed = list(listing)
        self._is_sole = len(sources) == 1
        self._until = anyio.current_time() + self._patience
        self._presumed = False

    def __bool__(self) -> bool:
        """Whether any mount was unlisted when this was last looked at; costs next to nothing."""
        return bool(self._mounts)

    def away(self, name: str) -> list[ToolSource]:
        """The mounts that never listed and cannot be called now, whose tools would have names like this.

        The tools of the only mount may have any name.
        """
        return [
            source
            for source in self._listed
            if (self._is_sole or name.startswith(f"{prefix_from(source.source_name)}_"))
            and not source.status.is_up
            and not _is_known(source)
        ]

    def presumed(self) -> bool:
        """Whether clients are to be told that there may be prompts and resources, for now unknown.

        What a client has been told once stays so: a list is then empty, not unheard of.
        """
        if not self._presumed and any(map(_is_pending, self._mounts)):
            self._presumed = True
        return self._presumed

    async def arrive(self, *, listed: bool = False, offers: bool = False) -> None:
        """Wait for unlisted mounts, as long as there is time.

        Args:
            listed: Not for mounts whose tools are behind search.
            offers: Until it is known, too, what they offer beside tools.
        """
        if not self._mounts:
            return
        is_pending = _is_pending if offers else _is_unlisted
        if anyio.current_time() < self._until:
            with anyio.CancelScope(deadline=self._until):
                for source in self._mounts:
                    if not listed or id(source) in self._listing:
                        await _until_not(is_pending, [source])
        await self._taken_in()

    async def bring(self, is_there: Callable[[], bool]) -> None:
        """Wait for mounts for as long as they are starting, until what is wanted is there."""
        while starting := [source for source in self._mounts if _is_unlisted(source)]:
            await _until_not(_is_unlisted, starting)
            await self._current()
            if is_there():
                return
        if self._mounts:
            await self._taken_in()

    async def _taken_in(self) -> None:
        await self._current()
        self._mounts = [source for source in self._mounts if _is_pending(source)]


async def _until_not(is_pending: Callable[[ToolSource], bool], sources: Sequence[ToolSource]) -> None:
    """Wait for one of the sources."""
    changed = anyio.Event()
    stops = [source.on_change(lambda: changed.set()) for source in sources]
    try:
        while all(map(is_pending, sources)):
            changed = anyio.Event()
            await changed.wait()
    finally:
        for stop in stops:
            stop()


def _is_known(source: ToolSource) -> bool:
    return fits(source, Known) and source.known


def _is_unlisted(source: ToolSource) -> bool:
    return not _is_known(source) and source.status.state in ("starting", "closed")


def _is_pending(source: ToolSource) -> bool:
    """Whether its tools are unknown, or what it offers beside them."""
    if _is_unlisted(source):
        return True
    offers = source.offers if fits(source, OfferingSource) else None
    return fits(offers, Known) and not offers.known and source.status.state != "offline"
