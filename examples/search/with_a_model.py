from collections.abc import Iterable
from pathlib import Path

from mcp_toolset import ToolDefinition
from mcp_toolset.search import Embedder, EmbeddingScorer, SearchIndex, VectorFile


def index_with(embedder: Embedder, definitions: Iterable[ToolDefinition], cache: Path) -> SearchIndex:
    """The built-in table answers until the model has read the catalog; the cache is for the next start."""
    return SearchIndex(definitions, scorer=EmbeddingScorer(embedder, cache=VectorFile(cache)))
