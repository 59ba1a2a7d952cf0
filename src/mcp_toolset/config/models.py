"""What a configuration means once it is read: frozen, expanded, free of any client's spelling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

__all__ = [
    "ArgumentRule",
    "ChangePolicy",
    "HiddenTextPolicy",
    "Era",
    "HubConfig",
    "ProtocolRule",
    "ServerConfig",
    "SessionRule",
    "Transport",
]

Transport: TypeAlias = Literal["stdio", "http", "sse"]
"""How a server is reached; `http` is streamable HTTP."""

ChangePolicy: TypeAlias = Literal["accept", "warn", "quarantine"]
"""What is done about a definition that is not what was pinned."""

HiddenTextPolicy: TypeAlias = Literal["strip", "flag", "refuse"]
"""What is done about characters that hide."""
SessionRule: TypeAlias = Literal["auto", "shared", "capabilities", "client", "call"]
"""How far the callers of a server share sessions with it; see docs/sessions.md."""

ProtocolRule: TypeAlias = Literal["auto", "legacy", "modern"]
"""In which era a server is spoken to: up to 2025-11-25, from 2026-07-28, or the newest that it knows."""


Era: TypeAlias = Literal["legacy", "modern"]
"""The revisions up to 2025-11-25, which have sessions, or those from 2026-07-28, which have none."""

ArgumentRule: TypeAlias = Literal["strict", "lenient"]
"""What becomes of arguments that do not fit: they are refused, or repaired where that is unambiguous."""

Asked: TypeAlias = Literal["elicitation", "roots", "sampling"]
"""What a server may ask of a client; see docs/sessions.md."""


def _no_eras() -> Mapping[str, Era]:
    return MappingProxyType({})


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server. What may hold secrets is omitted by `repr`.

    A server that is not disabled has every reference expanded; a disabled one stands as it is written. One
    with a `fault` is misconfigured: it is shown with that reason, and the others are served.

    Attributes:
        name: Its key in the file.
        transport: How it is reached.
        command: The program to start, for stdio; looked up on PATH when it has no folder.
        args: Its arguments.
        env: What is set for it on top of the inherited environment: the environment file, then `env`.
        env_file: Where the environment file is, if one is named.
        cwd: Where it starts, absolute; None means the folder of this process.
        url: Its address, for http and sse.
        headers: Sent with every request to it, and to nobody else.
        disabled: The file keeps it but asks not to start it.
        deferred: Its tools are searched for instead of listed.
        prefix: Before its tools' names; None leaves it to the hub, False means none.
        names: Public names for single tools, by the server's own names for them.
        include: Patterns (`fnmatch`) of the tools to take; empty means all.
        exclude: Patterns of the tools to leave out; stronger than `include`.
        timeout: Seconds for one call; None means the default.
        start_timeout: Seconds to start and list tools; None means the default.
        pins: About tools that have changed since they were pinned; None decides by what has changed.
        new_tools: About tools that a pinned server did not have; None is as `pins`, or holds them.
        hidden_text: About invisible and control characters in definitions.
        sessions: How far its callers share sessions with it.
        forward_authorization: Whether each caller's own credentials are sent on to it.
        declare: What is declared for the sake of what it lists.
        protocol: In which era it is spoken to.
        secrets: Values that `${…}` stood for in it; they are blanked wherever they would be shown.
        fault: Why it cannot be used, with place and mend; such a server has only its name.
        eras: The era that single tools need, by the server's own names for them.
        arguments: What becomes of arguments that do not fit: refused, or repaired where unambiguous.
    """

    name: str
    transport: Transport
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
    pins: ChangePolicy | None = None
    new_tools: ChangePolicy | None = None
    hidden_text: HiddenTextPolicy = "strip"
    sessions: SessionRule = "auto"
    forward_authorization: bool = False
    declare: tuple[Asked, ...] = ()
    protocol: ProtocolRule = "auto"
    secrets: tuple[str, ...] = field(default=(), repr=False)
    fault: str = ""
    eras: Mapping[str, Era] = field(default_factory=_no_eras, hash=False)
    arguments: ArgumentRule = "lenient"

    def reached(self) -> ServerConfig:
        """What of it decides which process or address it is, and how sessions with it are made.

        Two that are equal in this can share a connection, however their tools are named or judged.
        """
        plain = ServerConfig(self.name, self.transport)
        rest = ("deferred", "prefix", "names", "include", "exclude", "timeout", "start_timeout", "pins")
        kept = {name: getattr(plain, name) for name in (*rest, "new_tools", "hidden_text", "env_file")}
        return replace(self, **kept)


@dataclass(frozen=True, slots=True)
class HubConfig:
    """A whole file.

    Attributes:
        path: Where it is, absolute.
        name: What the hub calls itself.
        servers: Its servers in file order.
        client_prefix: What clients put before every name of a tool.
        lock: Where its pins are kept; None means beside the file.
        warnings: Keys that nobody knows, a line for each place.
        list_patience: Seconds that lists wait for servers of which nothing is known; None means the default.
    """

    path: Path
    name: str
    servers: tuple[ServerConfig, ...]
    client_prefix: str = ""
    lock: Path | None = None
    warnings: tuple[str, ...] = ()
    list_patience: float | None = None

    @property
    def misconfigured(self) -> tuple[ServerConfig, ...]:
        """The servers whose entries cannot be used, in file order."""
        return tuple(server for server in self.servers if server.fault and not server.disabled)
