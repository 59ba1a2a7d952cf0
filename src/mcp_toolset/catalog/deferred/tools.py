"""The four fixed tools of a deferred catalog as clients see them: names, texts, annotations, answers.

Each tool has a title and says all four hints itself: hosts that ask the user take a missing hint for
the worst, and some refuse a server that leaves one out. The title stands in the annotations too,
where clients of the revisions before 2025-06-18 look for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from mcp_toolset.catalog.deferred.hit_ids import LONGEST_ID
from mcp_toolset.catalog.grants.ledger import LONGEST_REFERENCE
from mcp_toolset.errors import GrantError
from mcp_toolset.tools.binding.binding import DEFERRED_CATALOG, Redirect
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.function import Tool, tool
from mcp_toolset.tools.view.view import ToolBinding

MAX_RESOLVED: Final = 20
"""Tools that one `resolve_tools` call may ask for."""

HitState = Literal["available", "offline", "changed", "filtered", "unauthorised"]
"""Whether a found tool can be had now, and if not, what stands in the way."""

Id = Annotated[str, Field(max_length=LONGEST_ID)]


class Hit(BaseModel):
    """One found tool."""

    id: str = Field(description="Give this to resolve_tools.")
    signature: str
    description: str
    server: str | None = None
    state: HitState = "available"
    reason: str | None = Field(default=None, description="Why it is not available.")
    retry_in: float | None = Field(default=None, description="Seconds until another try makes sense.")
    score: float


class Resolution(BaseModel):
    """One resolved tool, or why it could not be."""

    id: str
    status: Literal["granted", "not_available"]
    grant: str | None = Field(default=None, description="Give this to call_tool or call_read_only_tool.")
    expires_in: int | None = Field(default=None, description="Seconds that the grant lasts.")
    reason: str | None = None
    retry_in: float | None = Field(default=None, description="Seconds until another try makes sense.")
    definition: dict[str, Any] | None = Field(
        default=None, description="The full definition, with its schemas."
    )


class Unavailable(BaseModel):
    """A server whose tools cannot be had now; they may be missing among the hits."""

    server: str
    state: str
    reason: str
    retry_in: float | None = None


class Found(BaseModel):
    """What a search found."""

    hits: list[Hit]
    resolved: list[Resolution] = Field(default_factory=list[Resolution])
    unavailable: list[Unavailable] = Field(default_factory=list[Unavailable])
    note: str | None = None


class Resolved(BaseModel):
    """What became of each id, in order."""

    tools: list[Resolution]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What a model asks `search_tools` for."""

    query: str
    server: str | None = None
    limit: int = 10
    exclude: Sequence[str] = ()
    resolve: int = 0


Search = Callable[[SearchRequest, ToolContext], Awaitable[Found]]
Resolve = Callable[[Sequence[str], ToolContext], Awaitable[list[Resolution]]]


def search_binding(search: Search) -> ToolBinding:
    """`search_tools`; `previewing` says what can be found."""

    @tool(
        name="search_tools",
        title="Search for tools",
        description=SEARCH_TEXT,
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def search_tools(
        context: ToolContext,
        query: Annotated[str, Field(description="What the tool should do, in plain words.", max_length=2000)],
        server: Annotated[
            str | None, Field(description="Only tools of this server.", max_length=LONGEST_ID)
        ] = None,
        limit: Annotated[int, Field(ge=1, le=100, description="At most so many hits.")] = 10,
        exclude: Annotated[list[Id] | None, Field(description="Ids to leave out.", max_length=1000)] = None,
        resolve: Annotated[int, Field(ge=0, le=5, description="Resolve the first n hits at once.")] = 0,
    ) -> Found:
        return await search(SearchRequest(query, server, limit, exclude or (), resolve), context)

    return _fixed(search_tools)


def previewing(search: ToolBinding, preview: str) -> ToolBinding:
    """`search_tools` with a preview of the catalog in its description."""
    text = f"{SEARCH_TEXT}\n\n{preview}" if preview else SEARCH_TEXT
    return replace(search, definition=search.definition.described(text))


def resolve_binding(resolve: Resolve) -> ToolBinding:
    """`resolve_tools`."""

    @tool(
        name="resolve_tools",
        title="Resolve found tools",
        description=RESOLVE_TEXT,
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def resolve_tools(
        context: ToolContext,
        ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_RESOLVED, description="Ids of hits.")],
    ) -> Resolved:
        return Resolved(tools=await resolve(ids, context))

    return _fixed(resolve_tools)


def call_binding(redirect: Redirect) -> ToolBinding:
    """`call_tool`: whatever was granted."""
    made = _calling_tool("call_tool", "Call a resolved tool", CALL_TEXT, read_only=False)
    return replace(_fixed(made), redirect=redirect)


def read_binding(redirect: Redirect) -> ToolBinding:
    """`call_read_only_tool`: what was granted and changes nothing."""
    made = _calling_tool("call_read_only_tool", "Call a resolved read-only tool", READ_TEXT, read_only=True)
    return replace(_fixed(made), redirect=redirect)


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
        idempotent=read_only,
        open_world=True,
    )
    async def calling_tool(
        grant: Annotated[
            str, Field(description="The grant from resolve_tools.", max_length=LONGEST_REFERENCE)
        ],
        arguments: Annotated[
            dict[str, Any] | None, Field(description="The tool's arguments, as its inputSchema says.")
        ] = None,
    ) -> ToolResult:
        raise GrantError(f"{name} runs another tool and was called without one")

    return calling_tool


def _fixed(made: Tool[..., Any]) -> ToolBinding:
    definition = made.definition
    hints = {"title": definition.title, **(definition.annotations or {})}
    return replace(made.bind(), definition=replace(definition, annotations=hints), place=DEFERRED_CATALOG)
