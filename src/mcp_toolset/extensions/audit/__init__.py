"""The audit log: a chained line per call, decision, grant and login, written beside the calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def OPTION(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option of `mcp-toolset serve` for the audit log."""
    from pathlib import Path

    import click

    return click.option(
        "--audit",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Record calls, decisions, grants and logins in FILE; see mcp-toolset audit.",
    )(command)
