"""The four fixed tools of a deferred catalog as clients see them: names, texts, annotations, answers.

Each tool has a title and says all four hints itself: hosts that ask the user take a missing hint for
the worst, and some refuse a server that leaves one out. The title stands in the annotations too,
where clients of the revisions before 2025-06-18 look for it. Every client lists these tools to its model
in every turn, so their schemas say what a model has to know and no more; answers leave out what is empty.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.deferred.findable import LONGEST_ID, Resolution, ResolveAnswer, SearchAnswer, said
from mcp_toolset.catalog.deferred.preparing import Preparing, explained_fixed
from mcp_toolset.catalog.grants.ledger import LONGEST_REFERENCE
from mcp_toolset.errors import GrantError
from mcp_toolset.tools.binding import DEFERRED_CATALOG, Executor, Redirect
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.validation import SchemaCheck
from mcp_toolset.tools.view import ToolBinding

MAX_RESOLVED: Final = 20  # tools that one `resolve_tools` call may ask for

_Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What a model asks `search_tools` for."""

    query: str
    server: str | None = None
    limit: int = 10
    exclude: Sequence[str] = ()
    resolve: int = 0
    page: int = 1


Search = Callable[[SearchRequest, ToolContext], Awaitable[SearchAnswer]]
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
"""What each tool is listed with; the arguments of a call are held against the schemas below."""


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
"""What the arguments of a call are held against."""


class Resolve(Protocol):
    """Resolves ids, in order: to definitions, or to Python stubs."""

    def __call__(
        self, ids: Sequence[str], context: ToolContext, *, stubs: bool = False
    ) -> Awaitable[list[Resolution]]: ...


def search_binding(search: Search, preparing: Preparing) -> ToolBinding:
    async def run(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_structured(said(await search(_request(call.arguments), context)))

    made = _made("search_tools", "Search tools", SEARCH_TEXT, run, read_only=True, open_world=False)
    return _fixed(made, preparing.search)


def _request(sent: Mapping[str, Any]) -> SearchRequest:
    """The request in arguments that fit; in JSON, a whole number may have a fraction of zero."""
    numbers = {key: int(sent[key]) for key in ("limit", "resolve", "page") if key in sent}
    return SearchRequest(sent["query"], sent.get("server"), exclude=sent.get("exclude") or (), **numbers)


def previewing(search: ToolBinding, preview: str, *, english: bool = False) -> ToolBinding:
    said = _ENGLISH_SEARCH_TEXT if english else SEARCH_TEXT
    text = f"{said}\n\n{preview}" if preview else said
    return replace(search, definition=search.definition.described(text))


def resolve_binding(resolve: Resolve, preparing: Preparing) -> ToolBinding:
    async def run(call: ToolCall, context: ToolContext) -> ToolResult:
        ids, stubs = call.arguments["ids"], call.arguments.get("stubs", False)
        return ToolResult.of_structured(said(ResolveAnswer(await resolve(ids, context, stubs=stubs))))

    made = _made("resolve_tools", "Resolve tools", RESOLVE_TEXT, run, read_only=True, open_world=False)
    return _fixed(made, preparing.resolve)


def call_binding(redirect: Redirect, read: Reader) -> ToolBinding:
    made = _made("call_tool", "Call tool", CALL_TEXT, _granted_only, read_only=False, open_world=True)
    return replace(_fixed(made, _without_schema(read)), redirect=redirect)


def read_binding(redirect: Redirect, read: Reader) -> ToolBinding:
    text = READ_TEXT
    made = _made(
        "call_read_only_tool", "Call read-only tool", text, _granted_only, read_only=True, open_world=True
    )
    return replace(_fixed(made, _without_schema(read)), redirect=redirect)


SEARCH_TEXT: Final = (
    "Find tools by what they do; `resolve: n` makes the first n hits callable. Search once per step. "
    "An empty query with a server lists it."
)
_ENGLISH_SEARCH_TEXT: Final = SEARCH_TEXT.replace(" per step.", " per step, in English.")
RESOLVE_TEXT: Final = "Get definitions of hits, and grants to call them."
CALL_TEXT: Final = "Run a granted tool."
READ_TEXT: Final = "Run a granted read-only tool."


async def _granted_only(call: ToolCall, context: ToolContext) -> ToolResult:
    raise GrantError(f"{call.name} runs another tool and was called without one")


def _made(
    name: str, title: str, text: str, run: Executor, *, read_only: bool, open_world: bool
) -> Tool[..., Any]:
    hints = {
        "readOnlyHint": read_only,
        "destructiveHint": not read_only,
        # Each search and each resolving may make grants anew, so that no cache may answer for them.
        "idempotentHint": read_only and open_world,
        "openWorldHint": open_world,
    }
    definition = ToolDefinition(
        name=name, description=text, input_schema=CHECKED[name], title=title, annotations=hints
    )
    return Tool(definition, run=run)


def _without_schema(read: Reader) -> _SchemaReader:
    return lambda schema, check, call, context: read(check, call, context)


def _fixed(made: Tool[..., Any], read: _SchemaReader) -> ToolBinding:
    bound, whole = made.bind(), made.definition
    hints = {"title": whole.title, **(whole.annotations or {})}
    listed = replace(whole, annotations=hints, input_schema=SCHEMAS[whole.name])
    return replace(
        bound,
        definition=listed,
        place=DEFERRED_CATALOG,
        prepare=partial(read, whole.input_schema, bound.arguments),
        explain=partial(explained_fixed, whole, bound.arguments),
    )
