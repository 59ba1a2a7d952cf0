"""`UpstreamTools`: the tools of one mounted server: as listed, as admitted by pins, and their cache hint.

`ToolRefresh` lists them at the start, and again after each change.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field
from functools import partial
from typing import Any, Final, cast

import anyio

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.pins.canonical import canonical, in_one_line
from mcp_toolset.catalog.pins.policy import Pins, scrubbed
from mcp_toolset.catalog.snapshot import EMPTY_SNAPSHOT, CatalogSnapshot, take_snapshot
from mcp_toolset.concurrency.workers import BIG, in_worker, in_worker_if_large, staying
from mcp_toolset.errors import (
    CallError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol.eras import STRICTEST, CacheHint
from mcp_toolset.protocol.json_rpc import INVALID_REQUEST, METHOD_NOT_FOUND
from mcp_toolset.tools.core.definition import ToolDefinition
from mcp_toolset.tools.text.hidden_text import in_log, visible
from mcp_toolset.upstream.known_server import MountState
from mcp_toolset.upstream.pagination import Listing, NotAListError, usable_over_http
from mcp_toolset.upstream.pool import SessionPool
from mcp_toolset.upstream.resting import ListingSession
from mcp_toolset.upstream.target import Link

_SHOWN: Final = 10  # names in one line of the log

_READ_AGAIN: Final = "; list the tools again, read its definition, and repeat the call"


class UpstreamTools:
    """The list of one server's tools, taken as a whole each time."""

    def __init__(self, link: Link, pins: Pins, request: Callable[..., Awaitable[dict[str, Any]]]) -> None:
        self.is_lazy = False  # whether clients are served what is remembered until a call starts the server
        self.pins = pins  # what judges its definitions
        self.snapshot: CatalogSnapshot = EMPTY_SNAPSHOT  # served, and set aside
        self._link = link
        self._request = request
        self.known = False  # whether anything is known of the list, from this run or the last
        self.remembered: CatalogSnapshot = EMPTY_SNAPSHOT  # served until the server has listed
        self.similar: CatalogSnapshot = EMPTY_SNAPSHOT  # has compiled schemas of equal tools
        self._superseded: dict[str, ToolDefinition] = {}
        self._log = logging.getLogger(f"mcp_toolset.upstream.{link.name}")
        self._listed: CatalogSnapshot = EMPTY_SNAPSHOT
        self._listing = Listing()
        self._more: list[Any] = []
        self._newer: Mapping[str, Any] = {}
        self.common: frozenset[str] = frozenset()  # the names of the tools that are listed to everybody
        self._hint, self._began = STRICTEST, float("-inf")
        self._admitting = anyio.Lock()

    async def walked(self, seconds: float, declared: Mapping[str, Any] | None) -> Listing:
        """The whole list as it is now; empty for a server that declares prompts or resources alone."""
        listing = Listing()
        try:
            await listing.walk(self._request, seconds)
        except TimeoutError:
            raise UpstreamTimeoutError(self._link.name, "it listed no tools in time") from None
        except NotAListError as fault:
            raise UpstreamProtocolError(self._link.name, INVALID_REQUEST, str(fault)) from None
        except UpstreamProtocolError as fault:
            if fault.code != METHOD_NOT_FOUND or declared is None or "tools" in declared:
                raise
            listing.complete = True
        return listing

    async def admit(self, listing: Listing) -> str:
        """Take a list as the state of the server, without what is held back; what is to be said of it."""
        # A big list takes its time, in which others are to have theirs.
        with staying() if len(listing.tools) > BIG else nullcontext():
            async with self._admitting:
                self._listing, self.common = listing, frozenset(listing.names())
                self._listed, self.snapshot = await in_worker(partial(self._judged, listing))
                if self.remembered.tools:
                    self._supersede()
        self._hint, self._began, self.known = listing.hint, listing.began, True
        return (
            "" if listing.complete else f"its list of tools has no end; it was cut after {len(listing.tools)}"
        )

    async def remember(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Serve what the last run knew, as far as the pins allow, until the server has listed."""
        async with self._admitting:
            if self.known:
                return
            self._listed, self.snapshot = await in_worker_if_large(
                partial(self._recalled, entries), len(entries)
            )
            self.remembered, self.known = self.snapshot, True
            self.common = frozenset(self._listed.tools)

    def sleep(self) -> None:
        """Have what is listed now count as remembered: the server is stopped, and listed again after that."""
        if self.snapshot.tools:
            self.remembered = self.snapshot

    @property
    def listed(self) -> CatalogSnapshot:
        """What was listed to everybody last and is usable, before pins and policies have their say."""
        return replace(
            self._listed,
            tools={name: tool for name, tool in self._listed.tools.items() if name in self.common},
        )

    def current(self, definition: ToolDefinition) -> ToolDefinition:
        """The live definition in the place of one that was remembered; another one unchanged.

        Grants, approvals and states of suspended calls are for one definition, so it has to be the same one.
        """
        name = definition.name
        if self._superseded.get(name) is not definition:
            return definition
        live = self.snapshot.tools.get(name)
        if live is not None and self._canonical(live.definition) == self._canonical(definition):
            return live.definition
        aside = dict(self.snapshot.set_aside).get(name, "")
        if live is None and not aside:
            raise CallError(
                f"{self._link.name}: {name} is gone: the server listed it in the last run, "
                "and does not list it now"
            )
        found = (
            aside
            if live is None
            else in_one_line(self._canonical(definition), self._canonical(live.definition))
        )
        raise CallError(
            f"{self._link.name}: {name} has changed since the last run, so the call did not run: "
            f"{self._link.scrubbed(found)}{'' if aside else _READ_AGAIN}"
        )

    def _canonical(self, definition: ToolDefinition) -> Mapping[str, Any]:
        return (
            scrubbed(canonical(definition), self._link.scrubbed)
            if self._link.secrets
            else canonical(definition)
        )

    def _supersede(self) -> None:
        """Note what was remembered and is not the same now; the live list has arrived."""
        remembered, self.remembered = self.remembered, EMPTY_SNAPSHOT
        live = self.snapshot.tools
        self._superseded = {
            name: tool.definition
            for name, tool in remembered.tools.items()
            if name not in live or live[name].definition is not tool.definition
        }
        changed = [name for name in self._superseded if name in live]
        if changed:
            names = ", ".join(map(visible, changed[:_SHOWN])) + (" …" if len(changed) > _SHOWN else "")
            self._log.warning("%d tools have changed since the last run: %s", len(changed), names)

    @property
    def meta(self) -> Mapping[str, Any]:
        return self._listing.meta

    @property
    def entries(self) -> list[Any]:
        return self._listing.tools

    async def admit_more(self, entries: Sequence[Any], newer: Mapping[str, Any]) -> None:
        """Serve tools as well that are listed to some clients alone; pins judge them like all others.

        `newer` are tools by name that took the place of others in sessions of clients, which have said so.
        """
        async with self._admitting:
            self._more, self._newer = [*entries], newer
            self._listed, self.snapshot = await in_worker(partial(self._judged, self._listing))

    async def judged_anew(self) -> None:
        """Hold what was listed last against the pins and their policy as they are now."""
        async with self._admitting:
            self.snapshot = await in_worker(partial(self._admissible, self._listed))
            if self.remembered.tools:
                self.remembered = self.snapshot

    def hint(self, *, told_of_changes: bool) -> CacheHint:
        """How long the list may be kept; from any moment on if the server tells of changes."""
        if told_of_changes or not self._hint.ttl_ms:
            return self._hint
        return self._hint.aged(anyio.current_time() - self._began)

    @property
    def outlived(self) -> bool:
        return bool(self._hint.ttl_ms) and not self.hint(told_of_changes=False).ttl_ms

    def _judged(self, listing: Listing) -> tuple[CatalogSnapshot, CatalogSnapshot]:
        entries, names = list(listing.tools), set(listing.names())
        if self._newer:
            entries = [self._newer.get(_name_of(entry), entry) for entry in entries]
        for entry in [*self._newer.values(), *self._more]:
            if entry.get("name") not in names:
                names.add(entry.get("name"))
                entries.append(entry)
        previous = self._listed if self._listed.tools else self.similar
        listed = take_snapshot(entries, previous=previous, complete=listing.complete)
        return listed, self._admissible(listed)

    def _recalled(self, entries: Sequence[Mapping[str, Any]]) -> tuple[CatalogSnapshot, CatalogSnapshot]:
        listed = take_snapshot(entries)
        return listed, self._admissible(listed, remembered=True)

    def _admissible(self, listed: CatalogSnapshot, *, remembered: bool = False) -> CatalogSnapshot:
        usable = usable_over_http(listed) if self._link.facts.carries_headers else listed
        return self.pins.admit(usable, remembered=remembered, served_first=self.is_lazy)


def _name_of(entry: Any) -> Any:
    name = cast("Mapping[str, Any]", entry).get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None


LEAST_AGE: Final = 1.0
"""Seconds for which a list is not read again for a client, unless a call may have changed it."""

PATIENCE: Final = 5.0  # seconds that a client waits for a list that is read again for it
REFRESH_GAP: Final = 0.5  # seconds between one listing and the next, however many changes are announced


@dataclass(eq=False)
class ToolRefresh:
    """When the tools of one server are listed, and what becomes of a list."""

    tools: UpstreamTools  # what takes in a list
    listing: ListingSession  # the session that lists
    pool: SessionPool  # knows how long starting and listing may take
    state: MountState  # becomes ready with each list that is taken
    log: logging.Logger  # where it is noted that listing failed
    told_of_changes: bool = field(default=False, init=False)
    on_lost: Callable[[], None] = field(default=(lambda: None), init=False)  # listing found no connection
    on_others: Callable[[], None] = field(default=(lambda: None), init=False)  # other tools are listed
    _due: anyio.Event = field(default_factory=anyio.Event, init=False)
    _reading: anyio.Lock = field(default_factory=anyio.Lock, init=False)
    _read_at: float = field(default=float("-inf"), init=False)
    _calls: int = field(default=0, init=False)
    _tools_said: bool = field(default=False, init=False)
    _said: set[str] = field(default_factory=set[str], init=False)

    def begin(self) -> None:
        self._due = anyio.Event()

    @property
    def is_due(self) -> bool:
        return self._due.is_set()

    def outdated(self) -> None:
        """List again: a change may have been missed."""
        self._due.set()

    def heard(self) -> None:
        """List again, because the server has said that its list has changed."""
        self._tools_said = True
        self._due.set()

    def not_told(self) -> None:
        self.told_of_changes = False

    @property
    def is_asked_for(self) -> bool:
        """Whether the list is read again for clients: nothing tells of changes, or it is not to be kept."""
        main = self.listing.main
        if self.state.now != "ready" or main.dispatcher is None or "tools" not in (main.capabilities or ()):
            return False
        return not self.told_of_changes or (main.modern and not self.tools.hint(told_of_changes=True).ttl_ms)

    @property
    def is_stale(self) -> bool:
        """Whether the list is to be read again before a client is answered with it."""
        if not self.is_asked_for:
            return False
        ttl = self.tools.hint(told_of_changes=True).ttl_ms / 1000
        was_called = not ttl and self._calls != self.state.calls
        return was_called or anyio.current_time() - self._read_at > max(LEAST_AGE, ttl)

    async def read_again(self) -> None:
        """Read the list again, once for all clients that wait for it."""
        with anyio.move_on_after(PATIENCE):
            async with self._reading:
                if not self.is_stale:
                    return
                self._calls, self._read_at = self.state.calls, anyio.current_time()
                try:
                    listing = await self.tools.walked(PATIENCE, self.listing.main.capabilities)
                except UpstreamError as fault:
                    return self.log.info("listing again for a client failed: %s", in_log(str(fault)))
                if listing.tools != self.tools.entries:
                    await self.admit(listing)

    def said(self) -> set[str]:
        """`tools`, if the server has said that they have changed, once they are listed again; told once."""
        said, self._said = self._said, set()
        return said

    def hint(self) -> CacheHint | None:
        """How long the tools may be kept from now on; `None` if the server declares that it has none."""
        if self.state.now != "ready":
            return STRICTEST
        declared = self.listing.main.capabilities
        if declared is not None and "tools" not in declared:
            return None
        if not self.told_of_changes and self.tools.outlived:
            self._due.set()
        return self.tools.hint(told_of_changes=self.told_of_changes)

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
        health = self.listing.main.health
        reason = f"listing again failed, the last list stays: {fault}"
        self.log.warning("%s", in_log(reason))
        if isinstance(fault, UpstreamTimeoutError):
            health.missed(self.pool.start_timeout)
        if not health.fault:
            self.state.set("ready", reason)

    async def _take_list_surely(self, *, said: bool) -> None:
        """List, a second time if the request was lost on an open connection: one request proves nothing."""
        try:
            listing = await self.walked()
        except UpstreamUnavailableError:
            if self.listing.main.dispatcher is None:
                raise
            listing = await self.walked()
        await self.admit(listing, said=said)

    async def walked(self) -> Listing:
        return await self.tools.walked(self.pool.start_timeout, self.listing.main.capabilities)

    async def admit(self, listing: Listing, *, said: bool = False) -> None:
        """Take a list as the state of the server; `said` if the server has said that it is another one."""
        self._read_at = listing.began
        before = self.tools.entries
        fault = await self.tools.admit(listing)
        if before and before != listing.tools:
            self.on_others()
        if said:
            self._said.add("tools")
        if fault:
            self.log.warning("%s", in_log(fault))
        self.state.set("ready", fault)
