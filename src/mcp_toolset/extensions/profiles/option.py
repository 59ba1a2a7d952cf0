"""`--profile`, for `serve` on standard input, `install`, and the commands that look at a target."""

from __future__ import annotations

from typing import Final

import click


def _given(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty name, such as that of a variable that is not set: it would stand for all there is."""
    if value is not None and not value.strip():
        raise click.BadParameter("is empty; name a profile, or leave the option out", ctx, param)
    return value


VIEW_OPTION: Final = click.option(
    "--profile",
    "profiles",
    metavar="NAME",
    callback=_given,
    help="Use this profile of the configuration, and nothing else of it.",
)
