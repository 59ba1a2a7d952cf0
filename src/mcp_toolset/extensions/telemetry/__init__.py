"""Metrics and traces of calls by the conventions of OpenTelemetry, whose packages load where it is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def SERVE_OPTION(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option of `mcp-toolset serve` for metrics and traces."""
    import click

    class Option(click.Option):
        """Its page needs HTTP; options are parsed in the order in which they are given."""

        def handle_parse_result(
            self, ctx: click.Context, opts: Any, args: list[str]
        ) -> tuple[Any, list[str]]:
            value, rest = super().handle_parse_result(ctx, opts, args)
            asked = isinstance(value, str) and value and "otlp" not in value
            if asked and opts.get("transport", "stdio") == "stdio" and not opts.get("reported_to"):
                raise click.UsageError("--telemetry prometheus is a page over HTTP: add --transport http")
            return value, rest

    return click.option(
        "--telemetry",
        cls=Option,
        metavar="WORDS",
        envvar="MCP_TOOLSET_TELEMETRY",
        help="Where metrics and traces go: prometheus (at /metrics), otlp (to a collector), or both.",
    )(command)
