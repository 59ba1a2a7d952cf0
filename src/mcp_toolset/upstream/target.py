"""`Link`: the target and transport of a mounted server.

A target is a URL, an argument list, `StdioServerParameters`, or a server of this process. Commands and URLs
come from the host alone, never from a remote catalog.

A new transport needs its name in `config.tables.Transport`, a line in `TRANSPORTS`, a branch of `Link.open`,
its target in `link_to`, and its names in files in `config.server_entry`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import sys
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args
from urllib.parse import urlsplit

import anyio

from mcp_toolset._index import mend, needed
from mcp_toolset._records import dataclass, replace
from mcp_toolset.config import chain
from mcp_toolset.config.tables import Transport
from mcp_toolset.config.variables import PLAIN_VARIABLES
from mcp_toolset.context.connection import with_extensions
from mcp_toolset.errors import DefinitionError, UpstreamUnavailableError
from mcp_toolset.extending.mounts import DeclaredToMounts, MountAuth, MountTarget
from mcp_toolset.protocol.dispatch import Dispatcher
from mcp_toolset.security.egress import MEND_ADDRESS, Egress, is_loopback, is_web_address
from mcp_toolset.transports.direct_calls import answers_of, in_process_dispatcher
from mcp_toolset.transports.stdio_client import ProcessTarget, StderrTail, child_dispatcher
from mcp_toolset.upstream.secrets import Secrets, secret_arguments, secrets_of_url, shown_url

if TYPE_CHECKING:
    import httpx2

    from mcp_toolset.context.offer_kinds import Takes
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.transports.carrier import TokenSource

_NOTIFICATION_TIMEOUT: Final = 5.0  # seconds that an extension may take for a notification

_log = logging.getLogger("mcp_toolset.upstream")

TransportName: TypeAlias = Literal[Transport, "in-process"]
TransportChoice: TypeAlias = Literal["auto", Transport]
"""A transport that a program can name; `auto` takes the one that the URL suggests."""


@dataclass(frozen=True, slots=True)
class TransportFacts:
    """The properties of one transport to a mounted server."""

    in_process: bool = False  # messages are passed as objects, in the revision 2026-07-28
    binds_messages: bool = False  # messages of a call come on the stream of the call (2025-11-25)
    carries_headers: bool = False  # each request has HTTP headers of its own
    breaks_requests: bool = False  # a request may fail on the network while the connection goes on
    starts_process: bool = False  # each session is a process of this machine


TRANSPORTS: Final[Mapping[TransportName, TransportFacts]] = {
    "stdio": TransportFacts(starts_process=True),
    "http": TransportFacts(binds_messages=True, carries_headers=True, breaks_requests=True),
    "sse": TransportFacts(breaks_requests=True),
    "in-process": TransportFacts(in_process=True),
}
"""The transports to a mounted server."""


Target = str | Sequence[str] | ProcessTarget | MountTarget | object
"""A URL, an argument list, an object with the attributes of `ProcessTarget`, a server of this process, or a
target of an extension."""


def _takes_none(method: str, shared: Collection[str]) -> bool:
    return False


@dataclass(eq=False)
class CarriedExtensions:
    """The extensions of clients that a server is told of; see `RemoteToolset.carry`."""

    tables: Mapping[str, str] = field(default_factory=dict[str, str])  # by identifier
    takes: Takes = _takes_none


@dataclass(frozen=True)
class Link:
    """The transport of one upstream, and the settings that the transport needs."""

    name: str  # the name of the mount, for messages
    transport: TransportName  # the transport that reaches it
    url: str = field(default="", repr=False)  # the address, for `http` and `sse`
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)  # sent with each request
    auth: httpx2.Auth | None = field(default=None, repr=False)  # the credentials for HTTP
    credentials: TokenSource | None = field(default=None, repr=False)  # those of the bridge's own OAuth
    process: ProcessTarget | None = field(default=None, repr=False)  # the process to start, for `stdio`
    server: Any = field(default=None, repr=False)  # the server of this process, for `in-process`
    hidden: tuple[str, ...] = field(
        default=(), repr=False
    )  # further secrets, beside those in headers and environment
    # Headers that tell the server about the caller.
    about_caller: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    stand_in: Any = field(default=None, repr=False)  # answers requests of the server in place of clients
    declared: dict[str, DeclaredToMounts] = field(
        default_factory=dict[str, DeclaredToMounts], repr=False, compare=False
    )
    carries: CarriedExtensions = field(default_factory=CarriedExtensions, repr=False, compare=False)
    egress: Egress = Egress()  # further hosts to which its requests may go
    plain: bool = False  # True if errors of the server are passed on without its name
    defer_from: int = 0  # the number of tools from which on they are found by search; 0 for never

    def share(self, shared: SharedState) -> None:
        """Take the state that replicas share, before the link is opened; a subclass may use it."""

    @cached_property
    def facts(self) -> TransportFacts:
        return TRANSPORTS[self.transport]

    def declares(self, capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
        """Capabilities to declare to the server: these, and those of extensions."""
        if not self.declared:
            return capabilities
        return with_extensions(capabilities, {name: one.settings for name, one in self.declared.items()})

    async def hear(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass a notification of the server to the extensions that want it."""
        for name, one in self.declared.items():
            if (hears := one.hears.get(method)) is None:
                continue
            try:
                with anyio.fail_after(_NOTIFICATION_TIMEOUT):
                    await hears(params or {})
            # An extension is the application's code and may raise anything; other messages must go on.
            except Exception as fault:
                _log.warning("%s: extension %s failed on %s: %r", self.name, name, method, fault)

    @property
    def is_near(self) -> bool:
        """True if the server runs on this machine."""
        return not self.url or is_loopback(self.url)

    @property
    def shown(self) -> str:
        """The target for messages, without secrets."""
        if self.process is not None:
            return self.secrets.scrubbed(f"command {self.process.command}")
        if not self.url:
            return "a server of this process"
        return Secrets.of(self.hidden).scrubbed(shown_url(self.url))

    @cached_property
    def identity(self) -> str:
        """A digest of the target, without credentials in headers or environment."""
        # A server of this process has no lasting identity, so each mount of one gets a new one.
        if self.server is not None:
            return secrets.token_hex(16)
        process = self.process
        where = (
            [self.url] if process is None else [process.command, *process.args, "", str(process.cwd or "")]
        )
        named = json.dumps([self.transport, *where])
        return hashlib.sha256(named.encode()).hexdigest()[:32]

    @asynccontextmanager
    async def open(self, stderr: StderrTail) -> AsyncGenerator[Dispatcher]:
        """Connect to the server, and yield the dispatcher; it is closed after the block."""
        async with AsyncExitStack() as stack:
            stack.enter_context(self.secrets.kept_from_logs())
            if self.server is not None:
                yield await stack.enter_async_context(in_process_dispatcher(self.server))
                return
            if self.process is not None:
                if fault := program_fault(self.process.command, self.process.env, self.process.cwd):
                    raise UpstreamUnavailableError(self.name, self.secrets.scrubbed(fault), sent=False)
                errors = await stack.enter_async_context(stderr.opened())
                child = child_dispatcher(
                    _startable(self.process), errors, name=self.name, note_printed=stderr.note_printed
                )
                yield await stack.enter_async_context(child)
                return
            yield await stack.enter_async_context(self._over_http())

    def _over_http(self) -> AbstractAsyncContextManager[Dispatcher]:
        headers = {**self.headers, **self.about_caller}
        # The HTTP clients are slow to import, and only URLs need them.
        if self.transport == "sse":
            from mcp_toolset.transports.sse_client import sse_client

            return sse_client(self.name, self.url, headers, self.auth, self.credentials, self._refusal)
        from mcp_toolset.transports.http_client import http_client

        return http_client(self.name, self.url, headers, self.auth, self.credentials, self._refusal)

    def _refusal(self, to: str, address: str) -> str:
        return self.egress.refusal(to, address, self.url)

    @cached_property
    def secrets(self) -> Secrets:
        """The secrets in headers, environment, arguments and address, and the present tokens."""
        found = [*self.hidden]
        found += [part for header in self.headers.values() for part in (header, *header.split(None, 1)[1:])]
        if self.process is not None:
            plain = {chain.VARIABLE, *PLAIN_VARIABLES}
            env = {} if self.process.shows_env else self.process.env or {}
            found += (value for name, value in env.items() if name not in plain)
            found += secret_arguments(self.process.args)
        found += secrets_of_url(self.url) if self.url else ()
        credentials = self.credentials
        return Secrets.of(found, self.url, None if credentials is None else lambda: credentials.secrets)


def _startable(process: ProcessTarget) -> ProcessTarget:
    """The process to start; for `mcp-toolset` outside of its `PATH`, the program of this installation."""
    if not _is_own_program(process.command, process.env):
        return process
    return replace(process, command=sys.executable, args=("-P", "-m", "mcp_toolset", *process.args))


def _is_own_program(command: str, env: Mapping[str, str] | None) -> bool:
    # A program that was started by the desktop has a short PATH.
    return command == "mcp-toolset" and shutil.which(command, path=(env or {}).get("PATH")) is None


def program_fault(command: str, env: Mapping[str, str] | None, cwd: str | Path | None) -> str:
    """Why a program cannot be started here, with the remedy; empty if its folder and its file are there."""
    if cwd is not None and not Path(cwd).is_dir():
        return f"its folder does not exist: {cwd}; make it, or correct cwd"
    beside = Path(cwd or ".") / command
    if _is_own_program(command, env) or shutil.which(command, path=(env or {}).get("PATH")) is not None:
        return ""
    if beside.is_dir():
        return f"its command is a folder: {command}; give the path of a program"
    if beside.is_file():
        if os.access(beside, os.X_OK) or os.sep not in command:
            return ""
        return f"its command may not be run: {command}; run chmod +x on it, or give the program that runs it"
    if command.startswith("~"):
        return f"command not found: {command}; ~ stands for nothing here: write ${{HOME}}{command[1:]}"
    program, *words = command.split()
    if words and (shutil.which(program.strip("\"'")) or program.startswith(("/", "."))):
        args = ", ".join(f'"{word}"' for word in words)
        return f'its command has arguments: {command}; write "command": "{program}", "args": [{args}, …]'
    if program[:1] in "\"'":
        return f"command not found: {command}; leave out the quotation marks in it"
    return f"command not found: {command}; install it or give its full path"


def link_to(
    target: Target,
    *,
    name: str,
    transport: TransportChoice = "auto",
    headers: Mapping[str, str] | None = None,
    auth: httpx2.Auth | MountAuth | None = None,
    login: str = "",
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    hidden: Iterable[str] = (),
    egress: Egress = Egress(),  # noqa: B008 - it is frozen
) -> Link:
    """Make the link for a target; messages say that a person logs in by `login`."""
    if transport not in (known := sorted(get_args(TransportChoice))):
        named = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
        raise DefinitionError(f"mount {name!r}: there is no transport {transport!r}; write {named}")
    if isinstance(target, str):
        link = _url_link(target, name, transport, headers or {})
        link = replace(link, hidden=tuple(hidden), egress=egress)
        return _authenticated(link, auth, login)
    if isinstance(target, MountTarget):
        link = target.link(name, headers or {}, tuple(hidden), egress)
        if isinstance(auth, MountAuth) and not link.url:
            raise DefinitionError(
                f"mount {name!r}: a login is for an address, and {link.shown} has none; name it"
            )
        return _authenticated(link, auth, login)
    process = ProcessTarget.of(target)
    if process is not None:
        given = chain.inherited() | dict(process.env or {})
        return Link(name, "stdio", process=replace(process, env=given or None))
    server = target if answers_of(target) is not None else sdk_server(target)
    if server is not None:
        return Link(name, "in-process", server=server)
    if isinstance(target, Sequence):
        command = [str(part) for part in cast("Sequence[object]", target)]
        if not command:
            raise DefinitionError(
                f"mount {name!r}: the argument list is empty; give a command and its arguments"
            )
        given = chain.inherited() | dict(env or {})
        process = ProcessTarget(command[0], tuple(command[1:]), given, cwd)
        return Link(name, "stdio", process=process, hidden=tuple(hidden))
    raise DefinitionError(
        f"mount {name!r}: {type(target).__name__} is no target; give a URL, an argument list, "
        "StdioServerParameters or an in-process server"
    )


def _authenticated(link: Link, auth: httpx2.Auth | MountAuth | None, login: str) -> Link:
    if not isinstance(auth, MountAuth):
        return replace(link, auth=auth)
    if auth.by_caller or auth.forwards:
        return link
    access = needed("access", f"mount {link.name!r}: logins are")
    how = login or f"{mend('login')} {link.shown}"
    return replace(
        link, hidden=(*link.hidden, *auth.secrets), credentials=access.tokens(link.name, link.url, auth, how)
    )


def sdk_server(target: object) -> Any:
    """The SDK's server behind a target; `None` for any other target, and the SDK is not imported for it."""
    # Without this import, no object can be a server of the SDK.
    if "mcp.server" not in sys.modules:
        return None
    from mcp_toolset.sdk import lowlevel_of

    return lowlevel_of(target)


def _target_name(target: str) -> str:
    """The name of a wrong target in an error: the scheme of a URL, the first word of a command."""
    return f"a URL of {target.partition('://')[0]}" if "://" in target else repr(target.partition(" ")[0])


def _url_link(url: str, name: str, transport: str, headers: Mapping[str, str]) -> Link:
    if not is_web_address(url):
        remedy = MEND_ADDRESS if "://" in url else "a command is given as a list"
        raise DefinitionError(f"mount {name!r}: {_target_name(url)} is no web address; {remedy}")
    if transport == "stdio":
        raise DefinitionError(f"mount {name!r}: a URL is reached by http or sse, not by stdio; write 'auto'")
    if transport == "auto":
        transport = "sse" if urlsplit(url).path.rstrip("/").endswith("/sse") else "http"
    link = Link(name, "sse" if transport == "sse" else "http", url=url, headers=headers)
    _log.debug("%s: reached by %s at %s", name, transport, link.shown)
    return link
