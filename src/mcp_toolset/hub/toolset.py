"""`load_toolset`: every server of an `mcpServers` file, each a `Mount`, as one toolset."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from mcp_toolset._index import marked, mend
from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.pins.lockfile import LockFile, lock_beside
from mcp_toolset.catalog.pins.policy import PinPolicy
from mcp_toolset.config import chain, load_config
from mcp_toolset.config.jsonc import Place
from mcp_toolset.config.loops import check_no_loop
from mcp_toolset.config.models import HubConfig, ServerConfig
from mcp_toolset.errors import ConfigError, DefinitionError, NameConflictError, ToolsetError
from mcp_toolset.extending.extension import find
from mcp_toolset.extending.mounts import keywords_of, target_of
from mcp_toolset.security.patterns import Permissions
from mcp_toolset.server.mounts import Reload, Reloadable
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import (
    FIXED_TOOLS,
    ToolDefinition,
    check_public_name,
    mounted_name,
    plain_prefix,
    prefix_from,
    public_name,
    qualified,
)
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import SourceStatus, ToolSource
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset, Transformed
from mcp_toolset.tools.view import Each, ToolBinding
from mcp_toolset.upstream.resting import StartOptions
from mcp_toolset.upstream.routing import TASK_TIMEOUT
from mcp_toolset.upstream.secrets import Secrets
from mcp_toolset.upstream.toolset import DEFAULT_START_TIMEOUT, DEFAULT_TIMEOUT, RemoteToolset

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from mcp_toolset.security.authenticator import Authenticator
    from mcp_toolset.shared.state import SharedState


_log = logging.getLogger("mcp_toolset.hub")


@dataclass(eq=False, slots=True)
class Mount:
    """One server of a configuration and its current mount."""

    config: ServerConfig  # the entry that it was started with
    remote: RemoteToolset  # its tools
    successor: Mount | None = None  # the mount that has replaced it, if any

    def serves(self, server: ServerConfig) -> bool:
        """True if its connection is the one that an entry configures."""
        return self.config.reached() == server.reached()

    def remember(self, before: Mount) -> None:
        """Take over the pins and lists of another connection, if it leads to the same address or command."""
        mine, other = self.remote.connection, before.remote.connection
        if mine.link.identity == other.link.identity:
            mine.tools.pins.remember(other.tools.pins)

    def call(self, definition: ToolDefinition, call: ToolCall, context: ToolContext) -> Awaitable[ToolResult]:
        """Call a tool over the current connection, whichever connection listed it."""
        if self.successor is not None:
            return self.successor.call(definition, call, context)
        return self.remote.connection.call(definition, call, context)


def enabled(config: HubConfig) -> list[ServerConfig]:
    """The servers to mount, in the order of the file: neither disabled nor misconfigured."""
    return [server for server in config.servers if not server.disabled and not server.fault]


def lock_of(config: HubConfig) -> LockFile:
    return LockFile(lock_path(config))


def check_lock(config: HubConfig) -> None:
    """Refuse a configuration whose lock file is not there, or is none; see `LockFile`."""
    try:
        found = lock_of(config)
    except ConfigError as fault:
        raise ConfigError(f"{config.path}: toolset.lock: {fault}", steps=("toolset", "lock")) from None
    if config.lock is not None and not found.exists:
        raise Place(str(config.path), ("toolset", "lock")).error(
            f"there is no file {config.lock.name}, so nothing is pinned",
            f"make it with `mcp-toolset pin {shlex.quote(config.path.name)}`",
        )


def unpinned(config: HubConfig, lock: LockFile) -> list[str]:
    """A warning for each server that the lock file of a configuration does not have, as after a rename."""
    if not lock.exists:
        return _beside(config) if config.lock is None else []
    name = shlex.quote(config.path.name)
    return [
        f"{config.path}: {lock.path.name} has no pins of the server {server.name!r}, which is served as "
        f"without a lock file; accept it with `mcp-toolset pin {name} --accept {shlex.quote(server.name)}`"
        for server in enabled(config)
        if server.name not in lock.servers()
    ]


def _beside(config: HubConfig) -> list[str]:
    """A warning for each lock file of these servers whose own configuration is gone, as after a rename."""
    found: list[str] = []
    for path in sorted(config.path.parent.glob("*.lock.json")):
        stem = path.name.removesuffix(".lock.json")
        if any(path.with_name(stem + end).exists() for end in (".json", ".jsonc")):
            continue
        try:
            names = [one.name for one in enabled(config) if one.name in LockFile(path).servers()]
        except ConfigError:
            continue
        if names:
            found.append(
                f"{config.path}: {path.name} has pins of {', '.join(names)}, which are not read here: rename "
                f'it to {lock_path(config).name}, or write "lock": "{path.name}" into the section `toolset`'
            )
    return found


def lock_path(config: HubConfig) -> Path:
    """The path of a configuration's lock file, which need not exist."""
    return config.lock or lock_beside(config.path)


def shaped(config: HubConfig, mounts: Mapping[str, Mount]) -> list[Toolset]:
    """The servers as the configuration filters, names and defers them, misconfigured ones included."""
    names = FileNames(str(config.path))
    for server in enabled(config):
        names.add(server)
    chosen = names.chosen
    return [
        Misconfigured(server.name, server.fault)
        if server.fault
        else _shaped(server, mounts[server.name], names.prefixes[server.name], chosen)
        for server in config.servers
        if not server.disabled
    ]


def judged(config: HubConfig, mount: Callable[[ServerConfig], object]) -> HubConfig:
    """The configuration with a `fault` at every server that cannot be mounted, or conflicts with another."""
    names = FileNames(str(config.path))

    def judge(server: ServerConfig) -> ServerConfig:
        if server.disabled or server.fault:
            return server
        try:
            _check_folder(server, config.path)
            check_no_loop(server, config.path)
            _check_alone(server, config)
            mount(server)
            names.add(server)
        except ToolsetError as fault:
            told = Secrets.of(server.secrets).scrubbed(str(fault))
            return replace(server, fault=told if str(config.path) in told else f"{config.path}: {told}")
        return server

    return replace(config, servers=tuple(map(judge, config.servers)))


def _check_alone(server: ServerConfig, config: HubConfig) -> None:
    if server.unlisted == "pass" and (len(enabled(config)) > 1 or config.permissions):
        raise ConfigError(
            f'{config.path}: server {server.name!r}: `unlisted` is "pass", which is for the only server of a '
            "file without `permissions`; disable the other servers and remove `permissions`, or leave it out"
        )


def _check_folder(server: ServerConfig, path: Path) -> None:
    if server.cwd is not None and not Path(server.cwd).is_dir():
        raise ConfigError(
            f"{path}: server {server.name!r}: `cwd` names a folder that does not exist; "
            "create it or correct `cwd`"
        )


class _Named(Transformed):
    """One server's tools under the names of the file, called over the server's current mount.

    A name for a missing tool is reported.
    """

    def __init__(
        self, inner: Toolset, mount: Mount, server: ServerConfig, prefix: str, chosen: frozenset[str]
    ) -> None:
        """Name the tools of `inner`, those that the filter left; `chosen` are the names of the whole file."""
        self._served = mount.remote
        self._mount = mount
        self._server = server
        self._prefix = prefix
        self._chosen = chosen
        self._told = frozenset[str]()
        super().__init__(inner, Each(self._called))

    def _called(self, binding: ToolBinding) -> ToolBinding:
        tool = binding.definition.name
        return binding.called(self._name(tool), partial(self._mount.call, binding.definition))

    def _name(self, tool: str) -> str:
        if tool in self._server.names:
            return self._server.names[tool]
        name = mounted_name(self._prefix, tool) if self._prefix else public_name(tool)
        # A name that the file gives to another tool belongs to that tool, whether the server lists it or not.
        return qualified(name, f"{self._server.name}\n{tool}") if name in self._chosen else name

    def compiled(self, turn: object) -> list[ToolBinding]:
        found = dict(self._unused())
        for tool in sorted(found.keys() - self._told):
            _log.warning("%s/%s: %s", self._server.name, in_log(tool), in_log(found[tool]))
        self._told = frozenset(found)
        return super().compiled(turn)

    def set_aside(self) -> list[tuple[str, str]]:
        """Names in the file for tools that are filtered out or that the server does not list."""
        return [*super().set_aside(), *self._unused()]

    def _unused(self) -> list[tuple[str, str]]:
        if not self._server.names or any(not source.status.is_up for source in self.sources()):
            return []
        known = {binding.definition.name for binding in self._served.bindings()}
        known.update(name for source in self.sources() for name, _ in source.status.set_aside)
        reason = "`names` calls it {!r}, but server {!r} lists no such tool; mend the key or remove it"
        return [
            (tool, reason.format(name, self._server.name))
            for tool, name in self._server.names.items()
            if tool not in known
        ]


def _shaped(server: ServerConfig, mount: Mount, prefix: str, chosen: frozenset[str]) -> Toolset:
    tools: Toolset = mount.remote
    if server.include or server.exclude:
        tools = tools.filtered(include=server.include or ("*",), exclude=server.exclude)
    tools = _Named(tools, mount, server, prefix, chosen)
    for key, stated in server.extensions.items():
        if (kind := find(key)) is not None:
            tools = kind.mounted(server.name, stated, tools)
    return tools.deferred() if server.deferred else tools


@dataclass(slots=True)
class FileNames:
    """The prefixes and names that the servers of one file use."""

    path: str  # the file, for errors
    prefixes: dict[str, str] = field(default_factory=dict[str, str])
    _prefixed: dict[str, str] = field(default_factory=dict[str, str])
    _owners: dict[str, str] = field(
        default_factory=lambda: dict.fromkeys(FIXED_TOOLS, "the deferred catalog")
    )

    @property
    def chosen(self) -> frozenset[str]:
        return frozenset(self._owners) - set(FIXED_TOOLS)

    def add(self, server: ServerConfig) -> None:
        prefix = "" if server.prefix is False else self._prefix(server)
        owners = dict(self._owners)
        for tool, name in server.names.items():
            place = f"{tool!r} of server {server.name!r}"
            check_public_name(name, f"{self.path}: {place}")
            if owners.setdefault(name, place) != place:
                raise NameConflictError(
                    f"{self.path}: {owners[name]} and {place} are both to be named {name!r}; "
                    "rename one of them"
                )
        self._owners = owners
        self.prefixes[server.name] = prefix
        self._prefixed[prefix] = server.name

    def _prefix(self, server: ServerConfig) -> str:
        prefix = self._written_prefix(server) if server.prefix else prefix_from(server.name)
        other = self._prefixed.get(prefix)
        if prefix and other is not None:
            raise NameConflictError(
                f"{self.path}: servers {other!r} and {server.name!r} have the same prefix {prefix!r}; "
                "give one of them another `prefix`"
            )
        return prefix

    def _written_prefix(self, server: ServerConfig) -> str:
        try:
            return plain_prefix(str(server.prefix))
        except DefinitionError as fault:
            raise DefinitionError(f"{self.path}: server {server.name!r}: {fault}") from None


def mounted(server: ServerConfig, lock: LockFile | None, path: Path | None = None) -> RemoteToolset:
    """The tools of one server of the file at `path`, not opened yet.

    Without lock file and path, only whether the server can be mounted is checked.
    """
    named = [server.command or "", *server.args] if server.url is None else server.url
    return RemoteToolset(
        target_of(server.extensions) or named,
        name=server.name,
        transport=server.transport,
        headers=server.headers,
        env={**server.env, **(chain.below(path) if path else {})},
        cwd=server.cwd,
        timeout=server.timeout or DEFAULT_TIMEOUT,
        start_timeout=server.start_timeout or DEFAULT_START_TIMEOUT,
        start=server.start,
        idle_timeout=server.idle_timeout,
        task_timeout=TASK_TIMEOUT if server.task_timeout is None else server.task_timeout,
        pins=policy_of(server),
        lock=None if lock is None else lock.entry(server.name),
        sessions=server.sessions,
        declare=server.declare,
        protocol=server.protocol,
        hidden=server.secrets,
        eras=server.eras,
        arguments=server.arguments,
        egress=server.egress,
        unlisted=server.unlisted,
        login=f"{mend('login')} {shlex.quote(server.name)}",
        **keywords_of(server.extensions),
    )


def policy_of(server: ServerConfig) -> PinPolicy:
    """The entry's policy about definitions that change or contain hidden text."""
    return PinPolicy(server.pins, server.new_tools, server.hidden_text)


def settle(mount: Mount, server: ServerConfig, lock: LockFile) -> None:
    """Apply an entry that differs only in settings that need no other connection to a running mount."""
    mount.remote.connection.settle(
        timeout=server.timeout or DEFAULT_TIMEOUT,
        start_timeout=server.start_timeout or DEFAULT_START_TIMEOUT,
        starts=StartOptions(server.start, server.idle_timeout),
        policy=policy_of(server),
        lock=lock.entry(server.name),
        stated=server.extensions,
    )


class Misconfigured(Toolset):
    """A mount without tools whose status says what is wrong with the entry and how to correct it."""

    def __init__(self, name: str, reason: str) -> None:
        """Show `reason` as the status of the server `name`."""
        super().__init__(name=name)
        self.source_name = name
        self.status = SourceStatus("misconfigured", reason)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Never called: a new configuration replaces this object."""
        return lambda: None

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        return iter(())

    def sources(self) -> list[ToolSource]:
        return [self]

    def bindings(self) -> list[ToolBinding]:
        return []


_auth_log = logging.getLogger("mcp_toolset.auth")


class ConfiguredToolset(Toolset, Reloadable):
    """The servers of a configuration; `ToolsetServer.reload` replaces them.

    Attributes:
        config: The current configuration.
        mounts: The mounts by the names of their servers, in the order of the file.
        accept: Asked about each later configuration; what it raises keeps the present one.
        shared: The state of all replicas of the server; `None` without replicas.
    """

    def __init__(self, config: HubConfig, read: Callable[[], HubConfig]) -> None:
        """Mount every server of `config` that is not disabled; see `load_toolset`."""
        lock = lock_of(config)
        self._warned = frozenset[str]()
        self._warn(unpinned(config, lock))
        # The authenticator, once a server has asked for it: it stays, and takes over other rules.
        self._made: Authenticator | None = None
        self._made_of: tuple[HubConfig | None, object] = (None, None)  # the configuration, and its rules
        self._knows_callers = True
        self.accept: Callable[[HubConfig], None] = lambda config: None
        self.shared: SharedState | None = None
        self.read = lambda: self._judged(read())
        remotes: dict[str, RemoteToolset] = {}
        self.config = self._judged(
            config, lambda one: remotes.update({one.name: mounted(one, lock, config.path)})
        )
        for server in self.config.misconfigured:
            extra = {"server": server.name, "kept_level": logging.WARNING}
            _log.info("%s is misconfigured: %s", server.name, server.fault, extra=extra)
        self.mounts = {one.name: Mount(one, remotes[one.name]) for one in enabled(self.config)}
        super().__init__(name=config.name)
        self._members = tuple(shaped(self.config, self.mounts))

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        """Raise `DefinitionError`: the servers alone are without what the file says for all of them."""
        raise DefinitionError(
            f"the members of {self.config.path} are without its permissions and other rules: give the "
            "toolset itself, Toolset(tools), or look at tools.bindings()"
        )

    def _inside(self) -> Iterator[Tool[..., Any] | Toolset]:
        return iter(self._members)

    def _judged(self, config: HubConfig, mount: Callable[[ServerConfig], object] | None = None) -> HubConfig:
        self._warn(config.warnings)
        return judged(config, mount or partial(mounted, lock=None))

    def _warn(self, warnings: Collection[str]) -> None:
        """Log each warning once."""
        for warning in warnings:
            if warning not in self._warned:
                _log.warning("%s", warning)
        self._warned |= frozenset(warnings)

    def passing(self) -> RemoteToolset | None:
        """The only server, if its entry says `"unlisted": "pass"`; see docs/adopting.md."""
        return next((mount.remote.passing() for mount in self.mounts.values()), None)

    def _require_served(self) -> None:
        config = self.config
        stated = ["permissions"] if config.permissions else []
        said = {key for key, one in config.extensions.items() if one not in (None, config.callers)}
        said |= {key for one in config.servers for key in one.extensions} & {*marked("adds")}
        stated += (key for key in marked("protects") if key in said)
        if stated:
            raise DefinitionError(
                f"{config.path} has {', '.join(stated)}, which hold where a server serves its tools: give "
                "the toolset to ToolsetServer(…) and call server.call_tool(…), or load a file without "
                "them and give the rules to the loop"
            )

    @property
    def grows(self) -> bool:
        return True

    @property
    def stated_permissions(self) -> Permissions:
        """The permissions of callers; see `server.mounts.permissions_in`."""
        return self.config.permissions

    def wanted(self, config: HubConfig | None) -> HubConfig:
        """A configuration to replace this one, the given one or the file read again, with its faults."""
        wanted = self.read() if config is None else self._judged(config)
        check_lock(wanted)
        if not self._knows_callers:
            wanted.check_callers()
        self.accept(wanted)
        if wanted.callers is not None and self._made is not None:
            wanted.callers.rules().authenticator()
        return wanted

    def rely_on_callers(self, known: bool) -> None:
        """Refuse rules for some callers, now and at each reload, if nothing but `auth` says who calls."""
        self._knows_callers = known
        if not known:
            self.config.check_callers()

    def share(self, shared: SharedState) -> None:
        """Take what the replicas of the server share, for the mounts of today and of later."""
        self.shared = shared
        for mount in self.mounts.values():
            mount.remote.share(shared)

    def put(self, config: HubConfig, mounts: Mapping[str, Mount]) -> None:
        """Serve this configuration from the next compilation on."""
        self._members = tuple(shaped(config, mounts))
        self.config, self.mounts = config, dict(mounts)
        self._warn(unpinned(config, lock_of(config)))
        if self._made is not None:
            self.authenticator()

    def authenticator(self) -> Authenticator | None:
        """The authenticator of the configuration; a removed section stays in force until the next start."""
        config, (made_of, known) = self.config, self._made_of
        if config is made_of:
            return self._made
        if config.callers is not None:
            rules = config.callers.rules()
            if rules != known:
                made, known = rules.authenticator(), rules
                if self._made is None:
                    self._made = made
                else:
                    self._made.become(made)
        elif made_of is not None and made_of.callers is not None:
            _auth_log.warning(
                "the section `auth` was removed; it stays in force until the server is restarted"
            )
        self._made_of = (config, known)
        return self._made

    def watched(self) -> list[Path]:
        """The configuration file, its lock file, and the files of environments and secrets that it names."""
        files = (server.env_file for server in enabled(self.config))
        own = (file for file in files if file is not None)
        return [self.config.path, lock_path(self.config), *own, *self.config.references.files]

    def reloads(
        self,
        *,
        sources: Callable[[], Mapping[str, ToolSource]],
        changed: Callable[[], None],
        rebuild: Callable[[], Awaitable[None]],
    ) -> AbstractAsyncContextManager[Reload]:
        """Allow reloads of this configuration for the length of a block; see `Reloads`."""
        from mcp_toolset.hub.reload import Reloads

        return Reloads(self, sources=sources, changed=changed, rebuild=rebuild).running()


def load_toolset(
    config: HubConfig | str | PathLike[str], *, read: Callable[[], HubConfig] | None = None
) -> ConfiguredToolset:
    """Mount every enabled server of a configuration: filtered, named and deferred as the file says.

    A server whose entry cannot be used has the status `misconfigured` with the reason; all others are served.

    A server's tools carry its name as a prefix unless the file gives another prefix, or `false` for no
    prefix; `names` in the file names single tools. The name of a tool depends on its server and on the
    file, not on other servers; see `mounted_name`.

    Args:
        config: The configuration, or the path of its file.
        read: Reads the configuration again for `ToolsetServer.reload`; by default from the same file.

    Raises:
        ConfigError: the file cannot be used, a bridge that started this one serves it already, or its lock
            file is broken or has another format.
    """
    found = config if isinstance(config, HubConfig) else load_config(config)
    chain.check_not_served_above(found.path)
    check_lock(found)
    return ConfiguredToolset(found, read or partial(load_config, found.path, vault=found.references.vault))
