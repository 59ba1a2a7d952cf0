"""`toolset_from_config`: every server of an `mcpServers` file, mounted as one toolset."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_toolset.config import HubConfig, ServerConfig, chain, load_config
from mcp_toolset.hub.mounts import (
    Mount,
    check_lock,
    enabled,
    judged,
    lock_of,
    lock_path,
    mounted,
    shaped,
    unpinned,
)
from mcp_toolset.security.policy.patterns import Permissions
from mcp_toolset.security.secrets.vault import Vault
from mcp_toolset.server.mounts import Reloading
from mcp_toolset.tools.source import ToolSource
from mcp_toolset.tools.toolset import Toolset

if TYPE_CHECKING:
    from mcp_toolset.context.shared import Shared
    from mcp_toolset.security.authenticator import Authenticator
    from mcp_toolset.upstream.toolset import RemoteToolset

_log = logging.getLogger("mcp_toolset.hub")
_auth_log = logging.getLogger("mcp_toolset.auth")


class _Authentication:
    """Who may call, as a configuration says that may be reloaded.

    Attributes:
        made: The authenticator, once a server has asked for it: it stays, and takes over other rules.
    """

    def __init__(self) -> None:
        self.made: Authenticator | None = None
        self._of: HubConfig | None = None
        self._rules: object = None

    def of(self, config: HubConfig) -> Authenticator | None:
        """The authenticator of a configuration; what was removed holds until the server starts again."""
        if config is self._of:
            return self.made
        callers, before = config.callers, self._of and self._of.callers
        if callers is not None:
            rules = callers.rules()
            if rules != self._rules:
                made = rules.authenticator()
                if self.made is None:
                    self.made = made
                else:
                    self.made.become(made)
                self._rules = rules
        elif before is not None:
            _auth_log.warning(
                "the section `auth` was removed; it stays in force until the server is restarted"
            )
        self._of = config
        return self.made


class ConfiguredToolset(Toolset):
    """The servers of a configuration; `ToolsetServer.reload` replaces them.

    Attributes:
        config: The current configuration.
        mounts: The mounts by the names of their servers, in the order of the file.
        shared: What the replicas of the server share; `None` without replicas.
    """

    def __init__(self, config: HubConfig, read: Callable[[], HubConfig]) -> None:
        """Mount every server of `config` that is not disabled; see `toolset_from_config`."""
        lock = lock_of(config)
        self._warned = frozenset[str]()
        self._warn(unpinned(config, lock))
        self._authentication = _Authentication()
        self._knows_callers = True
        self.shared: Shared | None = None
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

    @property
    def stated_permissions(self) -> Permissions:
        """Who may use which tools; see `server.visibility.Permitting`."""
        return self.config.permissions

    def wanted(self, config: HubConfig | None) -> HubConfig:
        """A configuration to replace this one, the given one or the file read again, with its faults."""
        wanted = self.read() if config is None else self._judged(config)
        check_lock(wanted)
        if not self._knows_callers:
            wanted.check_callers()
        if wanted.callers is not None and self._authentication.made is not None:
            wanted.callers.rules().authenticator()
        return wanted

    def rely_on_callers(self, known: bool) -> None:
        """Refuse rules for some callers, now and at each reload, if nothing but `auth` says who calls."""
        self._knows_callers = known
        if not known:
            self.config.check_callers()

    def share(self, shared: Shared) -> None:
        """Take what the replicas of the server share, for the mounts of today and of later."""
        self.shared = shared
        for mount in self.mounts.values():
            mount.remote.share(shared)

    def put(self, config: HubConfig, mounts: Mapping[str, Mount]) -> None:
        """Serve this configuration from the next compilation on."""
        self._members = tuple(shaped(config, mounts))
        self.config, self.mounts = config, dict(mounts)
        self._warn(unpinned(config, lock_of(config)))
        if self._authentication.made is not None:
            self.authenticator()

    def authenticator(self) -> Authenticator | None:
        """Who may call, as the configuration says; `None` if it does not say."""
        return self._authentication.of(self.config)

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
    ) -> Reloading:
        """What reloads this configuration within a server; see `Reloads`."""
        from mcp_toolset.hub.reload import Reloads

        return Reloads(self, sources=sources, changed=changed, rebuild=rebuild)


def toolset_from_config(
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
    return ConfiguredToolset(found, read or partial(load_config, found.path, vault=Vault()))
