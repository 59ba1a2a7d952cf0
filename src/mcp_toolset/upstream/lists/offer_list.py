"""`OfferList`: one list of resources, templates or prompts as a server gave it, without what is unusable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, cast

from mcp_toolset.context.offer_kinds import Kind, Wire
from mcp_toolset.protocol.cache_hints import STRICTEST, CacheHint
from mcp_toolset.tools.text.hidden_text import HiddenTextPolicy, cleaned_metadata, hidden_in, visible
from mcp_toolset.upstream.pagination import Listing


@dataclass(frozen=True)
class OfferList:
    """One list as it was taken.

    Attributes:
        entries: The usable entries by their names, in the server's order.
        set_aside: `(name, reason)` of those that are not usable.
        hint: How long it may be kept, counted from `taken`, a time of the event loop.
        meta: What the list itself has in `_meta`.
    """

    entries: Mapping[str, Wire] = field(default_factory=dict[str, Wire])
    set_aside: tuple[tuple[str, str], ...] = ()
    hint: CacheHint = STRICTEST
    taken: float = float("-inf")
    meta: Wire = field(default_factory=dict[str, Any])

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
