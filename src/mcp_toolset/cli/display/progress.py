"""Progress while servers start: how many are ready, and which are still starting."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from mcp_toolset.cli.display.output import one_line
from mcp_toolset.serving.announcement import progress

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer

__all__ = ["opening"]


@contextmanager
def opening(server: ToolsetServer) -> Generator[None]:
    """Show on a terminal how many of a server's mounts are ready, until the block ends."""
    sources = server.toolset.sources()
    if not sources or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    def line() -> str:
        return one_line(progress({source.source_name: source.status for source in sources}))

    with ExitStack() as stack:
        shown = stack.enter_context(Console(stderr=True, highlight=False).status(line()))
        for source in sources:
            stack.callback(source.on_change(lambda: shown.update(line())))
        yield
