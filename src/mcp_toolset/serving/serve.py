"""`serve`: run a toolset as a server in one call; `run_server`, which the command line uses as well."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, cast

import anyio

from mcp_toolset._index import marked
from mcp_toolset._records import dataclass
from mcp_toolset._rule import idle_rules
from mcp_toolset.calls.hooks import HookSet
from mcp_toolset.calls.rules import AnyRule
from mcp_toolset.concurrency.signals import leave_no_thread, run_until_signal
from mcp_toolset.concurrency.tasks import beside, give_back_large_blocks, owning
from mcp_toolset.errors import DefinitionError, ToolsetError, sole
from mcp_toolset.extending.extension import served_keywords
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.serving.serving_log import LogChoice, ServingLog, logged
from mcp_toolset.tools.hidden_text import cleaned
from mcp_toolset.tools.screen import counted, fitted
from mcp_toolset.tools.source import SourceStatus
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset

if TYPE_CHECKING:
    from mcp_toolset.security.authenticator import Authenticator
    from mcp_toolset.security.policy import Policy
    from mcp_toolset.server.parts import ServeKeywords

_FEW: Final = 3
"""The largest number of tools or servers that are listed by name."""

_END: Final = "(Ctrl-C ends it)"
_WAITING: Final = ("closed", "starting")


def in_terminal() -> bool:
    """True if a person has started this process: standard input is a terminal."""
    with suppress(OSError):
        return os.isatty(0)
    return False


def tell(line: str) -> None:
    """Write a line to stderr, if there is one."""
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(fitted(" ".join(cleaned(line).split()), sys.stderr) + "\n")
        sys.stderr.flush()


def on_stdio(server: ToolsetServer) -> str:
    """The line about a server that waits for a client on standard input."""
    return f"serving {summary(server)} on stdio; waiting for a client … {_END}"


def at_address(server: ToolsetServer, url: str) -> str:
    """The line about a server that listens."""
    return f"serving {summary(server)} at {url} {_END}"


def summary(server: ToolsetServer) -> str:
    """The served tools: `add (1 tool)`, or `hub (12 tools, 40 behind search; git ready, notion offline)`."""
    bindings, statuses = server.bindings(), server.statuses()
    listed = [binding.name for binding in bindings if not binding.deferred]
    counts = counted(len(listed), "tool")
    if behind := len(bindings) - len(listed):
        counts += f", {behind} behind search"
    what = ", ".join(listed) if listed and len(bindings) <= _FEW and not statuses else server.name
    return f"{what} ({counts}{_servers(statuses)})"


def progress(statuses: Mapping[str, SourceStatus]) -> str:
    """`3 of 20 servers ready, 1 down: waiting for notion, github`."""
    waiting = _waiting(statuses)
    counts = f"{_ready(statuses)} of {counted(len(statuses), 'server')} ready{_others(statuses)}"
    return f"{counts}: waiting for {_some(waiting, _FEW)}" if waiting else counts


def progress_line(statuses: Mapping[str, SourceStatus], room: int) -> str:
    """`3 of 20 ready, 1 down: waiting for notion, github`, with the names for which a line has room."""
    counts = f"{_ready(statuses)} of {len(statuses)} ready{_others(statuses)}"
    if not (waiting := _waiting(statuses)):
        return counts
    lines = [f"{counts}: waiting for {_some(waiting, few)}" for few in range(_FEW, 0, -1)]
    return next((line for line in lines if len(line) <= room), f"{lines[-1][: room - 1]}…")


def _ready(statuses: Mapping[str, SourceStatus]) -> int:
    return sum(status.state == "ready" for status in statuses.values())


def _waiting(statuses: Mapping[str, SourceStatus]) -> list[str]:
    return [name for name, status in statuses.items() if status.state in _WAITING]


def _others(statuses: Mapping[str, SourceStatus]) -> str:
    """The numbers of stopped servers and of those that are down, as text."""
    stopped = sum(status.state == "stopped" for status in statuses.values())
    down = len(statuses) - len(_waiting(statuses)) - _ready(statuses) - stopped
    return (f", {stopped} stopped until a call" if stopped else "") + (f", {down} down" if down else "")


def _some(names: Sequence[str], few: int) -> str:
    more = f" and {len(names) - few} more" if len(names) > few else ""
    return f"{', '.join(names[:few])}{more}"


def _servers(statuses: Mapping[str, SourceStatus]) -> str:
    if not statuses:
        return ""
    if len(statuses) <= _FEW:
        return "; " + ", ".join(f"{name} {status.state}" for name, status in statuses.items())
    return f"; {progress(statuses)}"


@asynccontextmanager
async def settling(
    server: ToolsetServer, told: Callable[[ToolsetServer], None] | None
) -> AsyncGenerator[anyio.Event]:
    """Report the state of the servers once all are ready or have failed, and set the event."""
    called = anyio.Event()
    is_starting = any(status.state == "starting" for status in server.statuses().values())
    if told is not None and not is_starting:
        told(server)
    if told is None or not is_starting:
        called.set()
    late = in_terminal() and is_starting
    if called.is_set() and not late:
        yield called
        return

    async def settle() -> None:
        await server.settled()
        if told is not None:
            told(server)
            called.set()
        if late:
            tell(f"now serving {summary(server)}")

    async with anyio.create_task_group() as group:
        group.start_soon(settle)
        yield called
        group.cancel_scope.cancel()


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
    rules: AnyRule | None = None,
    policy: Policy | None = None,
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    watch: bool = True,
    log: bool | str | PathLike[str] = True,
    insecure: bool = False,
    drain: float | None = None,
    **others: Unpack[ServeKeywords],
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
        rules: `Rules`, or a rule of any other form (see `Rules.of`), instead of hooks and middleware.
        policy: The rules for tools: which exist for which caller, and which need an approval.
        allowed_hosts: Further `Host` values that are accepted over HTTP.
        allowed_origins: Further `Origin` values that are accepted over HTTP.
        watch: Read a configuration again when its file has changed.
        log: True if a log is kept for `mcp-toolset logs`, or the path of its folder.
        insecure: Listen on addresses that other machines reach, even without authentication.
        drain: Seconds that requests in flight over HTTP may take after a SIGTERM; two unless given.
        others: Whatever else `ToolsetServer` takes, such as `auth=`, `resources=` and `journal=True`.

    Raises:
        DefinitionError: the transport is unknown, or the target cannot be served.
        ConfigError: the configuration file cannot be used.
        ToolsetError: the port cannot be used, or other machines reach it and there is no authentication.
    """
    if transport not in ("stdio", "http", "sse"):
        raise DefinitionError(f"unknown transport {transport!r}; use 'stdio', 'http' or 'sse'")
    own = {"name": name, "instructions": instructions, "hooks": hooks, "rules": rules, "policy": policy}
    given = {key: value for key, value in own.items() if value is not None}
    server = server_of(target, **{**served_keywords(True), **given, **others})
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
        tell_passed_over(program, server)
        kept.follow(server, one_client=transport == "stdio")
        ended = run_server(server, how, log=kept)
    if ended:
        leave_no_thread(0)


def tell_passed_over(program: Mapping[str, object], served: object) -> None:
    """Log a program's rules that do not apply to what is served.

    They are those of servers and toolsets in whose place another one is served, and sets without a hook.
    """
    is_named = isinstance(served, ToolsetServer) and any(one is served for one in program.values())
    for name in guarded_ones(program, served.toolset if isinstance(served, ToolsetServer) else served):
        if not name.startswith("_") and not (is_named and isinstance(program[name], ToolsetServer)):
            _log.warning(
                "%s has rules for its tools, which do not apply, as another one is served: serve(%s), or "
                "call it _%s if it has another use",
                *(name, name, name),
            )
    for name, value in program.items():
        if isinstance(value, HookSet) and value.is_empty and not name.startswith("_"):
            _log.warning('%s has no hooks, so it protects nothing: write @%s.execution("NAME")', name, name)


def guarded_ones(program: Mapping[str, object], chosen: object) -> list[str]:
    """Of a program's variables the servers, and the toolsets with more rules than the chosen value."""
    others: dict[str, object] = {
        name: value
        for name, value in program.items()
        if isinstance(value, Toolset | ToolsetServer) and value is not chosen
    }
    before: set[object] = _protection(chosen) if others else set()
    return [
        name
        for name, value in others.items()
        if isinstance(value, ToolsetServer) or _protection(value) - before
    ]


def _protection(value: object) -> set[object]:
    """Rules and filters of a toolset that keep tools from being called, or decide about their calls."""
    if not isinstance(value, Toolset):
        return set()
    toolset = cast("Toolset[Any]", value)
    try:
        bindings = toolset.bindings()
    except ToolsetError:  # Its tools have a mistake, which is told where it is served.
        return set()
    carried = {id(one.rules) for binding in bindings for one in binding.carried}
    held = [one for one in bindings if not one.on or one.deferred]
    filtered = {one.tool_id for one in toolset.everything()} - {one.tool_id for one in bindings}
    return {*carried, *filtered, *(one.tool_id for one in held)}


@dataclass(frozen=True, slots=True)
class Serving:
    """Options of a server that is served; see `serve`."""

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
        server: The server to serve.
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
        server.extensions.alone()

    async def run() -> None:
        async with AsyncExitStack() as stack:
            # The port first: if it is taken, that is reported before anything is started.
            port = None if how.transport == "stdio" else stack.enter_context(_bound(server, how))
            await stack.enter_async_context(server.opened())
            # A view that is not there is reported before clients are served.
            view = await server.extensions.entered()
            if view is not None and port is not None:
                raise ToolsetError("one view is served on stdio; over HTTP each has an address of its own")
            await stack.enter_async_context(beside(*(() if log is None else (log.soon,))))
            await stack.enter_async_context(within or nullcontext())
            told = await stack.enter_async_context(settling(server, settled))
            await stack.enter_async_context(_watched(server, how, reread))
            # What is loaded by now is exempt from garbage collection: the collector would scan it again and
            # again.
            gc.freeze()
            gc.enable()
            give_back_large_blocks()
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
    from mcp_toolset.hub.reload import watching

    return watching(server, tell=reread) if reread else watching(server)


def _bound(server: ToolsetServer, how: Serving) -> AbstractContextManager[socket]:
    from mcp_toolset.transports.http.app import bound_socket
    from mcp_toolset.transports.http.arrival import check_address

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


def server_of(target: Served, **given: Any) -> ToolsetServer:
    """The server that `serve` would run, with these arguments of `ToolsetServer`."""
    if isinstance(target, ToolsetServer):
        if names := [key for key, value in given.items() if value and key not in marked("served")]:
            raise DefinitionError(
                f"serve() got a ToolsetServer; give {names[0]}= to ToolsetServer(…) instead"
            )
        return target
    if isinstance(target, str | PathLike):
        from mcp_toolset.config import load_config
        from mcp_toolset.hub.toolset import load_toolset

        config = load_config(cast("str | PathLike[str]", target))
        toolset = load_toolset(config)
        named: dict[str, Any] = {"name": config.name, "client_prefix": config.client_prefix}
    else:
        toolset = cast("Toolset[Any]", target) if isinstance(target, Toolset) else Toolset(target)
        named = {"name": toolset.name or "mcp-toolset"}
    given.update((key, value) for key, value in named.items() if value and given.get(key) is None)
    return ToolsetServer(toolset, **given)
