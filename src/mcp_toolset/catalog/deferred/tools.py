"""The four fixed tools of a deferred catalog as clients see them: names, texts, annotations, answers.

Each tool has a title and says all four hints itself: hosts that ask the user take a missing hint for
the worst, and some refuse a server that leaves one out. The title stands in the annotations too,
where clients of the revisions before 2025-06-18 look for it. Every client lists these tools to its model
in every turn, so their schemas say what a model has to know and no more; answers leave out what is empty.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer

from mcp_toolset._records import dataclass
from mcp_toolset.catalog.deferred.hit_ids import LONGEST_ID
from mcp_toolset.catalog.deferred.preparing import Preparing, explained_fixed
from mcp_toolset.catalog.grants.ledger import LONGEST_REFERENCE
from mcp_toolset.errors import GrantError
from mcp_toolset.tools.binding.binding import DEFERRED_CATALOG, Redirect
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.function import Tool, tool
from mcp_toolset.tools.schema.validation import SchemaCheck
from mcp_toolset.tools.view.view import ToolBinding

MAX_RESOLVED: Final = 20
"""Tools that one `resolve_tools` call may ask for."""

HitState = Literal["available", "listed", "offline", "changed", "filtered", "unauthorised"]
"""Whether a found tool can be had now, and if not, what stands in the way; `listed` needs no grant."""

Id = Annotated[str, Field(max_length=LONGEST_ID)]
_ALWAYS: Final = ("hits", "tools")


class _Compact(BaseModel):
    """An answer that leaves out what is empty, and what goes without saying."""

    @model_serializer(mode="wrap")
    def _said(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        said: dict[str, Any] = serialized(self)
        return {
            key: value
            for key, value in said.items()
            if key in _ALWAYS or value not in (None, [], "available")
        }


class Hit(_Compact):
    """One found tool.

    Attributes:
        id: What `resolve_tools` takes.
        signature: The public name, with the names of the parameters.
        description: One line.
        state: Left out where the tool is available.
        reason: Why it is not available, or how it is called.
        retry_in: Seconds until another try makes sense.
        score: From 0 to 1; left out where nothing was searched for.
    """

    id: str
    signature: str
    description: str
    state: HitState = "available"
    reason: str | None = None
    retry_in: float | None = None
    score: float | None = None


class Resolution(_Compact):
    """One resolved tool, or why it could not be.

    Attributes:
        id: The id that was asked for.
        status: Whether there is a grant.
        grant: What `call_tool` and `call_read_only_tool` take.
        expires_in: Seconds that the grant lasts.
        reason: Why there is none, and what to do.
        retry_in: Seconds until another try makes sense.
        definition: What a model needs to call it: name, description, input schema, hints.
        stub: The same as a typed function of Python, if stubs were asked for.
    """

    id: str
    status: Literal["granted", "not_available"]
    grant: str | None = None
    expires_in: int | None = None
    reason: str | None = None
    retry_in: float | None = None
    definition: dict[str, Any] | None = None
    stub: str | None = None


class Unavailable(_Compact):
    """A server whose tools cannot be had now; they may be missing among the hits."""

    server: str
    state: str
    reason: str
    retry_in: float | None = None


class Found(_Compact):
    """What a search found."""

    hits: list[Hit]
    resolved: list[Resolution] = Field(default_factory=list[Resolution])
    unavailable: list[Unavailable] = Field(default_factory=list[Unavailable])
    note: str | None = None


class Resolved(_Compact):
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
    page: int = 1


Search = Callable[[SearchRequest, ToolContext], Awaitable[Found]]
Reader = Callable[[SchemaCheck, ToolCall, ToolContext], ToolCall]
"""Reads what a model has sent as it was meant, given the check of the tool's arguments."""

_SchemaReader = Callable[[Mapping[str, Any], SchemaCheck, ToolCall, ToolContext], ToolCall]

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
"""What each tool is listed with; the arguments of a call are held against the schema of its function."""


class Resolve(Protocol):
    """Resolves ids: to definitions, or to Python stubs."""

    def __call__(
        self, ids: Sequence[str], context: ToolContext, *, stubs: bool = False
    ) -> Awaitable[list[Resolution]]:
        """What becomes of each id, in order."""
        ...


def search_binding(search: Search, preparing: Preparing) -> ToolBinding:
    """`search_tools`; `previewing` says what can be found."""

    @tool(
        name="search_tools",
        title="Search tools",
        description=SEARCH_TEXT,
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def search_tools(
        context: ToolContext,
        query: Annotated[str, Field(max_length=2000)],
        server: Annotated[str | None, Field(max_length=LONGEST_ID)] = None,
        limit: Annotated[int, Field(ge=1, le=100)] = 10,
        page: Annotated[int, Field(ge=1, le=10_000)] = 1,
        exclude: Annotated[list[Id] | None, Field(max_length=1000)] = None,
        resolve: Annotated[int, Field(ge=0, le=5)] = 0,
    ) -> Found:
        return await search(SearchRequest(query, server, limit, exclude or (), resolve, page), context)

    return _fixed(search_tools, preparing.search)


def previewing(search: ToolBinding, preview: str, *, english: bool = False) -> ToolBinding:
    """`search_tools` with a preview of the catalog, and whether to search in English, in its description."""
    said = _ENGLISH_SEARCH_TEXT if english else SEARCH_TEXT
    text = f"{said}\n\n{preview}" if preview else said
    return replace(search, definition=search.definition.described(text))


def resolve_binding(resolve: Resolve, preparing: Preparing) -> ToolBinding:
    """`resolve_tools`."""

    @tool(
        name="resolve_tools",
        title="Resolve tools",
        description=RESOLVE_TEXT,
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def resolve_tools(
        context: ToolContext,
        ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_RESOLVED)],
        stubs: bool = False,
    ) -> Resolved:
        return Resolved(tools=await resolve(ids, context, stubs=stubs))

    return _fixed(resolve_tools, preparing.resolve)


def call_binding(redirect: Redirect, read: Reader) -> ToolBinding:
    """`call_tool`: whatever was granted."""
    made = _calling_tool("call_tool", "Call tool", CALL_TEXT, read_only=False)
    return replace(_fixed(made, _without_schema(read)), redirect=redirect)


def read_binding(redirect: Redirect, read: Reader) -> ToolBinding:
    """`call_read_only_tool`: what was granted and changes nothing."""
    made = _calling_tool("call_read_only_tool", "Call read-only tool", READ_TEXT, read_only=True)
    return replace(_fixed(made, _without_schema(read)), redirect=redirect)


SEARCH_TEXT: Final = (
    "Find tools by what they do; `resolve: n` makes the first n hits callable. Search once per step. "
    "An empty query with a server lists it."
)
_ENGLISH_SEARCH_TEXT: Final = SEARCH_TEXT.replace(" per step.", " per step, in English.")
RESOLVE_TEXT: Final = "Get definitions of hits, and grants to call them."
CALL_TEXT: Final = "Run a granted tool."
READ_TEXT: Final = "Run a granted read-only tool."


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
        grant: Annotated[str, Field(max_length=LONGEST_REFERENCE)], arguments: dict[str, Any] | None = None
    ) -> ToolResult:
        raise GrantError(f"{name} runs another tool and was called without one")

    return calling_tool


def _without_schema(read: Reader) -> _SchemaReader:
    return lambda schema, check, call, context: read(check, call, context)


def _fixed(made: Tool[..., Any], read: _SchemaReader) -> ToolBinding:
    """The binding of a fixed tool: listed in few tokens, forgiving in what it takes."""
    bound, whole = made.bind(), made.definition
    hints = {"title": whole.title, **(whole.annotations or {})}
    listed = replace(whole, annotations=hints, input_schema=SCHEMAS[whole.name], output_schema=None)
    return replace(
        bound,
        definition=listed,
        output=None,
        place=DEFERRED_CATALOG,
        prepare=partial(read, whole.input_schema, bound.arguments),
        explain=partial(explained_fixed, whole, bound.arguments),
    )
