"""What a server prints for the person who started it in a terminal.

A client reads the pipes of a server that it starts. A person would see only a cursor, and think that the
server hangs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from mcp_toolset.tools.hidden_text import cleaned
from mcp_toolset.tools.screen import counted, fitted
from mcp_toolset.tools.source import SourceStatus

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer

_FEW: Final = 3
"""The largest number of tools or servers that are listed by name."""

_END: Final = "(Ctrl-C ends it)"
_WAITING: Final = ("closed", "starting")


def in_terminal() -> bool:
    """True if a person has started this process: standard input is a terminal."""
    with suppress(OSError):
        return os.isatty(0)
    return False


def tell(line: str) -> None:
    """Write a line to stderr, if there is one."""
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(fitted(" ".join(cleaned(line).split()), sys.stderr) + "\n")
        sys.stderr.flush()


def on_stdio(server: ToolsetServer) -> str:
    """The line about a server that waits for a client on standard input."""
    return f"serving {summary(server)} on stdio; waiting for a client … {_END}"


def at_address(server: ToolsetServer, url: str) -> str:
    """The line about a server that listens."""
    return f"serving {summary(server)} at {url} {_END}"


def summary(server: ToolsetServer) -> str:
    """What is served: `add (1 tool)`, or `hub (12 tools, 40 behind search; git ready, notion offline)`."""
    bindings, statuses = server.bindings(), server.statuses()
    listed = [binding.name for binding in bindings if not binding.deferred]
    counts = counted(len(listed), "tool")
    if behind := len(bindings) - len(listed):
        counts += f", {behind} behind search"
    what = ", ".join(listed) if listed and len(bindings) <= _FEW and not statuses else server.name
    return f"{what} ({counts}{_servers(statuses)})"


def progress(statuses: Mapping[str, SourceStatus]) -> str:
    """`3 of 20 servers ready, 1 down: waiting for notion, github`."""
    waiting = _waiting(statuses)
    counts = f"{_ready(statuses)} of {counted(len(statuses), 'server')} ready{_others(statuses)}"
    return f"{counts}: waiting for {_some(waiting, _FEW)}" if waiting else counts


def progress_line(statuses: Mapping[str, SourceStatus], room: int) -> str:
    """`3 of 20 ready, 1 down: waiting for notion, github`, with the names for which a line has room."""
    counts = f"{_ready(statuses)} of {len(statuses)} ready{_others(statuses)}"
    if not (waiting := _waiting(statuses)):
        return counts
    lines = [f"{counts}: waiting for {_some(waiting, few)}" for few in range(_FEW, 0, -1)]
    return next((line for line in lines if len(line) <= room), f"{lines[-1][: room - 1]}…")


def _ready(statuses: Mapping[str, SourceStatus]) -> int:
    return sum(status.state == "ready" for status in statuses.values())


def _waiting(statuses: Mapping[str, SourceStatus]) -> list[str]:
    return [name for name, status in statuses.items() if status.state in _WAITING]


def _others(statuses: Mapping[str, SourceStatus]) -> str:
    """How many are stopped, and how many are down."""
    stopped = sum(status.state == "stopped" for status in statuses.values())
    down = len(statuses) - len(_waiting(statuses)) - _ready(statuses) - stopped
    return (f", {stopped} stopped until a call" if stopped else "") + (f", {down} down" if down else "")


def _some(names: Sequence[str], few: int) -> str:
    more = f" and {len(names) - few} more" if len(names) > few else ""
    return f"{', '.join(names[:few])}{more}"


def _servers(statuses: Mapping[str, SourceStatus]) -> str:
    if not statuses:
        return ""
    if len(statuses) <= _FEW:
        return "; " + ", ".join(f"{name} {status.state}" for name, status in statuses.items())
    return f"; {progress(statuses)}"
