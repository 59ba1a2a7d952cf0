"""The servers of a target, told on stderr: how many are ready while they start, and which are down."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from mcp_toolset.cli.display.output import complain, one_line
from mcp_toolset.errors import NEEDS_LOGIN, TargetError
from mcp_toolset.serving.announcement import progress
from mcp_toolset.tools.core.source import SourceStatus
from mcp_toolset.tools.text.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer

__all__ = [
    "complain_of",
    "name_down",
    "opening",
    "reachable",
    "report_down",
    "require_something",
    "warn_of_keys",
]


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


def warn_of_keys(server: ToolsetServer) -> None:
    """Write to stderr which keys of the configuration are ignored."""
    if server.configured is not None:
        complain_of(server.configured.config.warnings)


def require_something(server: ToolsetServer) -> None:
    """Write to stderr which servers are down.

    Raises:
        TargetError: All servers are down and there is no local tool; it has the last server's reason.
    """
    lines = _down(server)
    if lines and not reachable(server):
        last = lines.pop()
        complain_of(lines)
        raise TargetError(last)
    complain_of(lines)


def name_down(server: ToolsetServer) -> bool:
    """Write to stderr which servers are down, if the answer has the reasons; return whether any is down."""
    down = [name for name, status in server.statuses().items() if not status.is_up]
    if down:
        verb = "is" if len(down) == 1 else "are"
        complain(f"{len(down)} of {counted(len(server.statuses()), 'server')} {verb} down: {', '.join(down)}")
    return bool(down)


def reachable(server: ToolsetServer) -> bool:
    """Whether a server is up, or there is a local tool."""
    statuses = server.statuses().values()
    up = any(status.is_up for status in statuses)
    return up or not statuses or any(not tool.source for tool in server.toolset.bindings())


def report_down(server: ToolsetServer) -> None:
    """Write to stderr which servers are down; they are retried while the others serve."""
    complain_of(_down(server))


def complain_of(lines: Iterable[str]) -> None:
    """Write each line to stderr."""
    for line in lines:
        complain(line)


def _down(server: ToolsetServer) -> list[str]:
    """A line with place, cause and remedy for each mounted server that is not ready."""
    statuses = server.statuses().items()
    return [f"{_shown(server, name)}: {_reason(status)}" for name, status in statuses if not status.is_up]


def _shown(server: ToolsetServer, name: str) -> str:
    from mcp_toolset.upstream.toolset import RemoteToolset

    sources = server.toolset.sources()
    source = next(source for source in sources if source.source_name == name)
    if not isinstance(source, RemoteToolset):
        return name
    address = source.connection.link.shown
    return address if len(sources) == 1 else f"{name} ({address})"


def _reason(status: SourceStatus) -> str:
    reason = status.reason or f"it is {status.state}"
    says_how = ";" in reason or reason.startswith(NEEDS_LOGIN)
    return reason if says_how else f"{reason}; check that it runs and answers there"
