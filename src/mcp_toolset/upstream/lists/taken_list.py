"""`ListTaker`: takes one list of a server (tools, resources, templates, prompts), as a session is given it.

`ClientLists` takes the lists of clients with it, and compares them with what everybody is listed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mcp_toolset.context.offer_kinds import KINDS, Wire
from mcp_toolset.errors import UpstreamError
from mcp_toolset.upstream.pagination import Listing

LIST_DEADLINE: Final = 5.0
"""Seconds that one list of a session may take."""

TOOLS: Final = "tools/list"
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
Common = Callable[[str], Sequence[Wire] | None]
Checked = Callable[[Listing], Sequence[Wire]]


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

    def __init__(self, common: Common, checked: Checked) -> None:
        """Take nothing yet.

        Args:
            common: What everybody is listed by a method; `None` if nothing has been listed, or never is.
            checked: The entries of a list that can be used.
        """
        self._common = common
        self._checked = checked

    async def taken(self, request: Request, method: str) -> TakenList | None:
        """A list as it is now; `None` if the server has none.

        Raises:
            UpstreamError: the server cannot be asked.
            TimeoutError: it listed nothing in time.
        """
        listing = Listing(method, _KEYS[method])
        try:
            await listing.walk(request, LIST_DEADLINE)
        except UpstreamError as fault:
            if getattr(fault, "code", None) is None:
                raise
            return None
        entries = self._checked(listing)
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
        """Whether a list is what a client sees already: a list of its own, else that of everybody."""
        entries = self._common(method) if seen is None else seen.entries
        return list(taken.entries) == list(entries or ())
