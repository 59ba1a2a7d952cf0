"""`mcp-toolset serve`: serve a target as an MCP server."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_toolset._records import replace
from mcp_toolset.cli.authentication import Inbound, authentication_options
from mcp_toolset.cli.credentials import header_option, headers_of
from mcp_toolset.cli.options import (
    serving_options,
    target_and_words,
    target_command,
    verbose_option,
)
from mcp_toolset.cli.target import Url, parse_target

if TYPE_CHECKING:
    from mcp_toolset.catalog.grants.ledger import GrantLedger
    from mcp_toolset.cli.mount import MountOptions
    from mcp_toolset.cli.target import Target
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.serving.serve import Serving, TransportName

__all__ = ["serve_command"]


@target_command(
    "serve",
    "TARGET | -- COMMAND…",
    "mcp-toolset serve app.py",
    "mcp-toolset serve mcp.json --deferred",
    "mcp-toolset serve app.py --transport http --port 8000",
)
@click.option(
    "--transport",
    type=click.Choice(["stdio", "http", "sse"]),
    default="stdio",
    show_default=True,
    help="How clients reach it.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option("--allow-host", multiple=True, metavar="HOST", help="A further Host that requests may name.")
@click.option("--allow-origin", multiple=True, metavar="ORIGIN", help="A further Origin that pages may have.")
@click.option("--name", help="The server's name, as clients see it.")
@serving_options
@authentication_options
@header_option
@click.option(
    "--token-env",
    metavar="VAR",
    help="Send the bearer token in this environment variable to the URL; the same as --auth-token-env where "
    "TARGET is no URL.",
)
@verbose_option
@click.pass_context
def serve_command(
    ctx: click.Context,
    words: Sequence[str],
    transport: TransportName,
    host: str,
    port: int,
    allow_host: Sequence[str],
    allow_origin: Sequence[str],
    name: str | None,
    grants: Path | None,
    client_prefix: str | None,
    state: str | None,
    audit: Path | None,
    watch: bool,
    deferred: bool | None,
    code: bool,
    inbound: Inbound,
    header: Sequence[str],
    token_env: str | None,
    timeout: float | None,
    verbose: int,
) -> None:
    """Serve TARGET until the client leaves (stdio) or a signal ends it.

    Over HTTP both transports are there: streamable HTTP at /mcp, SSE at /sse. When a Python file calls
    serve() itself, that call says what is served, and these options say how.
    """
    target, command, _ = target_and_words(ctx, words)
    place = parse_target(target, command)

    # Most objects of a start are made by imports, which the collector is not to scan.
    from mcp_toolset.concurrency.workers import starting

    with starting():
        from mcp_toolset.cli.display.output import log_to_stderr
        from mcp_toolset.cli.mount import MountOptions
        from mcp_toolset.serving.serve import Serving

        if token_env and transport != "stdio" and not isinstance(place, Url):
            inbound, token_env = replace(inbound, variables=(*inbound.variables, token_env)), None
        headers, auth = headers_of(header, token_env), inbound.authenticator(transport)
        log_to_stderr(verbose, quiet=False)
        with _ledger(grants) as ledger:
            options = MountOptions(
                deferred,
                timeout,
                name,
                ledger,
                client_prefix,
                state,
                headers=headers,
                audit=audit,
                code=code,
                stats=True,
            )
            server = _mounted(place, options)
            if code and not server.toolset.defers:
                raise click.UsageError("--code is for tools behind search, and none is: add --deferred")
            single = bool(command) or "://" in (target or "")
            names = (*allow_host,), (*allow_origin,)
            how = Serving(transport, host, port, *names, watch, inbound.insecure, auth)
            _serve(server, single, how)


@contextmanager
def _ledger(path: Path | None) -> Generator[GrantLedger | None]:
    """A grant ledger with its store in a file, open for the length of a block; `None` without a path."""
    if path is None:
        yield None
        return
    from mcp_toolset.catalog.grants.ledger import GrantLedger
    from mcp_toolset.catalog.grants.sqlite_store import SqliteGrantStore

    with SqliteGrantStore(path) as store:
        yield GrantLedger(store)


def _mounted(target: Target, options: MountOptions) -> ToolsetServer:
    from mcp_toolset.cli.display.output import answering
    from mcp_toolset.cli.mount import mount

    # Output of the code that is loaded must not reach the client: stdout is the protocol.
    with answering():
        return mount(target, options, serving=True)


def _serve(server: ToolsetServer, single: bool, how: Serving) -> None:
    from mcp_toolset.cli.display.output import complain, note
    from mcp_toolset.cli.display.servers import report_down, require_something
    from mcp_toolset.serving.serve import run_server

    run_server(
        server,
        how,
        # If the target is one server, it must be up now; one of several may connect later.
        settled=require_something if single else report_down,
        reread=complain,
        listening=lambda url: note(f"serving {server.name} at {url}"),
    )
