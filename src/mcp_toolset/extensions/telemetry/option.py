"""The option of `mcp-toolset serve` for metrics and traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click


class _Option(click.Option):
    """An option whose page needs HTTP; options are parsed in the order in which they are given."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        value, rest = super().handle_parse_result(ctx, opts, args)
        asked = isinstance(value, str) and value and "otlp" not in value
        if asked and opts.get("transport", "stdio") == "stdio" and not opts.get("reported_to"):
            raise click.UsageError("--telemetry prometheus is a page over HTTP: add --transport http")
        return value, rest


SERVE_OPTION: Final = click.option(
    "--telemetry",
    cls=_Option,
    metavar="WORDS",
    envvar="MCP_TOOLSET_TELEMETRY",
    help="Where metrics and traces go: prometheus (at /metrics), otlp (to a collector), or both.",
)
