"""`Browser`: the hits of one page of a search, or of a list of a server's tools, and the note about them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, cast

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.deferred.findable import FindableTools, Hit, Unavailable, of_away, said
from mcp_toolset.catalog.deferred.next_call import next_call, query_of
from mcp_toolset.catalog.deferred.preparing import plain, spellings
from mcp_toolset.catalog.deferred.tools import SearchRequest
from mcp_toolset.catalog.grants.ledger import ToolGrant
from mcp_toolset.catalog.search.entry import CatalogEntry, SearchListener, shortened
from mcp_toolset.catalog.search.index import MAX_HITS, SearchHit, SearchIndex
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.call import ToolContext

LOCAL: Final = "this server"  # what the server of local tools is called
_BYTES_A_HIT: Final = 135  # the size of a hit as JSON, on average, to which the hits of a page are cut

_LENGTHS: Final = ((160, 200), (110, 110), (80, 80), (60, 60), (40, 40))
"""The longest description and the longest parameters of a hit; the first that fit are taken."""

_OF_LISTED: Final = 0.9  # the share of its score by which a listed tool is placed among the hits

_MAX_SERVERS: Final = 30
_EVERYTHING: Final = frozenset(("list", "show", "all", "every", "everything", "available", "tools", "tool"))
_LISTING: Final = frozenset(("list", "show", "available"))
_FILLING: Final = frozenset(("me", "the", "of", "on", "in", "from", "for", "server", "your", "its"))
_WORDS: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Page:
    """What a search shows."""

    found: Sequence[SearchHit]  # the hits
    unavailable: list[Unavailable]  # the servers that the search could not see into
    note: str | None  # what else a model should know


class Browser:
    """Searches for a model, and lists servers by pages."""

    def __init__(
        self, shown: FindableTools, index: SearchIndex, listener: SearchListener | None = None
    ) -> None:
        self._shown = shown
        self._index = index
        self._listener = listener

    def page(self, request: SearchRequest, hidden: frozenset[str], context: ToolContext) -> Page:
        server = None
        if request.server is not None:
            servers = self._shown.servers(hidden, context)
            server = self._server(request.server, servers, hidden)
            if server is None and _joined(request.server) not in ("", "*", "all", "any", "none", "null"):
                return Page((), [], _unknown_server(request, servers))
        unavailable = self._shown.unavailable(server, hidden, context)
        if _wants_everything(request.query, server):
            return self._listed(request, server, hidden, context, unavailable)
        found = self._searched(request, server, hidden, context)
        return Page(found, unavailable, _note(request, found, server, unavailable))

    def _searched(
        self, request: SearchRequest, server: str | None, hidden: frozenset[str], context: ToolContext
    ) -> Sequence[SearchHit]:
        if server == LOCAL:
            hidden |= {name for name, tool in self._shown.findable().items() if tool.source}
        first = (request.page - 1) * request.limit
        if first >= MAX_HITS:
            return ()
        bonus: Mapping[str, float] = (
            {} if self._listener is None else self._listener.bonus(context, request.query)
        )
        last = min(MAX_HITS, first + request.limit)
        found = self._index.search(
            request.query,
            server=None if server == LOCAL else server,
            limit=MAX_HITS if bonus else last,
            exclude=self._excluded(request.exclude),
            hidden=hidden,
            wait=False,
        )
        if bonus:
            # Only what the search has found is moved: use does not add a tool to the hits.
            found.sort(key=lambda hit: self._rank(hit) - bonus.get(self._shown.key_of(hit.name), 0.0))
            return found[first:last]
        return sorted(found[first:], key=self._rank)

    def _rank(self, hit: SearchHit) -> float:
        """Where a hit stands: of two that fit alike, the one that the model is not listed comes first."""
        return -hit.score * (_OF_LISTED if hit.name in self._shown.listed else 1)

    def _excluded(self, ids: Sequence[str]) -> list[str]:
        return [name for id in ids for one in spellings(id) for name in (one, *self._shown.ids.named(one))]

    def _server(self, asked: str, servers: Sequence[str], hidden: frozenset[str]) -> str | None:
        for spelled in (str, str.casefold, _joined):
            alike = [name for name in servers if spelled(name) == spelled(asked)]
            if len(alike) == 1:
                return alike[0]
        local = any(not tool.source for name, tool in self._shown.findable().items() if name not in hidden)
        return LOCAL if local and _joined(asked) == _joined(LOCAL) else None

    def _names(self, server: str | None, hidden: frozenset[str], exclude: Sequence[str]) -> list[str]:
        source = "" if server == LOCAL else server
        left_out = {*self._excluded(exclude), *hidden} if exclude else hidden
        return sorted(
            name
            for name, tool in self._shown.findable().items()
            if name not in left_out and (server is None or tool.source == source)
        )

    def _listed(
        self,
        request: SearchRequest,
        server: str | None,
        hidden: frozenset[str],
        context: ToolContext,
        unavailable: list[Unavailable],
    ) -> Page:
        """A page of the tools of a server; of everything, if that is no more than a page."""
        names = self._names(server, hidden, request.exclude)
        if server is None and len(names) > request.limit:
            return Page((), unavailable, _servers_note(self._shown.servers(hidden, context)))
        first = (request.page - 1) * request.limit
        shown = names[first : first + request.limit]
        last = first + len(shown)
        note = f"{first + 1} to {last} of {len(names)} tools" if shown else f"there are {len(names)} tools"
        if last < len(names) and shown:
            following = {"query": "", "server": server, "page": request.page + 1}
            more = {} if request.limit == SearchRequest("").limit else {"limit": request.limit}
            note += f"\n{next_call('search_tools', {**following, **more})}"
        return Page([self._hit(name) for name in shown], unavailable, note)

    def _hit(self, name: str) -> SearchHit:
        tool = self._shown.found(name)
        entry = CatalogEntry(tool.definition, name, tool.source or None)
        return SearchHit(entry.id, name, entry.server, entry.description_line, entry.signature, -1.0)

    def hit(self, hit: SearchHit, grant: ToolGrant | None, context: ToolContext) -> Hit:
        tool = self._shown.found(hit.name)
        state, reason, retry_in = self._shown.standing(tool, grant, context)
        return Hit(
            id=self._shown.id_of(hit.name),
            signature=_signature(tool, hit.name),
            description=hit.description,
            state=state,
            reason=reason,
            retry_in=retry_in,
            score=None if hit.score < 0 else round(hit.score, 2),
        )


def fitted(hits: Sequence[Hit]) -> list[Hit]:
    """The hits with descriptions and parameters cut so that all together stay small."""
    room = _BYTES_A_HIT * max(10, len(hits))
    cut: list[Hit] = []
    for description, parameters in _LENGTHS:
        cut = [_cut(hit, description, parameters) for hit in hits]
        if sum(len(json.dumps(said(one), ensure_ascii=False).encode()) for one in cut) <= room:
            break
    return cut


def _cut(hit: Hit, description: int, parameters: int) -> Hit:
    name, _, rest = hit.signature.partition("(")
    if len(rest) > parameters:
        comma = rest.rfind(", ", 0, parameters)
        rest = f"{rest[: comma + 2] if comma > 0 else ''}…)"
    return replace(hit, signature=f"{name}({rest}", description=shortened(hit.description, description))


def _signature(tool: ToolBinding, name: str) -> str:
    """`create_issue(owner, title, body?)`: the required parameters first; the definition has their types."""
    if tool.contract is not None:
        return f"{name}(…)"
    definition = tool.definition
    properties: object = definition.input_schema.get("properties")
    names = list(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else []
    required = cast("Collection[str]", definition.input_schema.get("required") or ())
    shown = [one for one in names if one in required] + [f"{one}?" for one in names if one not in required]
    return f"{name}({', '.join(shown)})"


def _joined(text: str) -> str:
    return re.sub(r"[\s_\-]", "", plain(text)).casefold()


def _wants_everything(query: str, server: str | None) -> bool:
    if query.strip(" *.\"'`") == "":
        return True
    words = set(_WORDS.findall(query.casefold()))
    named = set(_WORDS.findall((server or "").casefold()))
    asks = words & _EVERYTHING if words <= _LISTING else words & (_EVERYTHING - _LISTING)
    return bool(asks) and words <= _EVERYTHING | _FILLING | named


def _named(servers: Sequence[str]) -> str:
    more = f" and {len(servers) - _MAX_SERVERS} more" if len(servers) > _MAX_SERVERS else ""
    return ", ".join(servers[:_MAX_SERVERS]) + more


def _servers_note(servers: Sequence[str]) -> str:
    if not servers:
        return f"Say what the tool should do.\n{next_call('search_tools', {'query': query_of('')})}"
    told = "Say what the tool should do, or name a server"
    return f"{told}: {_named(servers)}\n{next_call('search_tools', {'query': '', 'server': servers[0]})}"


def _unknown_server(request: SearchRequest, servers: Sequence[str]) -> str:
    asked = plain(request.server or "")
    folded = {name.casefold(): name for name in servers}
    near = [folded[name] for name in get_close_matches(asked.casefold(), folded, 1)]
    meant = f"; did you mean {near[0]}?" if near else "."
    there = f" Servers: {_named(servers)}" if servers else ""
    following = {"query": request.query} | ({"server": near[0]} if near else {})
    return f"there is no such server{meant}{there}\n{next_call('search_tools', following)}"


def _with_away(told: str, unavailable: Sequence[Unavailable]) -> str:
    away = of_away(unavailable)
    return f"{told[:-1]}; {away}." if away else told


def _note(
    request: SearchRequest, found: Sequence[SearchHit], server: str | None, unavailable: Sequence[Unavailable]
) -> str | None:
    if found:
        return None if found[0].fits else _with_away("No tool fits well; these are the nearest.", unavailable)
    if request.page > 1:
        return f"there are no more hits\n{next_call('search_tools', {'query': request.query})}"
    if unavailable:
        return _with_away("Nothing that can be seen now fits.", unavailable)
    if server is not None:
        listed = next_call("search_tools", {"query": "", "server": server})
        return f"Nothing in the catalog fits. Try other words, or list the tools of {server}.\n{listed}"
    told = "Nothing in the catalog fits. Try other words, one search for each step, or list the catalog."
    return f"{told}\n{next_call('search_tools', {'query': ''})}"
