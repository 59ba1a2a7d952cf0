"""Search for tools by what they do: the index, its entries and hits, and sentence models of your choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.catalog.search.entry import CatalogEntry
    from mcp_toolset.catalog.search.index import SearchIndex
    from mcp_toolset.catalog.search.meaning import MeaningScorer
    from mcp_toolset.extensions.learning.extension import SearchLearning
    from mcp_toolset.extensions.sentence_models.bert import SentenceModel
    from mcp_toolset.extensions.sentence_models.embedding import (
        Embedder,
        EmbeddingScorer,
        SentenceTransformerEmbedder,
        VectorFile,
    )

__all__ = [
    "CatalogEntry",
    "Embedder",
    "EmbeddingScorer",
    "MeaningScorer",
    "SearchIndex",
    "SearchLearning",
    "SentenceModel",
    "SentenceTransformerEmbedder",
    "VectorFile",
]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
