"""The option of `mcp-toolset serve` for code mode."""

from __future__ import annotations

from typing import Final

import click

OPTION: Final = click.option(
    "--code",
    is_flag=True,
    default=None,
    help="Let models run code that calls tools behind search; needs the extra `code` of this package.",
)
