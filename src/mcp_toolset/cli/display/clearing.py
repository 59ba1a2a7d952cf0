"""Remove the secrets that a server was given from the texts that the command line shows of that server.

Only texts for people are cleared. Names, schemas and results are data and stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer

__all__ = ["clearing"]

_TEXTS: Final = frozenset(("description", "title", "reason", "version", "before", "after", "instructions"))


def clearing(server: ToolsetServer) -> Callable[[Any], Any]:
    """A function that clears the texts in a JSON value; a bare text is cleared whole."""
    from mcp_toolset.upstream.toolset import RemoteToolset

    sources = server.toolset.sources()
    links = [source.connection.link for source in sources if isinstance(source, RemoteToolset)]

    def text(said: str) -> str:
        for link in links:
            said = link.scrubbed(said)
        return said

    def clear(value: Any, is_text: bool = True) -> Any:
        if isinstance(value, str):
            return text(value) if is_text else value
        if isinstance(value, list | tuple):
            return [clear(item, is_text) for item in cast("list[Any]", value)]
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            return {key: clear(item, key in _TEXTS) for key, item in table.items()}
        return value

    return clear
