"""`ServerConfig` and `HubConfig`: a configuration after reading, frozen and expanded, for any client."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from mcp_toolset._records import dataclass, replace
from mcp_toolset.config import tables
from mcp_toolset.config.jsonc import Place
from mcp_toolset.security.patterns import Permissions, Section, plain_pattern
from mcp_toolset.security.vault import References

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Callers


PREFIX: Final = re.compile(r"[A-Za-z0-9_-]+")
"""What begins the names of the tools of a server, and joins them with `_`."""


def _no_eras() -> Mapping[str, tables.Era]:
    return MappingProxyType({})


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server. Values that may be secret are omitted by `repr`.

    Every reference of an enabled server is expanded; a disabled server is kept unchanged. A server
    with a `fault` is misconfigured: its status shows the reason, and the other servers work.

    Attributes:
        name: Its key in the file.
        transport: The transport to reach it: stdio, http or sse.
        command: The program to start, for stdio; looked up on PATH when it has no folder.
        args: Its arguments.
        env: Environment variables added to the inherited ones: the environment file, then `env`.
        env_file: The path of the environment file, if the entry names one.
        cwd: The folder it starts in, absolute; None means the folder of this process.
        url: Its address, for http and sse.
        headers: Sent with every request to this server, and to no other.
        disabled: True if the file asks not to start it.
        deferred: True if its tools are found by search instead of listed.
        prefix: The prefix of its tools' names; None leaves it to the hub, False means no prefix.
        names: Public names for single tools, by the server's names for them.
        include: Patterns (`fnmatch`) of the tools to take; empty means all.
        exclude: Patterns of the tools to leave out; wins over `include`.
        timeout: Seconds for one call; None means the default.
        start_timeout: Seconds to start and list tools; None means the default.
        start: When it is started.
        idle_timeout: Seconds without a request after which it is stopped; None means the default.
        task_timeout: Seconds that a client which takes no tasks waits for one; None means the default.
        pins: The action on tools that differ from their pins; None decides by the differences.
        new_tools: The action on tools that a pinned server did not have; None is as `pins`, or quarantines
            them.
        hidden_text: The action on invisible and control characters in definitions.
        sessions: The callers that share a session with it.
        declare: Capabilities that are declared to it so that it lists its tools.
        protocol: The era in which to speak to it.
        secrets: The values of `${…}` references; output and logs blank them.
        fault: The reason for which it cannot be used, with place and remedy; such a server has only its name.
        eras: The era that single tools need, by the server's names for them.
        arguments: The action on arguments that do not fit: refuse, or repair if one repair is possible.
        permissions: The rules for its tools: which exist, and which need an approval; see docs/policies.md.
        unlisted: The action on calls of tools that it does not list: refuse, or pass on.
        extensions: The settings of extensions in its entry, by their key.
        egress: Hosts and networks that the servers may send the bridge to; see `Egress`.
    """

    name: str
    transport: tables.Transport
    command: str | None = field(default=None, repr=False)
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=_nothing, repr=False, hash=False)
    env_file: Path | None = field(default=None, repr=False)
    cwd: str | None = field(default=None, repr=False)
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=_nothing, repr=False, hash=False)
    disabled: bool = False
    deferred: bool = False
    prefix: str | Literal[False] | None = None
    names: Mapping[str, str] = field(default_factory=_nothing, hash=False)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    timeout: float | None = None
    start_timeout: float | None = None
    start: tables.StartRule = "background"
    idle_timeout: float | None = None
    task_timeout: float | None = None
    pins: tables.ChangePolicy | None = None
    new_tools: tables.ChangePolicy | None = None
    hidden_text: tables.HiddenTextPolicy = "strip"
    sessions: tables.SessionRule = "auto"
    declare: tuple[tables.Asked, ...] = ()
    protocol: tables.ProtocolRule = "auto"
    secrets: tuple[str, ...] = field(default=(), repr=False)
    fault: str = ""
    eras: Mapping[str, tables.Era] = field(default_factory=_no_eras, hash=False)
    arguments: tables.ArgumentRule = "lenient"
    permissions: Section | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    egress: tuple[str, ...] = ()
    unlisted: tables.UnlistedRule = "refuse"

    def may_have(self, pattern: str) -> bool:
        """True if a name or pattern is that of the server, or can fit a tool that it may have."""
        name = plain_pattern(pattern)
        server, sign, _ = name.partition("/")
        if name == self.name or name.startswith(f"{self.name}/") or (sign and fnmatchcase(self.name, server)):
            return True
        if sign:
            return False
        prefix = self.name if self.prefix is None else self.prefix
        # Of a name with other characters, the prefix is made.
        if not prefix or not PREFIX.fullmatch(prefix) or name in self.names.values():
            return True
        start = name[: len(prefix) + 1]
        return start == f"{prefix}_" or any(joker in start for joker in "*?[")

    def reached(self) -> ServerConfig:
        """The settings that decide which process or address is used, and how sessions with it are made.

        Two entries with equal settings can share a connection, however their tools are named or judged.
        """
        plain = ServerConfig(self.name, self.transport)
        rest = (
            "deferred prefix names include exclude timeout start_timeout pins new_tools hidden_text env_file"
        )
        judged = ("start", "idle_timeout", "permissions")
        kept: Any = {name: getattr(plain, name) for name in (*rest.split(), *judged)}
        reaching = {key: one for key, one in self.extensions.items() if one.reaches}
        return replace(self, **kept, extensions=reaching)


@dataclass(frozen=True, slots=True)
class HubConfig:
    """A whole file.

    Attributes:
        path: The absolute path of the file.
        name: The hub's own name.
        servers: Its servers in file order.
        client_prefix: The text that clients put before every name of a tool.
        lock: The path of the lock file; None means in the folder of the configuration.
        warnings: A line for each place with unknown keys, and for each secret that every user can read.
        list_timeout: Seconds that lists wait for servers whose tools are unknown; None means the default.
        rules: The permissions of the file for all servers: who may use which tools.
        references: The values of references to secrets, and the files that they have named so far.
        extensions: The settings of the extensions that the file names, by key; `None` if it turns one off.
        log: The `level` and the absolute `folder` of the log, if the file names them; None means no log.
        ready: The conditions of readiness, as arguments of `Ready`; None means no condition.
        http: Arguments of `HttpLimits`, and `trusted_proxies`; None means the defaults.
    """

    path: Path
    name: str
    servers: tuple[ServerConfig, ...]
    client_prefix: str = ""
    lock: Path | None = None
    warnings: tuple[str, ...] = ()
    list_timeout: float | None = None
    references: References = field(default_factory=References, repr=False, compare=False)
    rules: Permissions = Permissions()
    extensions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    log: Mapping[str, Any] | None = field(default_factory=dict[str, Any])
    ready: Mapping[str, Any] | None = None
    http: Mapping[str, Any] | None = None

    @property
    def permissions(self) -> Permissions:
        """The permissions of callers: the rules of the file and of its servers' entries."""
        own = {server.name: server.permissions for server in self.servers if server.permissions is not None}
        return replace(self.rules, servers=own)

    @property
    def callers(self) -> Callers | None:
        """The callers over HTTP that an extension of the file allows; `None` if no extension allows any."""
        said = (one.callers() for one in self.extensions.values() if one is not None)
        return next((one for one in said if one is not None), None)

    def for_callers(self, root: Place | None = None) -> Iterator[tuple[Any, Place]]:
        """The parts of the file that are for some callers only, each with its place below `root`."""
        root = root or Place(str(self.path))
        for number, section in enumerate(self.rules.callers):
            yield section, root.at("toolset", "permissions", "for", number)
        for key, stated in self.extensions.items():
            if stated is not None:
                yield from stated.for_callers(root.at("toolset", key))
        for server in self.servers:
            for stated in server.extensions.values():
                yield from stated.for_callers(root.at("mcpServers", server.name))

    def check_callers(self) -> None:
        """Refuse rules for some callers where nobody says who calls."""
        found = None if self.callers is not None else next(self.for_callers(), None)
        if found is not None:
            raise Place(found[1].source, found[1].steps[:-1]).error(
                "is for some callers, and nothing says who calls",
                "add `toolset.auth`, or serve over HTTP with --issuer or --auth-token-env",
            )

    @property
    def misconfigured(self) -> tuple[ServerConfig, ...]:
        """The servers whose entries cannot be used, in file order."""
        return tuple(server for server in self.servers if server.fault and not server.disabled)
