"""Messages on stderr about the servers of a target: how many are ready, and which are down."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from mcp_toolset.cli.output import complain, one_line
from mcp_toolset.errors import NEEDS_LOGIN, TargetError
from mcp_toolset.serving.announcement import progress_line
from mcp_toolset.tools.core.source import SourceStatus
from mcp_toolset.tools.text.screen import counted

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer

_OR_TOKEN: Final = "; if you have a token, name its variable with --token-env"


_SPINNER: Final = 3  # columns before a line that moves, and the last one, which stays free


@contextmanager
def opening(server: ToolsetServer) -> Generator[None]:
    """Show on a terminal how many of a server's mounts are ready, until the block ends."""
    sources = server.toolset.sources()
    if not sources or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)

    def line() -> str:
        statuses = {source.source_name: source.status for source in sources}
        return one_line(progress_line(statuses, console.width - _SPINNER))

    with ExitStack() as stack:
        shown = stack.enter_context(console.status(line()))
        for source in sources:
            stack.callback(source.on_change(lambda: shown.update(line())))
        yield


def warn_of_keys(server: ToolsetServer) -> None:
    """Write to stderr which keys of the configuration are ignored."""
    if server.configured is not None:
        complain_of(server.configured.config.warnings)


def require_something(server: ToolsetServer) -> None:
    """Write to stderr which servers are down; raise if all are, and there is no local tool."""
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
    statuses = server.statuses().values()
    up = any(status.is_up for status in statuses)
    return up or not statuses or any(not tool.source for tool in server.toolset.bindings())


def report_down(server: ToolsetServer) -> None:
    complain_of(_down(server))


def complain_of(lines: Iterable[str]) -> None:
    for line in lines:
        complain(line)


def _down(server: ToolsetServer) -> list[str]:
    """A line with place, cause and remedy for each mounted server that is not ready."""
    statuses = server.statuses().items()
    told = "" if server.configured is not None else _OR_TOKEN
    down = [(_shown(server, name), status) for name, status in statuses if not status.is_up]
    return [f"{shown}: {_reason(status, told)}" for shown, status in down]


def _shown(server: ToolsetServer, name: str) -> str:
    from mcp_toolset.upstream.toolset import RemoteToolset

    sources = server.toolset.sources()
    source = next(source for source in sources if source.source_name == name)
    if not isinstance(source, RemoteToolset):
        return name
    address = source.connection.link.shown
    is_the_target = len(sources) == 1 and server.configured is None
    return address if is_the_target else f"{name} ({address})"


def _reason(status: SourceStatus, or_token: str) -> str:
    reason = status.reason or f"it is {status.state}"
    if reason.startswith(NEEDS_LOGIN):
        return reason + or_token
    says_how = ";" in reason or status.state == "misconfigured"
    return reason if says_how else f"{reason}; check that it runs and answers there"
