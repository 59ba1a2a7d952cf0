"""`CallerLists`: the last lists of one server for each caller, and the tools of all callers as one list."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import field

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.snapshot import EMPTY_SNAPSHOT, CatalogSnapshot, ListedTool
from mcp_toolset.extensions.upstream_access.callers.shared_definitions import Merged, shared


@dataclass(frozen=True, slots=True)
class _Joint:
    """The tools of several snapshots as one."""

    parts: tuple[CatalogSnapshot, ...] = ()
    whole: CatalogSnapshot = EMPTY_SNAPSHOT
    merged: Merged = field(default_factory=dict[tuple[str, ...], ListedTool])


class CallerLists:
    """The last snapshot of each caller, also of those whose connection is closed."""

    def __init__(self, limit: int) -> None:
        """Begin with none; beyond `limit` callers, the list that is the oldest is forgotten."""
        self._limit = limit
        self._last: OrderedDict[str, CatalogSnapshot] = OrderedDict()
        self._changed = False
        self._joint = _Joint()

    def __len__(self) -> int:
        """How many callers have been listed tools."""
        return len(self._last)

    def take(self, key: str, snapshot: CatalogSnapshot) -> None:
        """Have a caller been listed these tools just now."""
        if self._last.get(key) is snapshot:
            return
        self._changed = True
        self._last[key] = snapshot
        self._last.move_to_end(key)
        if len(self._last) > self._limit:
            self._last.popitem(last=False)

    def last(self, key: str) -> CatalogSnapshot:
        return self._last.get(key, EMPTY_SNAPSHOT)

    def told_changed(self) -> bool:
        """Whether a caller was listed other tools since this was asked last."""
        changed, self._changed = self._changed, False
        return changed

    def joint(self, own: CatalogSnapshot, *offered: CatalogSnapshot) -> CatalogSnapshot:
        """The tools of all callers and of these snapshots; made anew only if one of them is another one."""
        known, parts = self._joint, (own, *self._last.values(), *offered)
        if len(parts) != len(known.parts) or any(a is not b for a, b in zip(parts, known.parts, strict=True)):
            tools, merged = shared([part.tools for part in parts], known.merged)
            whole = known.whole if tools == known.whole.tools else replace(own, tools=tools)
            # Replaced as one: a worker thread may read it.
            self._joint = known = _Joint(parts, whole, merged)
        return known.whole
