"""A deferred catalog: four fixed tools in front of any number of others (design, "Deferred catalogs").

`search_tools` finds, `resolve_tools` grants, `call_tool` and `call_read_only_tool` run what was
granted. The list that a client sees never moves (server/tools: a list must not vary as a side
effect of other requests), and every path to a deferred tool passes the same gate (X1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from mcp_toolset.catalog.grants import GrantLedger, ToolGrant
from mcp_toolset.catalog.preview import preview_of
from mcp_toolset.catalog.search import CatalogEntry, SearchIndex
from mcp_toolset.errors import GrantError, UnknownToolError
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.function import Tool, tool
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import SourceStatus
from mcp_toolset.tools.view import ToolBinding

FIXED_TOOLS: Final = ("search_tools", "resolve_tools", "call_tool", "call_read_only_tool")
"""The tools that stand in front of a deferred catalog, in the order they are listed."""

MAX_RESOLVED: Final = 20
"""Tools that one `resolve_tools` call may ask for."""

StatusOf = Callable[[str], SourceStatus | None]
"""How a source is doing, by its name."""


class Hit(BaseModel):
    """One found tool."""

    id: str = Field(description="Give this to resolve_tools.")
    signature: str
    description: str
    server: str | None = None
    state: str = "available"
    score: float


class Resolution(BaseModel):
    """One resolved tool, or why it could not be."""

    id: str
    status: Literal["granted", "not_available"]
    grant: str | None = Field(default=None, description="Give this to call_tool or call_read_only_tool.")
    reason: str | None = None
    definition: dict[str, Any] | None = Field(
        default=None, description="The full definition, with its schemas."
    )


class Found(BaseModel):
    """What a search found."""

    hits: list[Hit]
    resolved: list[Resolution] = Field(default_factory=list[Resolution])
    note: str | None = None


class Resolved(BaseModel):
    """What became of each id, in order."""

    tools: list[Resolution]


class DeferredCatalog:
    """Deferred bindings behind search and grants; give `bindings()` to a dispatch table."""

    def __init__(self, ledger: GrantLedger, status_of: StatusOf) -> None:
        """Start empty. `status_of` tells how a source is doing, so that absence is data (X5)."""
        self._ledger = ledger
        self._status_of = status_of
        self._tools: dict[str, ToolBinding] = {}
        self._index = SearchIndex()

    def update(self, bindings: Iterable[ToolBinding]) -> None:
        """Hold these deferred tools from now on; only what changed is indexed again (H20)."""
        tools = {binding.name: binding for binding in bindings}
        self._index.remove(self._tools.keys() - tools.keys())
        self._index.add(
            CatalogEntry(binding.definition, binding.name, binding.source or None)
            for binding in tools.values()
        )
        self._tools = tools

    @property
    def index(self) -> SearchIndex:
        """The search index over the deferred tools."""
        return self._index

    def bindings(self) -> list[ToolBinding]:
        """The four fixed tools, then every deferred tool behind the gate."""
        gated = [replace(binding, gate=self._gate) for binding in self._tools.values()]
        return [*self._surface(), *gated]

    def granted(self, context: ToolContext) -> list[ToolBinding]:
        """The tools that the caller's session may also call by name (X2)."""
        return [self._tools[name] for name in self._ledger.names(context) if name in self._tools]

    def preview(self) -> str:
        """What is in the catalog, for a model that has not searched yet; empty when nothing is (H22)."""
        return preview_of((binding.source, binding.name) for binding in self._tools.values())

    def _surface(self) -> list[ToolBinding]:
        search, resolve = self._search_tool().bind(), self._resolve_tool().bind()
        call = _calling_tool("call_tool", "Call a resolved tool", CALL_TEXT, read_only=False)
        read = _calling_tool(
            "call_read_only_tool", "Call a resolved read-only tool", READ_TEXT, read_only=True
        )
        return [
            replace(search, place="the deferred catalog"),
            replace(resolve, place="the deferred catalog"),
            replace(call.bind(), redirect=self._redirect, place="the deferred catalog"),
            replace(read.bind(), redirect=self._redirect_read_only, place="the deferred catalog"),
        ]

    def _search_tool(self) -> Tool[..., Any]:
        preview = self.preview()
        text = f"{SEARCH_TEXT}\n\n{preview}" if preview else SEARCH_TEXT

        @tool(
            name="search_tools",
            title="Search for tools",
            description=text,
            read_only=True,
            idempotent=False,
            open_world=False,
        )
        async def search_tools(
            context: ToolContext,
            query: Annotated[
                str, Field(description="What the tool should do, in plain words.", max_length=2000)
            ],
            server: Annotated[str | None, Field(description="Only tools of this server.")] = None,
            limit: Annotated[int, Field(ge=1, le=100, description="At most so many hits.")] = 10,
            exclude: Annotated[list[str] | None, Field(description="Ids to leave out.")] = None,
            resolve: Annotated[int, Field(ge=0, le=5, description="Resolve the first n hits at once.")] = 0,
        ) -> Found:
            return self._search(context, query, server, limit, exclude or (), resolve)

        return search_tools

    def _resolve_tool(self) -> Tool[..., Any]:
        @tool(
            name="resolve_tools",
            title="Resolve found tools",
            description=RESOLVE_TEXT,
            read_only=True,
            idempotent=False,
            open_world=False,
        )
        async def resolve_tools(
            context: ToolContext,
            ids: Annotated[
                list[str], Field(min_length=1, max_length=MAX_RESOLVED, description="Ids of hits.")
            ],
        ) -> Resolved:
            return Resolved(tools=[self._resolve(name, context) for name in ids])

        return resolve_tools

    def _search(
        self,
        context: ToolContext,
        query: str,
        server: str | None,
        limit: int,
        exclude: Sequence[str],
        resolve: int,
    ) -> Found:
        found = self._index.search(query, server=server, limit=limit, exclude=exclude)
        hits = [
            Hit(
                id=hit.id,
                signature=hit.signature,
                description=hit.description,
                server=hit.server,
                state=self._state(hit.server),
                score=round(hit.score, 3),
            )
            for hit in found
        ]
        resolved = [self._resolve(hit.id, context) for hit in hits[:resolve]]
        note = None if hits else "Nothing in the catalog fits. Try other words, one search for each step."
        return Found(hits=hits, resolved=resolved, note=note)

    def _state(self, server: str | None) -> str:
        status = self._status_of(server or "")
        return "available" if status is None or status.state == "ready" else "offline"

    def _resolve(self, name: str, context: ToolContext) -> Resolution:
        binding = self._tools.get(name)
        if binding is None:
            return Resolution(
                id=name, status="not_available", reason="no such tool; use the id of a search hit"
            )
        status = self._status_of(binding.source)
        if status is not None and status.state != "ready":
            return Resolution(
                id=name, status="not_available", reason=f"{binding.source} is offline: {status.reason}"
            )
        grant = self._ledger.issue(binding, context)
        return Resolution(id=name, status="granted", grant=grant.handle, definition=binding.to_wire())

    def _gate(self, call: ToolCall, context: ToolContext) -> None:
        grant = self._ledger.find(call.grant or call.name, context)
        if grant is None or grant.name != call.name:
            raise UnknownToolError(call.name)
        self._ledger.check(grant, self._tools.get(call.name))

    def _redirect(self, call: ToolCall, context: ToolContext) -> ToolCall:
        grant = self._verified(call, context)
        return ToolCall(grant.name, call.arguments.get("arguments") or {}, call.id, grant=grant.handle)

    def _redirect_read_only(self, call: ToolCall, context: ToolContext) -> ToolCall:
        grant = self._verified(call, context)
        if not self._tools[grant.name].definition.read_only:
            raise GrantError(f"{grant.name} is not annotated as read-only; use call_tool")
        return self._redirect(call, context)

    def _verified(self, call: ToolCall, context: ToolContext) -> ToolGrant:
        reference = call.arguments["grant"]
        grant = self._ledger.find(reference, context)
        if grant is None:
            raise GrantError(
                f"no live grant for {reference!r}; find the tool with search_tools, then resolve_tools"
            )
        self._ledger.check(grant, self._tools.get(grant.name))
        return grant


SEARCH_TEXT: Final = (
    "Find tools by what they do. Only a few tools are listed here; many more can be found with this "
    "search. Search once for each step of a task, in plain words, then give the ids of the hits you "
    "want to resolve_tools and run them with call_tool or call_read_only_tool."
)
RESOLVE_TEXT: Final = (
    "Get the full definitions of found tools, and a grant for each. A tool runs only with its grant: "
    "pass it to call_tool, or to call_read_only_tool for tools that change nothing."
)
CALL_TEXT: Final = "Run a tool that resolve_tools granted. It may change things."
READ_TEXT: Final = (
    "Run a granted tool that changes nothing. Tools that are not annotated read-only are refused."
)


def _calling_tool(name: str, title: str, text: str, *, read_only: bool) -> Tool[..., Any]:
    @tool(
        name=name,
        title=title,
        description=text,
        read_only=read_only,
        destructive=not read_only,
        open_world=True,
    )
    async def calling_tool(
        grant: Annotated[str, Field(description="The grant from resolve_tools.")],
        arguments: Annotated[
            dict[str, Any] | None, Field(description="The tool's arguments, as its inputSchema says.")
        ] = None,
    ) -> ToolResult:
        raise GrantError(f"{name} stands for another tool and was called without one")

    return calling_tool
