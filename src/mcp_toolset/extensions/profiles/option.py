"""`--profile`, for `serve` on standard input, `install`, and the commands that look at a target."""

from __future__ import annotations

from typing import Final

import click

VIEW_OPTION: Final = click.option(
    "--profile",
    "profiles",
    metavar="NAME",
    help="Use this profile of the configuration, and nothing else of it.",
)
