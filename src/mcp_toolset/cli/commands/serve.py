"""`mcp-toolset serve`: serve a target as an MCP server."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click
from click.core import ParameterSource

from mcp_toolset._index import marked
from mcp_toolset._records import dataclass, replace
from mcp_toolset.cli.options import (
    LEVELS,
    Seconds,
    caller_options,
    gathered,
    header_option,
    headers_of,
    refuse_given,
    section,
    serve_options,
    serving_arguments,
    serving_options,
    target_and_words,
    target_command,
    verbose_option,
)
from mcp_toolset.cli.output import answering, complain, log_to_stderr, note
from mcp_toolset.cli.target import ConfigFile, Module, ProgramFile, Target, Url, parse_target, served_as
from mcp_toolset.errors import ConfigError, TargetError, ToolsetError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from mcp_toolset.cli.mount import MountOptions
    from mcp_toolset.cli.reloading import Child
    from mcp_toolset.config.models import HubConfig
    from mcp_toolset.extending.extension import Keywords
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.serving.log_lines import JsonStream
    from mcp_toolset.serving.serve import Serving, TransportName
    from mcp_toolset.serving.serving_log import LogChoice, ServingLog
    from mcp_toolset.shared.state import SharedState


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of `serve` about its log; `place` is the folder, or `off`."""

    place: str | None = None
    level: str | None = None
    style: str = "text"

    @contextmanager
    def keeping(self, target: Target, verbose: int) -> Generator[ServingLog]:
        """Keep the log of this process for the length of a block, and tell stderr of records."""
        from mcp_toolset.serving.serving_log import logged

        with ExitStack() as stack:
            # The log comes later: it is a handler as well, and after it no other would be made.
            if self.style == "text":
                log_to_stderr(verbose, quiet=False)
            else:
                from mcp_toolset.serving.log_lines import JsonFormatter, JsonStream

                log_to_stderr(verbose, quiet=False, formatter=JsonFormatter(lambda text: log.clear(text)))
                stream = stack.enter_context(redirect_stderr(JsonStream(sys.stderr)))
                stack.enter_context(_failing_in(stream))
            log = stack.enter_context(logged(self._choice(), served_as(target)))
            yield log

    def _choice(self) -> LogChoice:
        from mcp_toolset.serving.serving_log import OFF, LogChoice

        if self.place is None:
            return LogChoice(None, self.level)
        return LogChoice(False if self.place == OFF else Path(self.place), self.level)


_log_options: Final = gathered(
    "logging",
    LogOptions,
    click.option(
        "--log",
        "place",
        metavar="FOLDER|off",
        help="Keep the log that mcp-toolset logs shows in FOLDER; off keeps none.",
    ),
    click.option(
        "--log-level",
        "level",
        type=click.Choice(LEVELS),
        metavar="LEVEL",
        help="The least level in that log: debug, info (the default), warning or error.",
    ),
    click.option(
        "--log-format",
        "style",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="What the lines on stderr are.",
    ),
)


@target_command(
    "serve",
    "TARGET | -- COMMAND…",
    "mcp-toolset serve app.py",
    "mcp-toolset serve mcp.json --deferred",
    "mcp-toolset serve app.py --transport http --port 8000",
)
@caller_options
@section(
    "HTTP",
    click.option(
        "--transport",
        type=click.Choice(["stdio", "http", "sse"]),
        default="stdio",
        show_default=True,
        help="How clients reach the server.",
    ),
    click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8000,
        show_default=True,
        help="The port; 0 takes a free one.",
    ),
    click.option(
        "--drain",
        type=Seconds(min=0),
        metavar="SECONDS",
        help="Over HTTP: how long calls in flight may take after a SIGTERM; by default 2.",
    ),
    click.option(
        "--allow-host", multiple=True, metavar="HOST", help="A further Host that requests may name."
    ),
    click.option(
        "--allow-origin", multiple=True, metavar="ORIGIN", help="A further Origin that pages may have."
    ),
    click.option(
        "--shared",
        metavar="URL",
        envvar="MCP_TOOLSET_SHARED",
        help="Be one of several replicas, which share their state in this Redis or Valkey: redis://host:6379.",
    ),
)
@click.option("--name", help="The server's name, as clients see it.")
@serving_options
@header_option
@click.option(
    "--token-env",
    metavar="VAR",
    help="Send the bearer token in this environment variable to the URL; the same as --auth-token-env where "
    "TARGET is no URL.",
)
@serve_options
@click.option(
    "--reload",
    is_flag=True,
    help="For development: load a Python program again when one of its files changes. What the program has "
    "in memory is lost each time.",
)
@click.option("--reported-to", hidden=True, type=click.Path(path_type=Path))
@section("Log", _log_options, verbose_option)
@click.pass_context
def serve_command(
    ctx: click.Context,
    words: Sequence[str],
    transport: TransportName,
    host: str,
    port: int,
    drain: float | None,
    allow_host: Sequence[str],
    allow_origin: Sequence[str],
    name: str | None,
    grants: Path | None,
    client_prefix: str | None,
    state: str | None,
    watch: bool,
    deferred: bool | None,
    insecure: bool,
    header: Sequence[str],
    token_env: str | None,
    shared: str | None,
    reload: bool,
    reported_to: Path | None,
    timeout: float | None,
    logging: LogOptions,
    verbose: int,
    **extensions: Any,
) -> None:
    """Serve TARGET until the client leaves (stdio) or a signal ends it.

    Over HTTP, streamable HTTP is at /mcp and SSE at /sse. If a Python file calls serve() itself, the call
    decides what is served, and these options decide how.
    """
    target, command, _ = target_and_words(ctx, words)
    place = parse_target(target, command)
    if transport == "stdio":
        only = ("host", "port", "drain", "allow_host", "allow_origin")
        refuse_given(ctx, only, "has no effect on stdio: add --transport http")
    followed = _followed(place, watch, bool(shared), bool(header)) if reload else None

    # Most objects of a start are made by imports, which the collector is not to scan.
    from mcp_toolset.concurrency.tasks import starting

    child = None
    if reported_to is not None:
        from mcp_toolset.cli.reloading import Child

        if not isinstance(place, ProgramFile | Module):
            raise click.UsageError("--reported-to is what --reload starts a program with")
        child, logging = Child(place, reported_to), replace(logging, place="off")
    with starting(), logging.keeping(place, verbose) as log:
        from mcp_toolset.serving.serve import Serving

        inbound = extensions.pop("auth", None)
        if inbound and token_env and transport != "stdio" and not isinstance(place, Url):
            inbound, token_env = inbound.with_variable(token_env), None
        headers, auth = headers_of(header, token_env), inbound and inbound.authenticator(transport)
        names = (*allow_host,), (*allow_origin,)
        how = Serving(transport, host, port, *names, watch, insecure, auth, drain)
        from mcp_toolset.cli.mount import MountOptions

        if followed is not None:
            given = [*map(str, serving_arguments(ctx)), *["-v"] * verbose]
            stays = {key: one for key, one in extensions.items() if key in marked("stays")}
            from mcp_toolset.cli.reloading import ProgramReload, front

            # The program runs in a child process, which is exchanged when a file of it changes.
            server = front(followed, MountOptions(name=name, extensions=stays))
            given += () if name is None else ("--name", name)
            again = ProgramReload(server, followed, given, shared=transport != "stdio", tell=complain)
            _serve(server, False, how, log, again.running())
            return
        if child is not None:  # the parent records what its children do
            extensions = {key: one for key, one in extensions.items() if key not in marked("stays")}
        with ExitStack() as stack:
            ledger = None
            if grants is not None:
                from mcp_toolset.catalog.grants.ledger import GrantLedger

                ledger = stack.enter_context(GrantLedger(grants))
            options = MountOptions(
                deferred,
                timeout,
                name,
                ledger,
                client_prefix,
                state,
                headers=headers,
                serves=child is None,
                shared=_shared(shared),
                extensions=extensions,
            )
            server = _mounted(place, options, child)
            _check_target(ctx, server, target or "", inbound, extensions, has_auth=auth is not None)
            single = bool(command) or "://" in (target or "")
            _serve(server, single, how, log, None if child is None else child.following())


def _check_target(
    ctx: click.Context,
    server: ToolsetServer,
    target: str,
    inbound: Any,
    extensions: Mapping[str, Any],
    *,
    has_auth: bool,
) -> None:
    """Refuse options that have no effect on this target, or stand in place of what its file says."""
    for key in marked("deferred"):
        if extensions.get(key) and not server.toolset.defers:
            raise click.UsageError(f"--{key} is for tools behind search, and none is: add --deferred")
    if server.configured is not None:
        config = server.configured.config
        server.configured.accept = check = partial(_check_callers, inbound, has_auth=has_auth)
        try:
            check(config)
        except ConfigError as fault:
            raise click.UsageError(str(fault), ctx) from None
        for key in marked("option"):
            # An option that is a value, such as a path, stands in place of what the file says.
            if config.extensions.get(key) is not None and not isinstance(extensions.get(key), bool | None):
                raise click.UsageError(
                    f"{target} has `{key}`, which --{key} would replace; leave one of them out", ctx
                )
    if has_auth and server.auth is not None:
        raise click.UsageError(
            "the program gives auth=…, which the options that say who may call would replace; leave one out",
            ctx,
        )


def _check_callers(inbound: Any, config: HubConfig, *, has_auth: bool) -> None:
    """Refuse `auth` in a file beside options that say who may call, and rules for callers unknown to them."""
    if has_auth and config.callers is not None:
        raise ConfigError(
            f"{config.path} has `auth`, which the options that say who may call would replace; "
            "leave them out, or remove the section"
        )
    if inbound is not None:
        inbound.check_callers(config, complain)


def _followed(target: Target, watch: bool, shared: bool, headers: bool) -> ProgramFile | Module | None:
    """The program that `--reload` loads again; `None` for a configuration, which is followed anyway."""
    if isinstance(target, ConfigFile) and watch:
        return None
    if not isinstance(target, ProgramFile | Module):
        raise click.UsageError(
            "--reload and --no-watch exclude each other; leave one of them out"
            if isinstance(target, ConfigFile)
            else "--reload is for Python programs and configurations; leave it out for a URL or a command"
        )
    if shared or headers:
        other = "--shared" if shared else "--header"
        raise click.UsageError(f"--reload and {other} exclude each other; leave one of them out")
    return target


def _shared(url: str | None) -> SharedState | None:
    if url is None:
        return None
    from mcp_toolset.shared.state import KEYS_VARIABLE, SharedState

    ring = None
    if keys := os.environ.get(KEYS_VARIABLE):
        from mcp_toolset.security.key_ring import KeyRing

        ring = KeyRing.of_text(keys)
    try:
        return SharedState(url, keys=ring)
    except ConfigError as fault:
        context = click.get_current_context()
        if context.get_parameter_source("shared") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--shared: {fault}", context) from None
        raise


def _mounted(target: Target, options: MountOptions, child: Child | None) -> ToolsetServer:
    from mcp_toolset.cli.mount import mount

    # Output of the code that is loaded must not reach the client: stdout is the protocol.
    with answering():
        if child is None:
            return mount(target, options, serving=True)
        with child.loading():
            server = mount(target, options, serving=True)
            stays = marked("stays")
            for key in stays:
                if key in marked("protects") and server.extensions.get(key):
                    raise TargetError(
                        f"the program gives {key}=…, which --reload would leave out; "
                        f"give --{key} in its place, or serve without --reload"
                    )
            server = server.derived(**cast("Keywords", dict.fromkeys(stays, False)))
        child.loaded(decides=bool(server.auth or server.policy or server.gives("access")))
        return server


def _serve(
    server: ToolsetServer,
    single: bool,
    how: Serving,
    log: ServingLog,
    within: AbstractAsyncContextManager[None] | None = None,
) -> None:
    from mcp_toolset.cli.mount import report_down, require_something
    from mcp_toolset.serving.serve import run_server

    log.follow(server, one_client=how.transport == "stdio")
    run_server(
        server,
        how,
        # If the target is one server, it must be up now; one of several may connect later.
        settled=require_something if single else report_down,
        reread=complain,
        listening=lambda url: note(f"serving {server.name} at {url}"),
        log=log,
        within=within,
    )


@contextmanager
def _failing_in(stream: JsonStream) -> Generator[None]:
    try:
        yield
    except click.ClickException as fault:
        stream.say("error", fault.format_message())
        raise click.exceptions.Exit(fault.exit_code) from None
    except ToolsetError as fault:
        stream.say("error", str(fault))
        raise click.exceptions.Exit(1) from None
