"""Code mode: a model writes a snippet that calls several tools, and a sandbox runs it.

`monty_sandbox` alone imports `pydantic_monty`, at the first run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def OPTION(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option of `mcp-toolset serve` for code mode."""
    import click

    return click.option(
        "--code",
        is_flag=True,
        default=None,
        help="Let models run code that calls tools behind search; needs the extra `code` of this package.",
    )(command)
