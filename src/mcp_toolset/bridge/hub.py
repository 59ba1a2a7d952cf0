"""From a configuration file to a toolset: every server of an `mcpServers` file, mounted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mcp_toolset.bridge.remote import DEFAULT_START_TIMEOUT, DEFAULT_TIMEOUT, RemoteToolset
from mcp_toolset.catalog.deferred import FIXED_TOOLS
from mcp_toolset.catalog.lockfile import LockFile, lock_beside
from mcp_toolset.catalog.pins import PinPolicy
from mcp_toolset.config import HubConfig, ServerConfig
from mcp_toolset.errors import DefinitionError, NameConflictError
from mcp_toolset.tools.hidden_text import visible
from mcp_toolset.tools.names import (
    check_public_name,
    mounted_name,
    plain_prefix,
    prefix_from,
    public_name,
    qualified,
)
from mcp_toolset.tools.toolset import Toolset, Transformed
from mcp_toolset.tools.view import ToolBinding

_log = logging.getLogger("mcp_toolset.hub")


def toolset_from_config(config: HubConfig) -> Toolset:
    """Mount every server that is not disabled: filtered, named and deferred as the file says (P3).

    A server's tools carry its name as a prefix unless the file gives another one, or `false` for
    none; `names` in the file names single tools. What a tool is called depends on its own server and
    on the file, not on which other servers are up (H23); see `mounted_name`.

    Raises:
        ConfigError: the lock file beside it is broken, or none of ours.
        DefinitionError: a server's target, prefix or name for a tool cannot be used.
        NameConflictError: two servers have one prefix, or two tools are given one name.
    """
    servers = [server for server in config.servers if not server.disabled]
    prefixes = _prefixes(servers, str(config.path))
    chosen = _chosen(servers, str(config.path))
    lock = LockFile(config.lock or lock_beside(config.path))
    mounted = [_mounted(server, prefixes[server.name], chosen, lock) for server in servers]
    return Toolset(*mounted, name=config.name)


@dataclass(frozen=True, slots=True)
class _Names:
    """The step that names one server's tools."""

    server: str
    prefix: str
    own: Mapping[str, str]
    chosen: frozenset[str]

    def __call__(self, binding: ToolBinding) -> ToolBinding:
        tool = binding.definition.name
        if tool in self.own:
            return replace(binding, name=self.own[tool])
        name = mounted_name(self.prefix, tool) if self.prefix else public_name(tool)
        # A name that the file gives to another tool is that one's, whether it is there or not.
        name = qualified(name, f"{self.server}\n{tool}") if name in self.chosen else name
        return replace(binding, name=name)


class _Named(Transformed):
    """One server's tools under the names of the file; a name for a tool that is not there is reported."""

    def __init__(self, inner: Toolset, served: Toolset, names: _Names) -> None:
        """Name what is left `inner` of all that is `served`."""
        self._served = served
        self._names = names
        self._told = frozenset[str]()
        super().__init__(inner, names)

    def compiled(self, turn: object) -> list[ToolBinding]:
        """The bindings under their names."""
        found = dict(self._unused())
        for tool in sorted(found.keys() - self._told):
            _log.warning("%s/%s: %s", self._names.server, visible(tool), found[tool])
        self._told = frozenset(found)
        return super().compiled(turn)

    def set_aside(self) -> list[tuple[str, str]]:
        """What is left out inside, and each tool that has a name in the file and is not there."""
        return [*super().set_aside(), *self._unused()]

    def _unused(self) -> list[tuple[str, str]]:
        if not self._names.own or any(source.status.state != "ready" for source in self.sources()):
            return []
        known = {binding.definition.name for binding in self._served.bindings()}
        known.update(name for source in self.sources() for name, _ in source.status.set_aside)
        reason = "`names` calls it {!r}, but server {!r} lists no such tool; mend the key or remove it"
        return [
            (tool, reason.format(name, self._names.server))
            for tool, name in self._names.own.items()
            if tool not in known
        ]


def _mounted(server: ServerConfig, prefix: str, chosen: frozenset[str], lock: LockFile) -> Toolset:
    tools: Toolset = _remote(server, lock)
    served = tools
    if server.include or server.exclude:
        tools = tools.filtered(include=server.include or ("*",), exclude=server.exclude)
    tools = _Named(tools, served, _Names(server.name, prefix, server.names, chosen))
    return tools.deferred() if server.deferred else tools


def _prefixes(servers: Sequence[ServerConfig], path: str) -> dict[str, str]:
    """The prefix of each server, empty for none; those that there are differ."""
    prefixes: dict[str, str] = {}
    owners: dict[str, str] = {}
    for server in servers:
        prefix = "" if server.prefix is False else _prefix_of(server, path)
        prefixes[server.name] = prefix
        if prefix and owners.setdefault(prefix, server.name) != server.name:
            raise NameConflictError(
                f"{path}: servers {owners[prefix]!r} and {server.name!r} have the same prefix {prefix!r}; "
                "give one of them another `prefix`"
            )
    return prefixes


def _prefix_of(server: ServerConfig, path: str) -> str:
    if not server.prefix:
        return prefix_from(server.name)
    try:
        return plain_prefix(server.prefix)
    except DefinitionError as fault:
        raise DefinitionError(f"{path}: server {server.name!r}: {fault}") from None


def _chosen(servers: Sequence[ServerConfig], path: str) -> frozenset[str]:
    """The names that the file gives to single tools; each to one, and none of the server's own."""
    owners: dict[str, str] = dict.fromkeys(FIXED_TOOLS, "the deferred catalog")
    for server in servers:
        for tool, name in server.names.items():
            place = f"{tool!r} of server {server.name!r}"
            check_public_name(name, f"{path}: {place}")
            if owners.setdefault(name, place) != place:
                raise NameConflictError(
                    f"{path}: {owners[name]} and {place} are both to be named {name!r}; name one otherwise"
                )
    return frozenset(owners) - set(FIXED_TOOLS)


def _remote(server: ServerConfig, lock: LockFile) -> RemoteToolset:
    target = server.url if server.url is not None else [server.command or "", *server.args]
    return RemoteToolset(
        target,
        name=server.name,
        transport=server.transport,
        headers=server.headers,
        env=server.env,
        cwd=server.cwd,
        timeout=server.timeout or DEFAULT_TIMEOUT,
        start_timeout=server.start_timeout or DEFAULT_START_TIMEOUT,
        pins=PinPolicy(server.pins, server.new_tools, server.hidden_text),
        lock=lock.entry(server.name),
        sessions=server.sessions,
        forward_authorization=server.forward_authorization,
    )
