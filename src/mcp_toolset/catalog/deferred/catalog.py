"""`DeferredCatalog`: four fixed tools in front of any number of tools behind search.

`search_tools` finds tools, `resolve_tools` grants them, `call_tool` and `call_read_only_tool` run granted
tools. The list that a client sees never changes (server/tools: a list must not vary as a side effect of other
requests), and every call of a deferred tool passes the same gate: when the call arrives, and again right
before the tool runs, since hooks and middleware may take time. Here are the four tools as clients see
them, the pages of hits (`Browser`), and the preview that a model reads first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from functools import partial
from itertools import accumulate
from typing import Any, Final, Literal, TypeVar, cast

import anyio.lowlevel

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.deferred import preparing
from mcp_toolset.catalog.deferred.findable import (
    LONGEST_ID,
    Beside,
    FindableTools,
    Hit,
    OtherHit,
    OtherIndex,
    Resolution,
    SearchAnswer,
    Unavailable,
    answer_json,
    servers_missing,
    tool_key,
)
from mcp_toolset.catalog.deferred.grant_gate import GrantGate
from mcp_toolset.catalog.deferred.resolver import Resolver
from mcp_toolset.catalog.grants.access import EVERYTHING, Access, AccessPolicy, Visible
from mcp_toolset.catalog.grants.ledger import LONGEST_REFERENCE, GrantLedger, ToolGrant
from mcp_toolset.catalog.search.entry import CatalogEntry, SearchListener, shortened
from mcp_toolset.catalog.search.index import MAX_HITS, SearchHit, SearchIndex
from mcp_toolset.catalog.search.ranking import Scorer
from mcp_toolset.catalog.search.text import is_english
from mcp_toolset.errors import GrantError, GrantStoreError, StoreError
from mcp_toolset.tools.binding import (
    DEFERRED_CATALOG,
    Executor,
    Gate,
    Redirect,
    StoreMiss,
    ToolBinding,
    loaded,
)
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.definition import ALWAYS_LOADED, ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import Scrubbing, ToolSource
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.validation import SchemaCheck
from mcp_toolset.tools.view import Made

LOCAL: Final = "this server"  # the name of the server of local tools
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
    """One page of hits."""

    found: Sequence[SearchHit]  # the hits
    unavailable: list[Unavailable]  # the servers whose tools the search could not see
    note: str | None  # text for the model


class Browser:
    """Searches for a model, and lists servers by pages."""

    def __init__(
        self, findable: FindableTools, index: SearchIndex, listener: SearchListener | None = None
    ) -> None:
        self._findable = findable
        self._index = index
        self._listener = listener

    def page(self, request: SearchRequest, hidden: frozenset[str], context: ToolContext) -> Page:
        server = None
        if request.server is not None:
            servers = self._findable.servers(hidden, context)
            server = self._server(request.server, servers, hidden)
            if server is None and _joined(request.server) not in ("", "*", "all", "any", "none", "null"):
                return Page((), [], _unknown_server(request, servers))
        unavailable = self._findable.unavailable(server, hidden, context)
        if _wants_everything(request.query, server):
            return self._listed(request, server, hidden, context, unavailable)
        found = self._searched(request, server, hidden, context)
        return Page(found, unavailable, _note(request, found, server, unavailable))

    def _searched(
        self, request: SearchRequest, server: str | None, hidden: frozenset[str], context: ToolContext
    ) -> Sequence[SearchHit]:
        if server == LOCAL:
            hidden |= {name for name, tool in self._findable.findable().items() if tool.source}
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
            # The bonus reorders the hits, and adds none.
            found.sort(key=lambda hit: self._rank(hit) - bonus.get(self._findable.key_of(hit.name), 0.0))
            return found[first:last]
        return sorted(found[first:], key=self._rank)

    def _rank(self, hit: SearchHit) -> float:
        """The sort key of a hit; of two equal hits, the tool that is not in the model's list comes first."""
        return -hit.score * (_OF_LISTED if hit.name in self._findable.listed else 1)

    def _excluded(self, ids: Sequence[str]) -> list[str]:
        return [
            name
            for id in ids
            for one in preparing.spellings(id)
            for name in (one, *self._findable.ids.named(one))
        ]

    def _server(self, asked: str, servers: Sequence[str], hidden: frozenset[str]) -> str | None:
        for spelled in (str, str.casefold, _joined):
            alike = [name for name in servers if spelled(name) == spelled(asked)]
            if len(alike) == 1:
                return alike[0]
        local = any(not tool.source for name, tool in self._findable.findable().items() if name not in hidden)
        return LOCAL if local and _joined(asked) == _joined(LOCAL) else None

    def _names(self, server: str | None, hidden: frozenset[str], exclude: Sequence[str]) -> list[str]:
        source = "" if server == LOCAL else server
        left_out = {*self._excluded(exclude), *hidden} if exclude else hidden
        return sorted(
            name
            for name, tool in self._findable.findable().items()
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
            return Page((), unavailable, _servers_note(self._findable.servers(hidden, context)))
        first = (request.page - 1) * request.limit
        shown = names[first : first + request.limit]
        last = first + len(shown)
        note = f"{first + 1} to {last} of {len(names)} tools" if shown else f"there are {len(names)} tools"
        if last < len(names) and shown:
            following = {"query": "", "server": server, "page": request.page + 1}
            more = {} if request.limit == SearchRequest("").limit else {"limit": request.limit}
            note += f"\n{preparing.next_call('search_tools', {**following, **more})}"
        return Page([self._hit(name) for name in shown], unavailable, note)

    def _hit(self, name: str) -> SearchHit:
        tool = self._findable.found(name)
        entry = CatalogEntry(tool.definition, name, tool.source or None)
        return SearchHit(entry.id, name, entry.server, entry.description_line, entry.signature, -1.0)

    def hit(self, hit: SearchHit, grant: ToolGrant | None, context: ToolContext) -> Hit:
        tool = self._findable.found(hit.name)
        state, reason, retry_in = self._findable.standing(tool, grant, context)
        return Hit(
            id=self._findable.id_of(hit.name),
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
        if sum(len(json.dumps(answer_json(one), ensure_ascii=False).encode()) for one in cut) <= room:
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
    return re.sub(r"[\s_\-]", "", preparing.plain(text)).casefold()


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
        following = preparing.next_call("search_tools", {"query": preparing.query_of("")})
        return f"Say what the tool should do.\n{following}"
    told = "Say what the tool should do, or name a server"
    following = preparing.next_call("search_tools", {"query": "", "server": servers[0]})
    return f"{told}: {_named(servers)}\n{following}"


def _unknown_server(request: SearchRequest, servers: Sequence[str]) -> str:
    asked = preparing.plain(request.server or "")
    folded = {name.casefold(): name for name in servers}
    near = [folded[name] for name in get_close_matches(asked.casefold(), folded, 1)]
    meant = f"; did you mean {near[0]}?" if near else "."
    there = f" Servers: {_named(servers)}" if servers else ""
    following = {"query": request.query} | ({"server": near[0]} if near else {})
    return f"there is no such server{meant}{there}\n{preparing.next_call('search_tools', following)}"


def _with_away(told: str, unavailable: Sequence[Unavailable]) -> str:
    away = servers_missing(unavailable)
    return f"{told[:-1]}; {away}." if away else told


def _note(
    request: SearchRequest, found: Sequence[SearchHit], server: str | None, unavailable: Sequence[Unavailable]
) -> str | None:
    if found:
        return None if found[0].fits else _with_away("No tool fits well; these are the nearest.", unavailable)
    if request.page > 1:
        return f"there are no more hits\n{preparing.next_call('search_tools', {'query': request.query})}"
    if unavailable:
        return _with_away("Nothing that can be seen now fits.", unavailable)
    if server is not None:
        listed = preparing.next_call("search_tools", {"query": "", "server": server})
        return f"Nothing in the catalog fits. Try other words, or list the tools of {server}.\n{listed}"
    told = "Nothing in the catalog fits. Try other words, one search for each step, or list the catalog."
    return f"{told}\n{preparing.next_call('search_tools', {'query': ''})}"


MAX_RESOLVED: Final = 20  # tools that one `resolve_tools` call may ask for

_Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The arguments of `search_tools`."""

    query: str
    server: str | None = None
    limit: int = 10
    exclude: Sequence[str] = ()
    resolve: int = 0
    page: int = 1


Search = Callable[[SearchRequest, ToolContext], Awaitable[SearchAnswer]]
Resolve = Callable[..., Awaitable[list[Resolution]]]  # of ids and a context; `stubs` asks for Python stubs
Reader = Callable[[SchemaCheck, ToolCall, ToolContext], ToolCall]
"""Repairs a call, given the check of the tool's arguments."""

_TEXT: Final = {"type": "string"}
_GRANTED: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"grant": _TEXT, "arguments": {"type": "object"}},
    "required": ["grant"],
}
SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "search_tools": {
        "type": "object",
        "properties": {
            "query": _TEXT,
            "server": _TEXT,
            "limit": {"type": "integer"},
            "page": {"type": "integer"},
            "exclude": {"type": "array", "items": _TEXT},
            "resolve": {"type": "integer"},
        },
        "required": ["query"],
    },
    "resolve_tools": {
        "type": "object",
        "properties": {"ids": {"type": "array", "items": _TEXT}, "stubs": {"type": "boolean"}},
        "required": ["ids"],
    },
    "call_tool": _GRANTED,
    "call_read_only_tool": _GRANTED,
}
"""The schemas that clients see; `CHECKED` has the stricter ones."""


def _checked(required: str, /, **properties: _Schema) -> _Schema:
    schema = {"additionalProperties": False, "properties": properties, "required": [required]}
    return {**schema, "type": "object"}


def _optional(schema: _Schema) -> _Schema:
    return {"anyOf": [schema, {"type": "null"}], "default": None}


def _count(least: int, most: int, default: int) -> _Schema:
    return {"default": default, "maximum": most, "minimum": least, "type": "integer"}


def _ids(**bounds: int) -> _Schema:
    return {"items": {"maxLength": LONGEST_ID, "type": "string"}, **bounds, "type": "array"}


_CALL: Final = _checked(
    "grant",
    grant={"maxLength": LONGEST_REFERENCE, "type": "string"},
    arguments=_optional({"additionalProperties": True, "type": "object"}),
)
CHECKED: Final[Mapping[str, _Schema]] = {
    "search_tools": _checked(
        "query",
        query={"maxLength": 2000, "type": "string"},
        server=_optional({"maxLength": LONGEST_ID, "type": "string"}),
        limit=_count(1, 100, 10),
        page=_count(1, 10_000, 1),
        exclude=_optional(_ids(maxItems=1000)),
        resolve=_count(0, 5, 0),
    ),
    "resolve_tools": _checked(
        "ids", ids=_ids(maxItems=MAX_RESOLVED, minItems=1), stubs={"default": False, "type": "boolean"}
    ),
    "call_tool": _CALL,
    "call_read_only_tool": _CALL,
}
"""The schemas that arguments of a call are checked against."""


def search_binding(search: Search) -> ToolBinding:
    async def run(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_structured(answer_json(await search(_request(call.arguments), context)))

    read = partial(preparing.prepared_search, CHECKED["search_tools"])
    return _fixed("search_tools", "Search tools", SEARCH_TEXT, run, read, read_only=True)


def _request(sent: Mapping[str, Any]) -> SearchRequest:
    """The request in arguments that fit; in JSON, a whole number may have a fraction of zero."""
    numbers = {key: int(sent[key]) for key in ("limit", "resolve", "page") if key in sent}
    return SearchRequest(sent["query"], sent.get("server"), exclude=sent.get("exclude") or (), **numbers)


def previewing(search: ToolBinding, preview: str, *, english: bool = False) -> ToolBinding:
    text = _ENGLISH_SEARCH_TEXT if english else SEARCH_TEXT
    if preview:
        text += f"\n\n{preview}"
    return replace(search, definition=search.definition.described(text))


def resolve_binding(resolve: Resolve, known: Callable[[str, ToolContext], bool]) -> ToolBinding:
    async def run(call: ToolCall, context: ToolContext) -> ToolResult:
        ids, stubs = call.arguments["ids"], call.arguments.get("stubs", False)
        found = await resolve(ids, context, stubs=stubs)
        return ToolResult.of_structured({"tools": [answer_json(one) for one in found]})

    read = partial(preparing.prepared_resolve, known, CHECKED["resolve_tools"])
    return _fixed("resolve_tools", "Resolve tools", RESOLVE_TEXT, run, read, read_only=True)


def call_binding(redirect: Redirect, read: Reader) -> ToolBinding:
    made = _fixed("call_tool", "Call tool", CALL_TEXT, _granted_only, read, read_only=False, open_world=True)
    return replace(made, redirect=redirect)


def read_binding(redirect: Redirect, read: Reader) -> ToolBinding:
    name, title = "call_read_only_tool", "Call read-only tool"
    made = _fixed(name, title, READ_TEXT, _granted_only, read, read_only=True, open_world=True)
    return replace(made, redirect=redirect)


SEARCH_TEXT: Final = (
    "Find tools by what they do; `resolve: n` makes the first n hits callable. Search once per step. "
    "An empty query with a server lists it."
)
_ENGLISH_SEARCH_TEXT: Final = SEARCH_TEXT.replace(" per step.", " per step, in English.")
RESOLVE_TEXT: Final = "Get definitions of hits, and grants to call them."
CALL_TEXT: Final = "Run a granted tool."
READ_TEXT: Final = "Run a granted read-only tool."


async def _granted_only(call: ToolCall, context: ToolContext) -> ToolResult:
    raise GrantError(f"{call.name} was called without a tool; give it a grant from resolve_tools")


def _fixed(
    name: str,
    title: str,
    text: str,
    run: Executor,
    read: Reader,
    *,
    read_only: bool,
    open_world: bool = False,
) -> ToolBinding:
    hints = {
        "readOnlyHint": read_only,
        "destructiveHint": not read_only,
        # Each search and each resolving may make grants anew, so that no cache may answer for them.
        "idempotentHint": read_only and open_world,
        "openWorldHint": open_world,
    }
    whole = ToolDefinition(
        name=name,
        description=text,
        input_schema=CHECKED[name],
        title=title,
        annotations=hints,
        meta=ALWAYS_LOADED,
    )
    bound = Tool(whole, run=run).bind()
    return replace(
        bound,
        definition=replace(whole, annotations={"title": title, **hints}, input_schema=SCHEMAS[name]),
        place=DEFERRED_CATALOG,
        prepare=partial(read, bound.arguments),
        explain=partial(preparing.explained_fixed, whole, bound.arguments),
    )


PREVIEW_BUDGET: Final = 300  # the default limit of a preview in tokens
DETAILS: Final = 45  # the limit in tokens up to which a preview describes servers

_CHARACTERS_A_TOKEN = 3
_LONGEST_SERVER = 64
_LATER: Final = ". Servers that are not ready join later; search again then."


@dataclass(frozen=True, slots=True)
class _Group:
    server: str
    names: Sequence[str]
    state: str = ""  # why its tools are unavailable; empty for a server that has been ready
    about: str = ""  # the server's description of itself, in one line

    def named(self) -> str:
        """`git (Version control): log, diff`; `jira (offline)`."""
        notes = "; ".join(filter(None, (self.state, self.about)))
        head = f"{self.server} ({notes})" if notes else self.server
        return f"{head}: {', '.join(self.names)}" if self.names else head

    def counted(self) -> str:
        """`git (20; Version control)`; `jira (offline)`."""
        count = str(len(self.names)) if self.names else ""
        return f"{self.server} ({'; '.join(filter(None, (count, self.state, self.about)))})"

    def short(self) -> _Group:
        return replace(self, about="")


_NO_NOTES: Final[Mapping[str, tuple[str, ...]]] = {}


def preview_of(
    tools: Iterable[tuple[str | None, str]],
    servers: Mapping[str, tuple[str, ...]] = _NO_NOTES,
    budget: int = PREVIEW_BUDGET,
) -> str:
    """The number of tools, then the servers with all names if these fit `budget` tokens, else with counts.

    `servers` has the state of each server, and its description.
    """
    # Descriptions of servers are left out first, then the names of the tools; the largest servers come first.
    # Tokens are estimated at three characters each: names cost more than prose.
    names: dict[str, list[str]] = {server: [] for server in servers}
    for server, name in tools:
        names.setdefault(server or LOCAL, []).append(name)
    if not names:
        return ""
    groups = [
        _Group(server[:_LONGEST_SERVER], each, *servers.get(server, ())) for server, each in names.items()
    ]
    total = sum(map(len, names.values()))
    head = f"{total} {'tool' if total == 1 else 'tools'} can be found by search. "
    tail = _LATER if any(group.state for group in groups) else ""
    room = _CHARACTERS_A_TOKEN * budget - len(head) - len(tail)
    return head + _fitting(groups, room) + tail


def _fitting(groups: Sequence[_Group], room: int) -> str:
    short = [group.short() for group in groups]
    little = min(room, _CHARACTERS_A_TOKEN * DETAILS)
    for some, most in ((groups, little), (short, room)):
        named = "; ".join(group.named() for group in some)
        if len(named) <= most:
            return named
    for some, most in ((groups, little), (short, room)):
        counts = [group.counted() for group in sorted(some, key=lambda group: -len(group.names))]
        if len(", ".join(counts)) <= most:
            return ", ".join(counts)
    return _some(counts, room)


def _some(counts: Sequence[str], room: int) -> str:
    more = f"and {len(counts)} more servers"
    ends = accumulate(len(count) + len(", ") for count in counts)
    fitting = sum(end + len(more) <= room for end in ends)
    return ", ".join([*counts[:fitting], f"and {len(counts) - fitting} more servers"])


_ADDED: Final = 16  # the number of tools that are indexed at once: about five milliseconds
_REMOVED: Final = 256  # the number of tools that are removed from the index at once: about as long


class DeferredCatalog:
    """Deferred bindings behind search and grants; give `bindings()` to a dispatch table."""

    def __init__(
        self,
        ledger: GrantLedger,  # issues and judges the grants
        sources: Callable[[], Mapping[str, ToolSource]] = dict[str, ToolSource],
        *,
        access: Access | None = None,  # the access policy; by default every caller has access to every tool
        visible: Visible = EVERYTHING,  # the tools that the server's policy shows to each caller
        scorer: Scorer | Literal["built-in"] | None = "built-in",  # for this catalog only
        arrive: Callable[[], Awaitable[None]] | None = None,  # waits a bounded time for sources without tools
        deferring: Callable[[], Collection[str]] = frozenset,  # the sources behind search
        listed_to: Callable[[ToolContext], Collection[str]] = lambda context: (),  # names of listed tools
        listener: SearchListener | None = None,  # observes searches
        look: Callable[[], None] | None = None,  # told of each search, when the index has read its tools
        beside: Callable[[ToolContext], Awaitable[Sequence[Beside]]] | None = None,  # found beside tools
        lists_all: Callable[[ToolContext], bool] | None = None,  # clients that need no grants
    ) -> None:
        self._ledger = ledger
        self._sources = sources
        self._policy = AccessPolicy(access, visible)
        self._findable = FindableTools(ledger, self._policy, sources, listed_to)
        self._arrive = arrive
        self._deferring = deferring
        self._indexed: dict[str, ToolBinding] = {}
        self._made_gated = Made(self._gated)
        self._index = SearchIndex(scorer=scorer)
        self._look = look
        self._beside, self._others = beside, OtherIndex()
        self._resolver = Resolver(self._findable, ledger, self._index, arrive)
        self._browser = Browser(self._findable, self._index, listener)
        self._listener = listener
        self._lists_all = lists_all
        self._gate = GrantGate(ledger, self._policy, self._findable)
        # Bound once: all tools share them.
        self._passed, self._explained = self._gate.gate, self._gate.explained
        self._running = self._gate.run if listener is None else self._run
        self._searching = search_binding(self._search)
        self._fixed = (
            resolve_binding(self._resolve, self._findable.knows),
            call_binding(self._gate.redirect, self._gate.prepare),
            read_binding(self._gate.redirect_read_only, self._gate.prepare),
        )

    def update(
        self,
        bindings: Iterable[ToolBinding],  # the tools that can be resolved and called
        held: Iterable[tuple[ToolBinding, str]] = (),  # quarantined, with the reason
        listed: Iterable[ToolBinding] = (),  # found, and called by name
    ) -> None:
        for _ in self.updating(bindings, held, listed):
            pass

    def updating(
        self,
        bindings: Iterable[ToolBinding],
        held: Iterable[tuple[ToolBinding, str]] = (),
        listed: Iterable[ToolBinding] = (),
    ) -> Iterator[None]:
        """Like `update`, in steps of some milliseconds; searches can run between two steps."""
        # Removed tools are gone at once; new and changed tools are found from their own step on.
        tools = {binding.name: binding for binding in bindings}
        kept = {binding.name: (binding, reason) for binding, reason in held}
        beside = {binding.name: binding for binding in listed if binding.personal is None}
        gone = sorted(self._indexed.keys() - tools.keys() - kept.keys() - beside.keys())
        for name in gone:
            del self._indexed[name]
        self._findable.changed(tools, kept, beside)
        found, before = self._findable.findable(), self._indexed
        self._findable.ids.remove([*gone, *beside])
        self._findable.ids.add(
            found[name]
            for name, binding in before.items()
            if found[name] is not binding and name not in beside
        )
        for names in _slices(gone, _REMOVED):
            self._index.remove(names)
            yield
        fresh = [name for name, binding in found.items() if before.get(name) is not binding]
        # A hub that is only listed never reads the words of its tools.
        later = not before
        for some in _slices(fresh, _REMOVED):
            # All at once, so that the posting of a common word is scanned once for all removed tools.
            self._index.remove(
                name for name in some if name in before and _differs(before[name], found[name])
            )
            for names in _slices(some, _ADDED):
                some_found = [found[name] for name in names]
                entries = [CatalogEntry(one.definition, one.name, one.source or None) for one in some_found]
                self._index.add(entries, later=later)
                self._findable.ids.add(found[name] for name in names if name not in beside)
                self._indexed.update((name, found[name]) for name in names)
                yield

    @property
    def index(self) -> SearchIndex:
        return self._index

    def is_private(self, entry: CatalogEntry) -> bool:
        """True if a tool is one caller's own, or quotes a secret of its server, and so is in no file."""
        binding = self._findable.tools.get(entry.public_name) or self._findable.listed.get(entry.public_name)
        source = self._sources().get(entry.server or "")
        if binding is None or binding.personal is not None:
            return True
        return isinstance(source, Scrubbing) and any(source.scrubbed(text) != text for text in entry.texts())

    def digests(self) -> dict[str, str]:
        return {name: binding.definition.digest for name, binding in self._findable.tools.items()}

    def bindings(self) -> list[ToolBinding]:
        return [*self.fixed(), *self.gated()]

    def fixed(self) -> list[ToolBinding]:
        return [self.previewing(None), *self._fixed]

    def previewing(self, identity: Identity | None) -> ToolBinding:
        hidden = self._policy.hidden_in_texts(self._findable.tools, identity)
        shown = (tool.definition for name, tool in self._findable.tools.items() if name not in hidden)
        english = is_english(definition.description or "" for definition in shown)
        return previewing(self._searching, self._preview_without(hidden, identity), english=english)

    def gated(self) -> list[ToolBinding]:
        return self._made_gated.of(self._findable.tools.values())

    def _gated(self, binding: ToolBinding) -> ToolBinding:
        explain = partial(self._explained, binding)
        gate: Gate = self._passed
        run: Executor = partial(self._running, binding)
        if (lists_all := self._lists_all) is not None:
            gate, run = _unless(lists_all, gate, _no_grant), _unless(lists_all, run, binding.execute)
        return replace(binding, gate=gate, execute=run, explain=explain)

    async def in_scope(self, references: Sequence[str] | None, context: ToolContext) -> Mapping[str, str]:
        """The tools granted by `references`, or by all grants: each name with the reference of its grant."""
        if references is None:
            await self._ledger.know_held(context)
            return {binding.name: binding.name for binding in self.granted(context)}
        found = [(await loaded(partial(self._gate.verified, one, context)), one) for one in references]
        return {grant.name: reference for grant, reference in found}

    def ungated(self, name: str) -> ToolBinding | None:
        return self._findable.tools.get(name)

    def granted(self, context: ToolContext) -> list[ToolBinding]:
        found = ((grant, self._findable.tools.get(grant.name)) for grant in self._granted(context))
        return [
            binding
            for grant, binding in found
            if binding is not None
            and not self._moved(grant, binding)
            and self._policy.withheld(binding, context) is None
        ]

    def _moved(self, grant: ToolGrant, binding: ToolBinding) -> bool:
        """True if a tool differs from the one that was granted; the kind of difference does not count."""
        try:
            return bool(self._ledger.moved(grant, binding))
        except StoreMiss:
            return True

    def preview(self, identity: Identity | None = None) -> str:
        """The text about the catalog for a model that has not searched yet; empty for an empty catalog."""
        # Every caller of a group reads the same text, so it names only tools that each of them may find.
        return self._preview_without(self._policy.hidden_in_texts(self._findable.tools, identity), identity)

    def _preview_without(self, hidden: AbstractSet[str], identity: Identity | None) -> str:
        withheld = self.withheld_servers(identity)
        notes = {name: self._note_of(name) for name in self._deferring() if name not in withheld}
        ordered = {name: notes[name] for name in self._sources() if name in notes}
        tools = ((tool.source, name) for name, tool in self._findable.tools.items() if name not in hidden)
        return preview_of(tools, ordered)

    def _note_of(self, server: str) -> tuple[str, str]:
        source = self._sources().get(server)
        if source is None:
            return "", ""
        status = source.status
        away = not status.is_up and (status.remembered or not status.tools)
        return status.state if away else "", status.about

    def withheld_servers(self, identity: Identity | None) -> frozenset[str]:
        """The deferred servers without a tool that all callers of the same group may see."""
        # With an access function, a server whose tools are unknown is withheld too.
        deferring = frozenset(self._deferring())
        secret = {name for name in deferring if self._policy.visible.hides_server(name, identity)}
        if not self._policy:
            return frozenset(secret)
        every = self._findable.every()
        hidden = self._policy.hidden_in_texts(every, identity)
        return deferring - {tool.source for name, tool in every.items() if name not in hidden} | secret

    def search(
        self, query: str, *, server: str | None = None, limit: int = 10, context: ToolContext | None = None
    ) -> list[SearchHit]:
        hidden = frozenset[str]() if context is None else self._findable.hidden(context)
        hidden |= self._findable.listed.keys()
        found = self._index.search(query, server=server, limit=limit, hidden=hidden)
        return [
            replace(
                hit,
                id=self._findable.ids.id_of(hit.name),
                state=self._findable.state(self._findable.found(hit.name))[0],
            )
            for hit in found
        ]

    async def _search(self, request: SearchRequest, context: ToolContext) -> SearchAnswer:
        if self._arrive is not None:
            await self._arrive()
        for _ in self._index.catch_up():
            await anyio.lowlevel.checkpoint()
        if self._look is not None:
            self._look()
        await self._index.read(request.query)
        # Tools that are withheld must not count against the limit of hits.
        hidden = self._findable.hidden(context)
        page = self._browser.page(request, hidden, context)
        await self._ledger.know_held(context)
        held = {grant.name: grant for grant in self._granted(context)} if page.found else {}
        hits = [await self._hit_of(hit, held.get(hit.name), context) for hit in page.found]
        wanted = [hit.id for hit in hits if hit.state != "listed"][: request.resolve]
        if self._listener is not None:
            self._listener.searched(
                context, request.query, [self._findable.key_of(hit.name) for hit in page.found]
            )
        resolved = await self._resolve(wanted, context)
        others = [] if self._beside is None else await self._found_beside(self._beside, request, context)
        return SearchAnswer(fitted(hits), others, resolved, page.unavailable, page.note)

    async def _found_beside(
        self,
        beside: Callable[[ToolContext], Awaitable[Sequence[Beside]]],
        request: SearchRequest,
        context: ToolContext,
    ) -> list[OtherHit]:
        things = await beside(context)
        return self._others.search(request.query, things, request.server) if things else []

    async def _resolve(
        self, ids: Sequence[str], context: ToolContext, *, stubs: bool = False
    ) -> list[Resolution]:
        done = await self._resolver.resolve(ids, context, stubs=stubs)
        if self._listener is not None:
            names = ((one.grant or "").rpartition(".")[0] for one in done)
            for name in names:
                if name in self._findable.tools:
                    self._listener.resolved(context, self._findable.key_of(name))
        return done

    async def _run(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> ToolResult:
        result = await self._gate.run(binding, call, context)
        if self._listener is not None and _succeeded(binding, result):
            self._listener.called(context, tool_key(binding))
        return result

    async def _hit_of(self, hit: SearchHit, grant: ToolGrant | None, context: ToolContext) -> Hit:
        try:
            return await loaded(partial(self._browser.hit, hit, grant, context))
        except StoreError:
            return self._browser.hit(hit, None, context)

    def _granted(self, context: ToolContext) -> list[ToolGrant]:
        """The caller's grants, for lists and hints only: empty if the store cannot be read."""
        try:
            return self._ledger.held(context)
        except GrantStoreError:
            return []


_R = TypeVar("_R")


def _unless(
    exempt: Callable[[ToolContext], bool],
    judge: Callable[[ToolCall, ToolContext], _R],
    otherwise: Callable[[ToolCall, ToolContext], _R],
) -> Callable[[ToolCall, ToolContext], _R]:
    def either(call: ToolCall, context: ToolContext) -> _R:
        return (otherwise if exempt(context) else judge)(call, context)

    return either


def _no_grant(call: ToolCall, context: ToolContext) -> object:
    return None


def _slices(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _differs(one: ToolBinding, other: ToolBinding) -> bool:
    return one.definition is not other.definition and one.definition != other.definition


def _succeeded(binding: ToolBinding, result: ToolResult) -> bool:
    """True if a result is complete, no error, and fits the output schema."""
    if result.is_error or not result.is_complete:
        return False
    return binding.output is None or binding.output.is_valid(result.wire.get("structuredContent"))
