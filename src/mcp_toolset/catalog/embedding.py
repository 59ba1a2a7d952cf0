"""The old path of `mcp_toolset.catalog.search.embedding`."""

from mcp_toolset._moved import moved

__getattr__ = moved(__name__, "mcp_toolset.catalog.search.embedding", "Embedder", "EmbeddingScorer")
