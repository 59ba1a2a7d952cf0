from collections.abc import Callable, Iterable
from pathlib import Path

from mcp_toolset import ToolDefinition
from mcp_toolset.errors import StateError
from mcp_toolset.search import MeaningScorer, SearchIndex


def opened(path: Path, tools: Callable[[], Iterable[ToolDefinition]]) -> SearchIndex:
    """The index of the last run; without one, or after an upgrade, the tools are read and saved."""
    try:
        return SearchIndex.open(path)
    except (FileNotFoundError, StateError):
        index = SearchIndex(tools(), scorer=MeaningScorer())
        index.save(path)
        return index
