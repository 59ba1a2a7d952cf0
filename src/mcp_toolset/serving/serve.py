"""`serve`: run a toolset as a server in one call; `run_server`, which the command line uses as well."""

from __future__ import annotations

import gc
import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, nullcontext
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, cast

import anyio

from mcp_toolset._index import index
from mcp_toolset._records import dataclass
from mcp_toolset._rule import idle_rules
from mcp_toolset.calls.pipeline.hooks import HookSet
from mcp_toolset.calls.pipeline.middleware import ToolMiddleware
from mcp_toolset.calls.pipeline.rules import AnyRule
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.concurrency.beside import beside
from mcp_toolset.concurrency.signals import leave_no_thread, run_until_signal
from mcp_toolset.concurrency.workers import owning
from mcp_toolset.errors import DefinitionError, sole
from mcp_toolset.extending.finding import served_keywords
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.serving.announcement import at_address, in_terminal, on_stdio, tell
from mcp_toolset.serving.serving_log import LogChoice, ServingLog, logged
from mcp_toolset.serving.settling import settling
from mcp_toolset.tools.declare.function import Tool
from mcp_toolset.tools.declare.prompts import CompletionProvider, PromptProvider, ResourceProvider
from mcp_toolset.tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from mcp_toolset.catalog.registry.state_store import StateStore
    from mcp_toolset.extensions.keywords import Keywords
    from mcp_toolset.security.authentication.authenticator import Auth, Authenticator
    from mcp_toolset.security.policy.approvals import Approvals
    from mcp_toolset.security.policy.policy import Policy
    from mcp_toolset.server.call_guards import LimitsByPattern
    from mcp_toolset.server.interface.monitor import Ready

TransportName = Literal["stdio", "http", "sse"]
Served = Tool[..., Any] | Toolset | ToolsetServer | Callable[..., Any] | str | PathLike[str]

_log = logging.getLogger("mcp_toolset.names")

_LAST_WORD: Final = 1.0
"""Seconds for servers to connect or fail once the client has closed its input."""

capturing: Final[ContextVar[Callable[[ToolsetServer], None] | None]] = ContextVar(
    "mcp_toolset_capturing", default=None
)
"""Set while a file is loaded as a module: then `serve` hands its server over instead of running it."""


def serve(
    target: Served,
    *,
    transport: TransportName = "stdio",
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str | None = None,
    instructions: str | None = None,
    hooks: HookSet | None = None,
    middleware: Sequence[ToolMiddleware] = (),
    rules: AnyRule | None = None,
    resources: ResourceProvider | None = None,
    prompts: PromptProvider | None = None,
    completions: CompletionProvider | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    grants: GrantLedger | None = None,
    client_prefix: str | None = None,
    state: str | PathLike[str] | StateStore | None = None,
    watch: bool = True,
    auth: Auth | None = None,
    policy: Policy | None = None,
    limits: LimitsByPattern | None = None,
    approvals: Approvals | str | PathLike[str] | Literal[False] | None = None,
    log: bool | str | PathLike[str] = True,
    insecure: bool = False,
    ready: Ready | None = None,
    capabilities: Iterable[str] = (),
    drain: float | None = None,
    extensions: Sequence[Any] = (),
    **others: Unpack[Keywords],
) -> None:
    """Serve until the client leaves (stdio) or a SIGINT or SIGTERM arrives; then close everything.

    Args:
        target: A tool, a function, a toolset, a server, or the path of an `mcpServers` file.
        transport: `stdio`, `http` (at `/mcp`) or `sse` (at `/sse`); both HTTP transports are there.
        host: The address to listen on; by default loopback.
        port: The port to listen on; 0 takes a free one.
        name: The server's name, as clients see it.
        instructions: Text for the model.
        hooks: Execution and description hooks.
        middleware: Around every call, outermost first.
        rules: `Rules`, or a rule of any other form (see `Rules.of`), instead of these two.
        resources: Resources that the server adds to those of its mounts.
        prompts: Prompts that the server adds, such as `Prompts`.
        completions: Completes arguments of prompts and resource templates.
        allowed_hosts: Further `Host` values that are accepted over HTTP.
        allowed_origins: Further `Origin` values that are accepted over HTTP.
        grants: Issues and checks the grants of deferred tools; in memory unless given.
        client_prefix: What clients put before every name; the file's value unless given; see
            `ToolsetServer`.
        state: A file or a `StateStore` that keeps names and membership from one run to the next; see
            `ToolsetServer`.
        watch: Read a configuration again when its file has changed.
        auth: Who may call over HTTP; see `ToolsetServer`.
        policy: Which tools exist for which caller, and which need an approval; see `ToolsetServer`.
        limits: How much each caller may use, by pattern of tools; see `ToolsetServer`.
        approvals: Where calls wait for an approval; see `ToolsetServer`.
        log: Whether a log is kept for `mcp-toolset logs`, or the path of its folder.
        insecure: Listen on addresses that other machines reach, even without authentication.
        ready: What must work for `/ready` to say so; see `ToolsetServer`.
        capabilities: What every local tool may do beyond reporting, such as `ask`; see `ToolsetServer`.
        drain: Seconds that requests in flight over HTTP may take after a SIGTERM; two unless given.
        extensions: Opt-in parts of the server; see `ToolsetServer`.
        others: Extensions by their keys, such as `journal=True`.

    Raises:
        DefinitionError: the transport is unknown, or the target cannot be served.
        ConfigError: the configuration file cannot be used.
        ToolsetError: the port cannot be used, or other machines reach it and there is no authentication.
    """
    if transport not in ("stdio", "http", "sse"):
        raise DefinitionError(f"unknown transport {transport!r}; use 'stdio', 'http' or 'sse'")
    server = server_of(
        target,
        name=name,
        instructions=instructions,
        hooks=hooks,
        middleware=middleware,
        rules=rules,
        resources=resources,
        grants=grants,
        client_prefix=client_prefix,
        state=state,
        prompts=prompts,
        completions=completions,
        auth=auth,
        policy=policy,
        limits=limits,
        approvals=approvals,
        ready=ready,
        capabilities=capabilities,
        extensions=extensions,
        **{**served_keywords(True), **others},
    )
    capture = capturing.get()
    if capture is not None:
        capture(server)
        return

    names = tuple(allowed_hosts), tuple(allowed_origins)
    how = Serving(transport, host, port, *names, watch, insecure, drain=drain)
    choice = LogChoice(log if isinstance(log, bool) else Path(log))
    frame = inspect.currentframe()
    program = {} if frame is None or frame.f_back is None else frame.f_back.f_globals
    with logged(choice, server.name) as kept:
        for rule, kind in idle_rules(program):
            _log.warning("%s is a %s that nothing applies: give it to serve(…), or remove it", rule, kind)
        kept.follow(server, one_client=transport == "stdio")
        ended = run_server(server, how, log=kept)
    if ended:
        leave_no_thread(0)


@dataclass(frozen=True, slots=True)
class Serving:
    """How a server is served; see `serve`."""

    transport: TransportName = "stdio"
    host: str = "127.0.0.1"
    port: int = 8000
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    watch: bool = True
    insecure: bool = False
    auth: Authenticator | None = None
    drain: float | None = None


def run_server(
    server: ToolsetServer,
    how: Serving,
    *,
    settled: Callable[[ToolsetServer], None] | None = None,
    reread: Callable[[str], None] | None = None,
    listening: Callable[[str], None] | None = None,
    log: ServingLog | None = None,
    within: AbstractAsyncContextManager[None] | None = None,
) -> bool:
    """Serve until the client leaves or a SIGINT or SIGTERM arrives; then close everything.

    A person at a terminal is shown what is served, and that one Ctrl-C ends it.

    Args:
        server: What to serve.
        how: The transport and its address.
        settled: Called when every mounted server has connected or failed once; serving does not wait for
            that. An error that it raises ends the server.
        reread: Called with a line about each configuration that was read again.
        listening: Called with the URL, if standard input is no terminal.
        log: Keeps the log of the process.
        within: Entered when the server is open, before clients are served.

    Returns:
        Whether a signal ended it.
    """
    server.rely_on_callers(how.auth, stdio=how.transport == "stdio")
    if how.transport == "stdio":
        server.serves_one_user()

    async def run() -> None:
        async with AsyncExitStack() as stack:
            # The port first: if it is taken, that is reported before anything is started.
            port = None if how.transport == "stdio" else stack.enter_context(_bound(server, how))
            await stack.enter_async_context(server.opened())
            await stack.enter_async_context(beside(*(() if log is None else (log.soon,))))
            await stack.enter_async_context(within or nullcontext())
            told = await stack.enter_async_context(settling(server, settled))
            await stack.enter_async_context(_watched(server, how, reread))
            # What is loaded by now is exempt from garbage collection: the collector would scan it again and
            # again.
            gc.freeze()
            gc.enable()
            if port is None:
                if in_terminal():
                    tell(on_stdio(server))
                await server.run_stdio()
                from mcp_toolset.transports.stdio_server import left

                if not left():
                    # A server that has failed is reported even if the client never sends anything.
                    with anyio.move_on_after(_LAST_WORD):
                        await told.wait()
            else:
                await _listen(server, port, how, listening)

    try:
        with owning():
            ended = anyio.run(run_until_signal, run) is not None
    except KeyboardInterrupt:
        # The signal came before or after the event loop could receive it.
        ended = True
    except BaseExceptionGroup as group:
        raise sole(group) from None
    if ended:
        # At exit the interpreter would scan every object for garbage while a person waits.
        gc.freeze()
    return ended


def _watched(
    server: ToolsetServer, how: Serving, reread: Callable[[str], None] | None
) -> AbstractAsyncContextManager[None]:
    if not how.watch or server.configured is None:
        return nullcontext()
    from mcp_toolset.hub.watch import watching

    return watching(server, tell=reread) if reread else watching(server)


def _bound(server: ToolsetServer, how: Serving) -> AbstractContextManager[socket]:
    from mcp_toolset.transports.http.app import bound_socket
    from mcp_toolset.transports.http.authentication import check_address

    check_address(how.host, authenticated=bool(how.auth or server.auth), insecure=how.insecure)
    return bound_socket(how.host, how.port)


async def _listen(
    server: ToolsetServer, listening: socket, how: Serving, say: Callable[[str], None] | None
) -> None:
    from mcp_toolset.transports.http.app import run_app

    app = server.http_app(allowed_hosts=how.allowed_hosts, allowed_origins=how.allowed_origins, auth=how.auth)
    host, path = (
        f"[{how.host}]" if ":" in how.host else how.host,
        "/sse" if how.transport == "sse" else "/mcp",
    )
    url = f"http://{host}:{listening.getsockname()[1]}{path}"
    if in_terminal():
        tell(at_address(server, url))
    elif say is not None:
        say(url)
    await run_app(app, listening, drain=how.drain)


def server_of(
    target: Served,
    *,
    name: str | None = None,
    instructions: str | None = None,
    hooks: HookSet | None = None,
    middleware: Sequence[ToolMiddleware] = (),
    rules: AnyRule | None = None,
    resources: ResourceProvider | None = None,
    grants: GrantLedger | None = None,
    client_prefix: str | None = None,
    state: str | PathLike[str] | StateStore | None = None,
    prompts: PromptProvider | None = None,
    completions: CompletionProvider | None = None,
    auth: Auth | None = None,
    policy: Policy | None = None,
    limits: LimitsByPattern | None = None,
    approvals: Approvals | str | PathLike[str] | Literal[False] | None = None,
    ready: Ready | None = None,
    capabilities: Iterable[str] = (),
    extensions: Sequence[Any] = (),
    **others: Unpack[Keywords],
) -> ToolsetServer:
    """The server that `serve` would run."""
    if isinstance(target, ToolsetServer):
        own = (hooks, middleware, resources, prompts, completions, name, instructions)
        safety = (
            capabilities,
            auth,
            policy,
            limits,
            approvals,
            ready,
            extensions,
            *(value for key, value in others.items() if key not in index().SERVED),
        )
        if any(own) or any(safety) or rules or grants or client_prefix or state:
            raise DefinitionError(
                "serve() got a ToolsetServer; give name, hooks and middleware to ToolsetServer(…) instead"
            )
        return target
    if isinstance(target, str | PathLike):
        from mcp_toolset.config import load_config
        from mcp_toolset.hub.toolset import toolset_from_config

        config = load_config(cast("str | PathLike[str]", target))
        toolset, name = toolset_from_config(config), name or config.name
        client_prefix = config.client_prefix if client_prefix is None else client_prefix
    else:
        toolset = cast("Toolset[Any]", target) if isinstance(target, Toolset) else Toolset(target)
    return ToolsetServer(
        toolset,
        name=name or toolset.name or "mcp-toolset",
        instructions=instructions,
        hooks=hooks,
        middleware=middleware,
        rules=rules,
        resources=resources,
        grants=grants,
        client_prefix=client_prefix or "",
        state=state,
        prompts=prompts,
        completions=completions,
        auth=auth,
        policy=policy,
        limits=limits,
        approvals=approvals,
        ready=ready,
        capabilities=capabilities,
        extensions=extensions,
        **others,
    )
