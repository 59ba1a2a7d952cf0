"""The option of `mcp-toolset serve` for the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

OPTION: Final = click.option(
    "--audit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Record calls, decisions, grants and logins in FILE; see mcp-toolset audit.",
)
