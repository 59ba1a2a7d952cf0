"""`PagedList`: the pages of one list of an upstream, up to a cap on pages, entries and time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Final, cast

import anyio

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.snapshot import CatalogSnapshot
from mcp_toolset.errors import UpstreamProtocolError
from mcp_toolset.protocol.eras import STRICTEST, CacheHint, drop_own, own_meta, strictest
from mcp_toolset.protocol.http_headers import header_fault
from mcp_toolset.protocol.json_rpc import INVALID_REQUEST

MAX_PAGES: Final = 200
MAX_TOOLS: Final = 20_000  # where a listing that never ends is cut
MARGIN: Final = 0.25  # part of the time of a listing that is kept for judging what was cut

Request = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(slots=True)
class PagedList:
    """What was listed."""

    method: str = "tools/list"  # the method that lists, and `key` the key of the list in its answers
    key: str = "tools"
    tools: list[Any] = field(default_factory=list[Any])  # the entries in wire form, as untrusted as they come
    complete: bool = False  # `False` when a cap on pages, tools or time ended the walk
    hint: CacheHint = STRICTEST  # how long the whole may be kept: the strictest of its pages
    began: float = float("-inf")  # the time of the event loop from which the hint counts
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    async def walk(self, server: str, request: Request, limit: float) -> None:
        """Ask a server for page after page, for `limit` seconds at most.

        Raises `UpstreamProtocolError` for an answer without a list.
        """
        self.began = anyio.current_time()
        until = min(anyio.current_effective_deadline(), anyio.current_time() + limit)
        with anyio.CancelScope(deadline=until - MARGIN * limit) as patience:
            await self._pages(server, request)
        if patience.cancelled_caught and not self.tools:
            raise TimeoutError

    def names(self) -> list[str]:
        entries = (cast("dict[str, Any]", entry) for entry in self.tools if isinstance(entry, dict))
        return [name for entry in entries if isinstance(name := entry.get("name"), str)]

    async def _pages(self, server: str, request: Request) -> None:
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            page = await request(self.method, {"cursor": cursor} if cursor else {})
            hint = CacheHint.of(page)
            self.hint = strictest([self.hint, hint]) if seen else hint
            entries: Any = page.get(self.key)
            if not isinstance(entries, list):
                told = f"its answer to {self.method} has no list of {self.key}"
                raise UpstreamProtocolError(server, INVALID_REQUEST, told)
            drop_own(page)
            self.meta = {**own_meta(page.get("_meta")), **self.meta}
            self.tools.extend(cast("list[Any]", entries)[: MAX_TOOLS - len(self.tools)])
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                self.complete = True
                return
            if cursor in seen or len(self.tools) >= MAX_TOOLS:
                return
            seen.add(cursor)


def usable_over_http(snapshot: CatalogSnapshot) -> CatalogSnapshot:
    """A snapshot without the tools whose `x-mcp-header` annotations name no header (basic/transports)."""
    faults = {name: header_fault(tool.definition.input_schema) for name, tool in snapshot.tools.items()}
    refused = tuple((name, f"tool {name!r}: {fault}") for name, fault in faults.items() if fault)
    if not refused:
        return snapshot
    tools = {name: tool for name, tool in snapshot.tools.items() if not faults[name]}
    return replace(snapshot, tools=tools, set_aside=(*snapshot.set_aside, *refused))
