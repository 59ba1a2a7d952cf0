"""`mount` and `opened`: from a target to an open `ToolsetServer`; every command reaches tools this way.

What reads configurations and what reaches servers is imported for the targets that need it: a Python program
with tools of its own starts in two thirds of the time without them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import click

from mcp_toolset._index import marked, part
from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.cli.credentials import Headers
from mcp_toolset.cli.display.servers import complain_of, opening, reachable, require_something, warn_of_keys
from mcp_toolset.cli.program import load
from mcp_toolset.cli.target import Command, ConfigFile, Module, Program, Target, Url, default_name
from mcp_toolset.errors import TargetError
from mcp_toolset.extending.finding import served_keywords
from mcp_toolset.server.server import ToolsetServer
from mcp_toolset.tools.binding.binding import DEFERRED_CATALOG
from mcp_toolset.tools.core.source import ToolSource
from mcp_toolset.tools.declare.function import Tool
from mcp_toolset.tools.toolsets.toolset import Toolset, Transformed
from mcp_toolset.tools.view.view import ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.config import HubConfig, ServerConfig
    from mcp_toolset.extending.finding import Keywords
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.upstream.toolset import RemoteToolset
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import anyio

from mcp_toolset.concurrency.signals import run_until_signal

__all__ = [
    "MountOptions",
    "mount",
    "mount_config",
    "opened",
    "own_bindings",
    "visible_bindings",
    "without_fixed",
    "run",
    "run_on",
]

_Result = TypeVar("_Result")

LOCK_HERE: Final = "mcp-toolset.lock.json"
"""The default lock file of servers that are given by their address or command."""

_OF_THE_SHELL: Final = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})
"""Variables of the shell's own."""


@dataclass(frozen=True, slots=True)
class MountOptions:
    """The options of the command line that concern the mounted target.

    Attributes:
        deferred: Whether mounted tools are behind search or listed; None leaves the target's own setting.
        timeout: Seconds for connecting and for each call; None leaves the defaults.
        name: The server's name; None leaves the target's own.
        grants: Issues and checks the grants of deferred tools; None leaves the target's own.
        client_prefix: What clients put before every name; None leaves the target's own.
        state: The file that keeps names and membership; None leaves the target's own.
        lock: The lock file; None means next to the configuration, or in this folder.
        afresh: Whether catalogs of the last run are left aside; those of this run are kept in any case.
        headers: Sent to the target's URL.
        serves: Whether it is opened for clients, and not to look at it.
        shared: What the server shares with its replicas; None leaves the target's own.
        extensions: Extensions by their key; None leaves the target's own, False means none.
    """

    deferred: bool | None = None
    timeout: float | None = None
    name: str | None = None
    grants: GrantLedger | None = None
    client_prefix: str | None = None
    state: str | None = None
    lock: Path | None = None
    afresh: bool = False
    headers: Headers = field(default=(), repr=False)
    serves: bool = False
    shared: SharedState | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def looking(self) -> MountOptions:
        """The options of a command that shows the present answers of servers, beside one that may serve.

        No kept catalog is used; what servers list now is kept. Calls are recorded by the running server.
        """
        off = dict.fromkeys(marked("stays"), False)
        return replace(self, afresh=True, extensions={**self.extensions, **off})


def mount(target: Target, options: MountOptions, *, serving: bool = False) -> ToolsetServer:
    """A server for the target, not opened yet.

    A file that a bridge above this process serves may be inspected, but not served again (`serving`).
    """
    if options.headers and not isinstance(target, Url):
        raise click.UsageError(
            "--header and --token-env are for a URL; in a configuration, write headers into its entry; to "
            "accept a token from clients over HTTP, use --auth-token-env with --transport http"
        )
    match target:
        case ConfigFile():
            return _configured(target, options, serving=serving)
        case Module() | Program():
            return _served(load(target, is_mountable), target, options)
        case Url():
            name = default_name(target.url)
            mounted = _remote(
                target.url, name, options, _address(target.url), **_credentials(target, options)
            )
            return _server(mounted, name, options)
        case Command():
            name = default_name(None, target.argv)
            mounted = _remote(target.argv, name, options, name, env=_environment())
            return _server(mounted, name, options)


def mount_config(config: HubConfig, options: MountOptions) -> ToolsetServer:
    """A server for a configuration that is in no file; see `mount`."""
    from mcp_toolset.hub.toolset import ConfiguredToolset

    config = _with_timeout(config, options.timeout)
    return _server(ConfiguredToolset(config, read=lambda: config), config.name, options)


def _configured(target: ConfigFile, options: MountOptions, *, serving: bool) -> ToolsetServer:
    from mcp_toolset.hub.toolset import ConfiguredToolset, toolset_from_config

    read = partial(_read, target, options)
    config = read()
    made = toolset_from_config if serving else ConfiguredToolset
    toolset = made(config, read=read)
    return _server(toolset, config.name, replace(options, client_prefix=config.client_prefix))


def _remote(target: Any, name: str, options: MountOptions, pinned: str, **more: Any) -> RemoteToolset:
    """One server, held against the lock file's entry of the name `pinned`."""
    from mcp_toolset.catalog.pins.lockfile import LockFile
    from mcp_toolset.upstream.toolset import RemoteToolset

    entry = LockFile(options.lock or Path(LOCK_HERE)).entry(pinned)
    return RemoteToolset(target, name=name, lock=entry, **_times(options.timeout), **more)


def _credentials(target: Url, options: MountOptions) -> dict[str, Any]:
    """The headers of the command line, and unless they have credentials the tokens of a login."""
    from mcp_toolset.config.server_auth import OAuth

    headers = dict(options.headers)
    if any(name.lower() == "authorization" for name in headers):
        return {"headers": headers}
    return {"headers": headers, "auth": OAuth() if part("access") else None}


def _address(url: str) -> str:
    """The name under which an unnamed server is pinned: its address, without parts that may be secret."""
    from mcp_toolset.upstream.secrets import may_hold_a_token

    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    origin = f"{parts.scheme}://{parts.hostname or ''}{port}"
    if not may_hold_a_token(parts.path):
        return origin + parts.path
    return f"{origin}/…{hashlib.sha256(parts.path.encode()).hexdigest()[:12]}"


@asynccontextmanager
async def opened(
    target: Target, options: MountOptions, *, reasons: bool = True
) -> AsyncGenerator[ToolsetServer]:
    """The target's server with all its mounts opened; writes a line to stderr for each server that is down.

    Args:
        target: What to open.
        options: How.
        reasons: Whether to say why a server is down; otherwise the command does.
    """
    from mcp_toolset.cli.completion.seen import remember
    from mcp_toolset.cli.logs import logging_of

    server = mount(target, options.looking)
    async with AsyncExitStack() as stack:
        stack.enter_context(logging_of(server, target))
        with opening(server):
            await stack.enter_async_context(server)
            await server.settled()
        warn_of_keys(server)
        complain_of(str(one) for one in server.unbound() if one.is_settled)
        if reasons or not reachable(server):
            require_something(server)
        remember(target, server)
        yield server


def is_mountable(value: object) -> bool:
    """Whether a Python value can be served without conversion."""
    if isinstance(value, list | tuple):
        items = cast("list[object] | tuple[object, ...]", value)
        return bool(items) and all(isinstance(item, Tool | Toolset) for item in items)
    return isinstance(value, Tool | Toolset | ToolsetServer) or _is_sdk_server(value)


def _is_sdk_server(value: object) -> bool:
    if isinstance(value, Tool):
        return False
    from mcp_toolset.upstream.target import sdk_server

    return sdk_server(value) is not None


def _served(value: Any, target: Module | Program, options: MountOptions) -> ToolsetServer:
    if isinstance(value, ToolsetServer):
        return _adapted(value, options)
    name = default_name(str(target))
    if isinstance(value, Toolset):
        toolset = cast("Toolset", value)
        return _server(toolset, toolset.name or name, options)
    if isinstance(value, list | tuple):
        return _server(Toolset(*cast("list[Any]", value), name=name), name, options)
    if _is_sdk_server(value):
        from mcp_toolset.upstream.toolset import RemoteToolset

        return _server(RemoteToolset(value, name=name, **_times(options.timeout)), name, options)
    if callable(value) and not isinstance(value, type):
        return _server(Toolset(value, name=name), name, options)
    raise TargetError(
        f"{target}: cannot serve a value of type {type(value).__name__}; "
        "name a tool, function, toolset or server"
    )


def _adapted(server: ToolsetServer, options: MountOptions) -> ToolsetServer:
    made = _with_options(server, options)
    if not options.serves:
        made.extensions.leave_served()
    return made


def _with_options(server: ToolsetServer, options: MountOptions) -> ToolsetServer:
    has = server.extensions.get
    said = {key: one for key, one in options.extensions.items() if one or (one is False and has(key))}
    plain = replace(options, timeout=None, afresh=False, serves=False, extensions=said)
    if plain == MountOptions():
        return server
    return server.derived(
        toolset=_settled(server.toolset, options.deferred),
        name=options.name,
        grants=options.grants,
        client_prefix=options.client_prefix,
        state=options.state,
        shared=options.shared,
        **cast("Keywords", options.extensions),
    )


def _server(toolset: Toolset, name: str, options: MountOptions) -> ToolsetServer:
    made = ToolsetServer(
        _settled(toolset, options.deferred),
        name=options.name or name,
        grants=options.grants,
        client_prefix=options.client_prefix or "",
        state=options.state,
        **cast("Keywords", {**served_keywords(options.serves), **options.extensions}),
        shared=options.shared,
    )
    if options.afresh:
        made.use_nothing_kept()
    return made


def _settled(toolset: Toolset, deferred: bool | None) -> Toolset:
    return toolset if deferred is None or not toolset.sources() else _Deferral(toolset, deferred)


class _Deferral(Transformed):
    """A toolset with all its mounts behind search, or all listed."""

    def __init__(self, inner: Toolset, deferred: bool) -> None:
        def settle(binding: ToolBinding) -> ToolBinding:
            return replace(binding, deferred=deferred) if binding.source else binding

        super().__init__(inner, settle, defers=deferred)

    def listing_sources(self) -> list[ToolSource]:
        """Defer all tools or none, whatever the toolset itself says."""
        return [] if self._defers else self.sources()

    @property
    def defers(self) -> bool:
        """Whether the command line asks to defer, whatever the toolset itself says."""
        return self._defers


def _times(timeout: float | None) -> dict[str, Any]:
    from mcp_toolset.upstream.toolset import DEFAULT_START_TIMEOUT, DEFAULT_TIMEOUT

    return {"timeout": timeout or DEFAULT_TIMEOUT, "start_timeout": timeout or DEFAULT_START_TIMEOUT}


def _read(target: ConfigFile, options: MountOptions) -> HubConfig:
    """The file's configuration read again, with the options of the command line, which take precedence."""
    from mcp_toolset.config import load_config

    config = _with_timeout(load_config(target.path), options.timeout)
    said = {"name": options.name, "client_prefix": options.client_prefix, "lock": options.lock}
    return replace(config, **{key: value for key, value in said.items() if value is not None})


def _with_timeout(config: HubConfig, timeout: float | None) -> HubConfig:
    if timeout is None:
        return config

    def timed(server: ServerConfig) -> ServerConfig:
        return replace(server, timeout=timeout, start_timeout=timeout)

    return replace(config, servers=tuple(map(timed, config.servers)))


def _environment() -> dict[str, str]:
    """The variables that the person at the command line has set: the command that they name may use them."""
    from mcp_toolset.transports.stdio_client import INHERITED_VARIABLES

    # Those that every child process gets, and the shell's own, are not secret, so messages may show them.
    passed_anyway = {*INHERITED_VARIABLES, *_OF_THE_SHELL}
    return {name: value for name, value in os.environ.items() if name not in passed_anyway}


def visible_bindings(server: ToolsetServer) -> list[ToolBinding]:
    """Every tool that exists for a caller without a name: the person at the command line."""
    policy = server.policy
    return [one for one in server.bindings() if policy is None or policy.decide(one, None).kind != "deny"]


def own_bindings(server: ToolsetServer) -> list[ToolBinding]:
    """Of these, those that do more than search and grant."""
    return without_fixed(visible_bindings(server))


def without_fixed(bindings: Iterable[ToolBinding]) -> list[ToolBinding]:
    """The tools but for those that only search and grant."""
    return [binding for binding in bindings if binding.place != DEFERRED_CATALOG]


def run(work: Callable[[], Awaitable[_Result]]) -> _Result:
    """The result of `work`."""
    results: list[_Result] = []

    async def keep() -> None:
        results.append(await work())

    anyio.run(run_until_signal, keep)
    if not results:
        raise KeyboardInterrupt
    return results[0]


def run_on(
    target: Target, options: MountOptions, work: Callable[[ToolsetServer], Awaitable[_Result]]
) -> _Result:
    """The result of `work` with the open server of a target; raises as `opened` and `run` do."""

    async def working() -> _Result:
        async with opened(target, options) as server:
            return await work(server)

    return run(working)
