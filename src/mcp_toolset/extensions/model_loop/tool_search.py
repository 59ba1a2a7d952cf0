"""`ToolSearch`: deferred tools in a loop of your own, found by our index, with any model provider.

Anthropic loads the definitions that a result refers to ("Tool search tool", custom search), OpenAI's
Responses take them in the answer to a search that the client runs ("Tool search", client execution). For
others, the tools that were found are listed from the next request on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from mcp_toolset._records import replace
from mcp_toolset.catalog.search.entry import CatalogEntry
from mcp_toolset.catalog.search.index import MAX_HITS, SearchHit, SearchIndex
from mcp_toolset.catalog.search.ranking import Scorer
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extensions.model_loop.offering import FORMS, FOUND_META_KEY, TOOL_SEARCH
from mcp_toolset.tools.binding import ToolBinding
from mcp_toolset.tools.export import Export, Provider, ToolRequirement
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.tool import Tool, tool
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.view import ToolView, same

LIMIT: Final = 5


class _SearchedView(ToolView):
    """A view in which a tool that was not found is as unknown as one that does not exist."""

    def knows(self, name: str) -> bool:
        return name in self


class ToolSearch:
    """The search over the deferred tools of a toolset, for one conversation.

    Attributes:
        tool: The tool that the model calls to search; `export` offers it while there are deferred tools.
        found: The public names of the tools that were found so far, in order.
    """

    def __init__(
        self,
        tools: Toolset[Any],
        *,
        limit: int = LIMIT,
        name: str = "search_tools",
        scorer: Scorer | Literal["built-in"] | None = "built-in",
        index: SearchIndex | None = None,
        found: Iterable[str] = (),
    ) -> None:
        """Search the deferred tools of `tools`, which may change between two requests.

        Args:
            tools: The toolset; its other tools are always offered.
            limit: Tools that one search finds at most, unless the model asks for fewer.
            name: The name of the search tool.
            scorer: As for `SearchIndex`.
            index: An index for several conversations; each conversation finds only tools of its own toolset.
            found: The stored `found` of the conversation to continue.

        Raises:
            DefinitionError: the limit is out of range.
        """
        if not 1 <= limit <= MAX_HITS:
            raise DefinitionError(
                f"ToolSearch finds 1 to {MAX_HITS} tools with each search, not limit={limit}"
            )
        self._tools = tools
        self._limit = limit
        self._index = SearchIndex(scorer=scorer) if index is None else index
        self._most = MAX_HITS if index is not None else limit
        self._indexed: list[ToolBinding] = []
        self._names: Mapping[str, str] = {}
        self._forms: Mapping[str, dict[str, Any]] = {}
        self.found: tuple[str, ...] = tuple(found)
        self.tool: Final[Tool[..., Any]] = self._searching(name)

    def view(self, *, turn: object = None) -> ToolView:
        """All the tools, deferred ones included, with the search tool first if there are any of these."""
        every = self._tools.view(turn=turn, deferred=True)
        hidden = [one for one in every.values() if one.deferred]
        self._take(hidden)
        found = [self.tool.bind(), *every.values()] if hidden else every.values()
        return _SearchedView(found, known=every.known_tools)

    def export(
        self,
        provider: Provider,
        *,
        requirement: ToolRequirement | None = None,
        strict: bool = False,
        turn: object = None,
    ) -> Export:
        """The tools for the next request; see `ToolView.export`.

        Anthropic gets all tools, the deferred ones marked, so that its prompt cache stays valid. OpenAI's
        Responses get the listed tools and a search that your program runs. Chat completions and Gemini get
        the listed tools and the tools found so far.
        """
        view = self.view(turn=turn)
        if provider in FORMS and not FORMS[provider].defers:
            shown = (
                replace(one, deferred=False) if one.name in self.found else one
                for one in view.values()
                if not one.deferred or one.name in self.found
            )
            view = _SearchedView(shown, known=view.known_tools)
        exported = view.export(provider, requirement=requirement, strict=strict)
        self._names = {public: name for name, public in exported.names.items()}
        if self.tool.name not in exported.names.values():
            return exported
        name = TOOL_SEARCH if provider == "openai_responses" else self._names[self.tool.name]
        exported = replace(exported, search=(name, partial(self._now, turn)))
        if provider == "anthropic":
            tools = [one for one in exported.tools if one.get("type", "custom") == "custom"]
            return _with_tools(exported, tools)
        return self._for_responses(exported) if provider == "openai_responses" else exported

    def _for_responses(self, exported: Export) -> Export:
        searching = self._names[self.tool.name]
        self._forms = {
            function["name"]: function
            for function in _functions(exported.tools)
            if function.get("defer_loading")
        }
        plain = [one for one in _functions(exported.tools) if one["name"] not in self._forms]
        tools = [_client_search(one) if one["name"] == searching else one for one in plain]
        return _with_tools(exported, tools, {**exported.names, TOOL_SEARCH: self.tool.name})

    def _now(self, turn: object) -> Mapping[str, ToolBinding]:
        return {**self._tools.view(turn=turn, deferred=True), self.tool.name: self.tool.bind()}

    def _take(self, hidden: list[ToolBinding]) -> None:
        if same(hidden, self._indexed):
            return
        gone = {one.name for one in self._indexed} - {one.name for one in hidden}
        self._index.remove(gone)
        self._index.add(CatalogEntry(one.definition, one.name, one.source or None) for one in hidden)
        self._indexed = hidden

    def _searching(self, name: str) -> Tool[..., Any]:
        @tool(name=name, title="Search for tools", description=_TEXT, read_only=True, idempotent=True)
        async def search_tools(
            query: Annotated[
                str, Field(description="What the tool should do, in plain words.", max_length=2000)
            ],
            limit: Annotated[int | None, Field(ge=1, description="At most so many tools.")] = None,
        ) -> ToolResult:
            await self._index.read(query)
            mine = {one.name for one in self._indexed}
            hits = [
                one for one in self._index.search(query, limit=self._most, wait=False) if one.name in mine
            ]
            hits = hits[: min(limit or self._limit, self._limit)]
            self.found = tuple(dict.fromkeys([*self.found, *(hit.name for hit in hits)]))
            return self._answer(hits)

        return search_tools

    def _answer(self, hits: Sequence[SearchHit]) -> ToolResult:
        if not hits:
            return ToolResult.of_text("No tool fits. Try other words, one search for each step.")
        lines = "\n".join(f"{hit.signature}: {hit.description}" for hit in hits)
        intro = "Found" if hits[0].fits else "No tool fits well. The nearest"
        result = ToolResult.of_text(f"{intro}, and to be called by name from now on:\n{lines}")
        # A stored round may search before this conversation has made a request.
        names = [self._names.get(hit.name, hit.name) for hit in hits]
        forms = [self._forms[name] for name in names if name in self._forms]
        return replace(
            result, wire={**result.wire, "_meta": {FOUND_META_KEY: {"names": names, "tools": forms}}}
        )


_TEXT: Final = (
    "Find tools by what they do. Search before you say that something cannot be done, once for each step."
)


def _functions(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    inside = ([one] if one["type"] == "function" else one.get("tools", []) for one in tools)
    return [function for functions in inside for function in functions]


def _client_search(function: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": TOOL_SEARCH,
        "execution": "client",
        "description": function["description"],
        "parameters": function["parameters"],
    }


def _with_tools(
    exported: Export, tools: list[dict[str, Any]], names: Mapping[str, str] | None = None
) -> Export:
    form = FORMS[exported.provider]
    request = form.request(tools, exported.tool_choice)
    return replace(exported, tools=tools, names=names or exported.names, _request=request)
