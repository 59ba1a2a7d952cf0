"""`UpstreamOffers`: the resources, templates and prompts of a mounted server, as it last listed them.

A list is taken when the connection is made and again when the server says that it has changed. A
server that declares no such news is asked once more when a client lists, after its own hint.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, Final, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.context.offer_kinds import KINDS, Kind, Wire
from mcp_toolset.context.task import TASKS
from mcp_toolset.errors import UpstreamError, UpstreamProtocolError
from mcp_toolset.protocol.eras import STRICTEST, CacheHint
from mcp_toolset.tools.text.hidden_text import HiddenTextPolicy, cleaned_metadata, hidden_in, visible
from mcp_toolset.upstream.pagination import Listing, NotAListError
from mcp_toolset.upstream.watches import level_of


@dataclass(frozen=True)
class OfferList:
    """One list as it was taken."""

    entries: Mapping[str, Wire] = field(default_factory=dict[str, Wire])
    set_aside: tuple[tuple[str, str], ...] = ()  # `(name, reason)` of those that are not usable
    hint: CacheHint = STRICTEST  # how long it may be kept, counted from `taken`, a time of the event loop
    taken: float = float("-inf")
    meta: Wire = field(default_factory=dict[str, Any])  # what the list itself has in `_meta`

    @cached_property
    def sequence(self) -> Sequence[Wire]:
        """The entries, one object for as long as they stay."""
        return tuple(self.entries.values())


def checked_list(kind: Kind, listing: Listing, policy: HiddenTextPolicy) -> OfferList:
    """The entries that the protocol allows; one that is broken goes alone."""
    entries: dict[str, Wire] = {}
    set_aside: list[tuple[str, str]] = []
    for entry in listing.tools:
        fault = (
            kind.shape.fault(entry) if type(cast("object", entry)) is dict else f"{kind.identity} is missing"
        )
        if fault is not None:
            set_aside.append((_shown(kind, entry), f"{kind.key}: {fault}"))
            continue
        name = str(entry[kind.identity])
        if name in entries:
            set_aside.append((name, f"{kind.key}: it is listed twice; the first one is used"))
            continue
        tidy = entry if policy == "flag" else cast("Wire", cleaned_metadata(entry))
        # Cleaning an identity would change which thing it is.
        if tidy[kind.identity] != name or (policy == "refuse" and tidy != entry):
            found = ", ".join(hidden_in(json.dumps(entry, ensure_ascii=False)))
            set_aside.append((visible(name), f"{kind.key}: it has hidden text: {found}"))
            continue
        entries[name] = tidy
    return OfferList(entries, tuple(set_aside), listing.hint, listing.began, listing.meta)


def _shown(kind: Kind, entry: Any) -> str:
    name: Any = cast("Mapping[str, Any]", entry).get(kind.identity) if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) and name else "(no name)"


NOTHING_LISTED: Final = OfferList()


LIST_DEADLINE: Final = 5.0
"""Seconds that one list may take beside the tools; a server that does not answer keeps its last one."""

LEAST_AGE: Final = 1.0  # seconds for which a list without news of changes is not asked for again
REFRESH_GAP: Final = 0.5  # seconds between one listing and the next, however many changes are announced

CAPABILITY_CHANGED: Final = {
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}
"""The capability whose lists a notification says to have changed, beside that of tools."""

Request = Callable[..., Awaitable[dict[str, Any]]]


class UpstreamOffers:
    """The resources, templates and prompts that one mounted server lists."""

    def __init__(
        self,
        name: str,
        *,
        request: Request,
        changed: Callable[[], None],
        hidden_text: HiddenTextPolicy = "strip",
    ) -> None:
        self._name = name
        self._hidden_text: HiddenTextPolicy = hidden_text
        self._request = request
        self._changed = changed
        self.known = False  # whether it is known what the server offers, from this run or the last
        self.resting: Callable[[], bool] = lambda: False  # the session that lists is closed for now
        self._declared: Mapping[str, Any] = {}
        self._modern = False
        self._lists: dict[str, OfferList] = {}
        self._stale: set[str] = set()
        self._telling: set[str] = set()
        self._said: set[str] = set()
        self._news = anyio.Event()
        self._listing = anyio.Lock()
        self._log = logging.getLogger(f"mcp_toolset.upstream.{name}")

    @property
    def set_aside(self) -> tuple[tuple[str, str], ...]:
        return tuple(entry for kind in KINDS for entry in self._list(kind).set_aside)

    def declares(self, capability: str, feature: str = "") -> bool:
        """Whether the server declared a capability, and in it a feature; remembered while it is away.

        A server of 2026-07-28 is told with each request which log messages are wanted: a client of an older
        revision can always set its level (`setLevel`), as the bridge keeps it.
        """
        if (capability, feature) == ("logging", "setLevel"):
            return self._modern or self.declares("logging")
        declared: Any = self._declared.get(capability)
        if not isinstance(declared, Mapping) or not feature:
            return isinstance(declared, Mapping)
        found = cast("Mapping[str, Any]", declared).get(feature)
        return found is True or isinstance(found, Mapping)

    async def take(self, declared: Mapping[str, Any], *, modern: bool) -> None:
        self._declared, self._modern = declared, modern
        self._stale.clear()
        # An earlier connection may have waited on another event loop.
        self._news = anyio.Event()
        async with anyio.create_task_group() as group:
            for kind in KINDS:
                group.start_soon(self._take_list, kind)
        if not self.known:
            self.known = True
            self._changed()

    @property
    def declared(self) -> Mapping[str, Any]:
        return self._declared

    def extensions(self) -> dict[str, Any]:
        own: dict[str, Any] = dict(self._declared.get("extensions") or {})
        own.pop(TASKS, None)
        found = {"experimental": self._declared.get("experimental"), "extensions": own}
        return {name: declared for name, declared in found.items() if declared}

    def entries(self) -> dict[str, Sequence[Wire]]:
        return {method: held.sequence for method, held in self._lists.items() if held.entries}

    def remember(self, declared: Mapping[str, Any], lists: Mapping[str, Sequence[Wire]]) -> None:
        self._declared, self.known = declared, True
        for kind in KINDS:
            listing = Listing(kind.method, kind.key, tools=list(lists.get(kind.method, ())))
            self._lists[kind.method] = checked_list(kind, listing, self._hidden_text)

    def settle(self, hidden_text: HiddenTextPolicy) -> None:
        """Take another policy about hidden text; what was listed is listed again for it."""
        if hidden_text != self._hidden_text:
            self._hidden_text = hidden_text
            self.outdated()

    def heard(self, method: str) -> bool:
        """Take in a notification; `False` if it does not say that resources or prompts have changed."""
        if method not in CAPABILITY_CHANGED:
            return False
        self._telling.add(CAPABILITY_CHANGED[method])
        self.outdated(CAPABILITY_CHANGED[method])
        return True

    def said(self) -> set[str]:
        """Of `resources` and `prompts`: what the server has said to have changed, once listed again."""
        said, self._said = self._said, set()
        return said

    def outdated(self, *capabilities: str) -> None:
        """List again what belongs to these capabilities; all of it if none is named."""
        self._stale.update(capabilities or ("resources", "prompts"))
        self._news.set()

    async def keep_fresh(self) -> None:
        """List again after changes; any number of them during one listing cause one more."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            stale, self._stale = self._stale, set()
            telling, self._telling = self._telling, set()
            others = [await self._replaced(kind) for kind in KINDS if kind.capability in stale]
            if telling or any(others):
                # Told together: a change that the server has announced is one change.
                self._said |= telling
                self._changed()
            await anyio.sleep(REFRESH_GAP)

    async def listed(self, kind: Kind) -> Sequence[Wire]:
        """The entries of a kind; asked for again only where nothing would tell of a change."""
        if not self.resting() and self.is_asked_for(kind):
            await self._relist(kind)
        return self._list(kind).sequence

    def is_asked_for(self, kind: Kind) -> bool:
        """Whether a list is asked for whenever it is looked at, as the server tells of no change."""
        return self.declares(kind.capability) and not self.declares(kind.capability, "listChanged")

    async def _relist(self, kind: Kind) -> None:
        async with self._listing:
            held = self._list(kind)
            if anyio.current_time() - held.taken > max(LEAST_AGE, held.hint.ttl_ms / 1000):
                await self._take_list(kind)

    def hint(self, kind: Kind) -> CacheHint:
        held = self._list(kind)
        if self.declares(kind.capability, "listChanged"):
            return held.hint
        return held.hint.aged(anyio.current_time() - held.taken)

    def meta(self, kind: Kind) -> Wire:
        return self._list(kind).meta

    def _list(self, kind: Kind) -> OfferList:
        return self._lists.get(kind.method, NOTHING_LISTED)

    async def _take_list(self, kind: Kind) -> None:
        if await self._replaced(kind):
            self._changed()

    async def _replaced(self, kind: Kind) -> bool:
        taken = await self._walked(kind) if self.declares(kind.capability) else OfferList()
        if taken is None:
            return False
        before, self._lists[kind.method] = self._list(kind), taken
        return before.entries != taken.entries

    async def _walked(self, kind: Kind) -> OfferList | None:
        listing = Listing(kind.method, kind.key)
        try:
            await listing.walk(self._request, LIST_DEADLINE)
        except UpstreamProtocolError as fault:
            # Templates have no capability of their own, so a server may know no such method.
            self._log.log(
                logging.DEBUG if fault.code == -32601 else logging.WARNING, "%s: %s", kind.method, fault
            )
            return OfferList(taken=anyio.current_time()) if fault.code == -32601 else None
        except (UpstreamError, TimeoutError, NotAListError) as fault:
            reason = str(fault) or "no answer in time"
            self._log.log(level_of(fault), "%s failed, the last list stays: %s", kind.method, reason)
            return None
        return self.checked(kind, listing)

    def checked(self, kind: Kind, listing: Listing) -> OfferList:
        return checked_list(kind, listing, self._hidden_text)

    def common(self, method: str) -> Sequence[Wire] | None:
        held = self._lists.get(method) if self.known else None
        return None if held is None else held.sequence
