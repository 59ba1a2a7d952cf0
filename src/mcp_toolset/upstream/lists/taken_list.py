"""`ListTaker`: reads one list of a server (tools, resources, templates, prompts) over one session.

`ClientLists` takes the lists of clients with it, and compares them with what everybody is listed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from mcp_toolset._records import dataclass
from mcp_toolset.context.offer_kinds import KINDS, Wire
from mcp_toolset.errors import UpstreamError
from mcp_toolset.upstream.lists.offers import UpstreamOffers
from mcp_toolset.upstream.lists.tool_list import UpstreamTools
from mcp_toolset.upstream.pagination import Listing

LIST_DEADLINE: Final = 5.0
"""Seconds that one list of a session may take."""

TOOLS: Final = "tools/list"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
_KEYS: Final = {TOOLS: "tools", **{kind.method: kind.key for kind in KINDS}}
_IDENTITIES: Final = {TOOLS: "name", **{kind.method: kind.identity for kind in KINDS}}

CAPABILITIES: Final = {TOOLS: "tools", **{kind.method: kind.capability for kind in KINDS}}
"""The capability that a server declares which answers a method that lists."""

METHODS_OF_CHANGE: Final = {
    f"notifications/{capability}/list_changed": tuple(
        method for method, each in CAPABILITIES.items() if each == capability
    )
    for capability in ("tools", "resources", "prompts")
}
"""The methods that list what a notification says to have changed."""

Request = Callable[..., Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class TakenList:
    """One list as it was taken.

    Attributes:
        entries: What it holds, in wire form, as untrusted as it comes.
        names: The names or addresses of the entries.
    """

    entries: Sequence[Wire]
    names: frozenset[str]


class ListTaker:
    """Takes lists of one server over any session with it."""

    def __init__(self, tools: UpstreamTools, offers: UpstreamOffers) -> None:
        self._tools = tools
        self._offers = offers

    def tells_of_changes(self, method: str) -> bool:
        return self._offers.declares(CAPABILITIES[method], "listChanged")

    def _common(self, method: str) -> Sequence[Wire] | None:
        """What everybody is listed by a method; `None` if nothing has been listed, or never is."""
        if method == TOOLS:
            return self._tools.entries
        return self._offers.common(method) if self._offers.declares(CAPABILITIES[method]) else None

    def _usable(self, listing: Listing) -> Sequence[Wire]:
        """The entries of a list that can be used."""
        if listing.method == TOOLS:
            return [cast("Wire", entry) for entry in listing.tools if isinstance(entry, dict)]
        kind = next(kind for kind in KINDS if kind.method == listing.method)
        return self._offers.checked(kind, listing).sequence

    async def taken(self, request: Request, method: str) -> TakenList | None:
        """A list as it is now; `None` if the server has none."""
        listing = Listing(method, _KEYS[method])
        try:
            await listing.walk(request, LIST_DEADLINE)
        except UpstreamError as fault:
            if getattr(fault, "code", None) is None:
                raise
            return None
        entries = self._usable(listing)
        identity = _IDENTITIES[method]
        return TakenList(entries, frozenset(str(entry.get(identity)) for entry in entries))

    async def differing(self, request: Request) -> dict[str, TakenList]:
        """The lists that are others than everybody is listed; see `taken` for what it raises."""
        found: dict[str, TakenList] = {}
        for method in _KEYS:
            common = self._common(method)
            taken = None if common is None else await self.taken(request, method)
            if taken is not None and common is not None and list(taken.entries) != list(common):
                found[method] = taken
        return found

    def is_seen(self, taken: TakenList, method: str, seen: TakenList | None) -> bool:
        """Whether a list is what a client sees already: its own list, else the shared one."""
        return list(taken.entries) == list(self.seen(method, seen))

    def seen(self, method: str, own: TakenList | None) -> Sequence[Wire]:
        """What a client sees: its own list, else the shared one."""
        return (self._common(method) if own is None else own.entries) or ()
