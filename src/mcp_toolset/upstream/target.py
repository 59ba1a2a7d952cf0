"""`Link`: the target and transport of a mounted server; `KnownServer` and `MountState` describe the server.

A target is a URL, an argument list, `StdioServerParameters`, or a server of this process (`DirectCalls`).
Commands and URLs come from the host alone, never from a remote catalog.

A new transport needs a line in `TRANSPORTS`, a branch of `Link.open`, its target in `link_to`, and its name
in `config.tables` and `config.hub`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import field
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

import anyio

from mcp_toolset._callbacks import Callbacks
from mcp_toolset._index import mend, needed
from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.decision import watched
from mcp_toolset.catalog.instructions import clean_instructions, one_line
from mcp_toolset.catalog.pins.policy import scrubbed
from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
from mcp_toolset.catalog.snapshot import CatalogSnapshot
from mcp_toolset.concurrency.tasks import Deadlines, new_scope
from mcp_toolset.config import chain
from mcp_toolset.config.variables import PLAIN_VARIABLES
from mcp_toolset.context.connection import Answers, Connection, RequestContext, with_extensions
from mcp_toolset.context.spans import SentRequest
from mcp_toolset.errors import DefinitionError, UpstreamUnavailableError
from mcp_toolset.extending.mounts import DeclaredToMounts, MountAuth
from mcp_toolset.protocol.dispatch import (
    NOT_AWAITED,
    CallOptions,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    Params,
    Started,
    TransportContext,
    run_notify_intercept,
)
from mcp_toolset.protocol.json_rpc import (
    CLOSED,
    REQUEST_TIMEOUT,
    MCPError,
    NoBackChannelError,
    RequestId,
    RequestTimedOut,
    error_for_peer,
)
from mcp_toolset.protocol.methods import IMPLEMENTATION
from mcp_toolset.protocol.server_machine import ServerMachine
from mcp_toolset.security.egress import MEND_ADDRESS, Egress, is_loopback, is_web_address
from mcp_toolset.tools.hidden_text import HiddenTextPolicy, cleaned_metadata
from mcp_toolset.tools.source import SourceState
from mcp_toolset.transports.requests import OneWayContext, modern_connection
from mcp_toolset.transports.stdio_client import ProcessTarget, StderrTail, child_dispatcher
from mcp_toolset.upstream.secrets import Secrets, secret_arguments, secrets_of_url, shown_url

if TYPE_CHECKING:
    import httpx2

    from mcp_toolset.context.shared import Shared
    from mcp_toolset.transports.carrier import TokenSource

_TRANSPORT: Final = TransportContext(kind="direct", can_send_request=False)


def answers_of(target: object) -> Answers | None:
    found: object = getattr(target, "answers", None)
    return cast("Answers", found) if callable(getattr(found, "answer", None)) else None


@asynccontextmanager
async def in_process_dispatcher(server: Any) -> AsyncGenerator[DirectCalls]:
    answers = answers_of(server)
    if answers is not None:
        async with answers.opened():
            with DirectCalls(own_answers(answers)) as calls:
                yield calls
        return
    of_sdk = needed("sdk", "mounted servers of the SDK are")
    async with server.lifespan(server) as state:
        with DirectCalls(*of_sdk(server, state)) as calls:
            yield calls


def own_answers(server: Answers) -> OnRequest:
    """A handler that passes modern requests of this process, whose callers are trusted, to a server."""
    machine = ServerMachine("modern")

    def answer(context: Any, method: str, params: Params) -> Awaitable[dict[str, Any]]:
        call: _DirectCall = context
        connection = call.connection = modern_connection(machine.receive_request(method, params))
        return server.answer(RequestContext(method, params, call.request_id, connection, call))

    return answer


class DirectCalls:
    """A dispatcher whose peer is a server of this process."""

    keeps_time: Final = True

    def __init__(self, serve: OnRequest, refusal: Callable[[str], Exception] = NoBackChannelError) -> None:
        self._serve = serve
        self.refusal = refusal
        self._ids = count(1)
        self._closed = anyio.Event()
        self._deadlines = Deadlines[anyio.CancelScope](lambda scope: scope.cancel())
        self._on_notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._closed.is_set():
            raise MCPError.from_error_data(CLOSED)
        if not watched():
            return await self._answer_in_time(method, params, opts or {})
        with SentRequest(method, params) as sent:
            return sent.answered(await self._answer_in_time(method, sent.params, opts or {}))

    async def _answer_in_time(self, method: str, params: Params, opts: CallOptions) -> dict[str, Any]:
        seconds = opts.get("timeout")
        call = _DirectCall(self, opts, next(self._ids))
        if seconds is None:
            return await self._answer(call, method, params)
        scope = new_scope()
        self._deadlines.begin(scope, seconds)
        try:
            with scope:
                return await self._answer(call, method, params)
        finally:
            self._deadlines.end(scope)
        raise RequestTimedOut(REQUEST_TIMEOUT, f"Request {method!r} timed out")

    async def _answer(self, call: _DirectCall, method: str, params: Params) -> dict[str, Any]:
        try:
            return await self._serve(call, method, params)
        except MCPError:
            raise
        # What a handler raises must not reach its caller unchanged, in process as little as on a wire.
        except Exception as raised:
            raise MCPError.from_error_data(error_for_peer(raised)) from None
        finally:
            if call.connection is not None and call.connection.has_callbacks:
                await call.connection.aclose()

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None: ...

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: Started = NOT_AWAITED,
    ) -> None:
        self._on_notify, self._intercept = on_notify, on_notify_intercept
        task_status.started()
        try:
            await self._closed.wait()
        finally:
            self._closed.set()

    def close(self) -> None:
        self._closed.set()

    def __enter__(self) -> DirectCalls:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def deliver(self, call: _DirectCall, method: str, params: Params) -> None:
        if self._on_notify is None or self._closed.is_set():
            return
        if not run_notify_intercept(self._intercept, method, params):
            await self._on_notify(call, method, params)


class _DirectCall(OneWayContext):
    """One request, as the server sees it."""

    __slots__ = ("_calls", "_opts", "connection", "request_id")

    transport = _TRANSPORT

    def __init__(self, calls: DirectCalls, opts: CallOptions, number: int) -> None:
        self._calls = calls
        self._opts = opts
        self._cancel_requested = None
        self.connection: Connection | None = None
        self.request_id: RequestId = opts.get("request_id", number)

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise self._calls.refusal(method)

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        await self._calls.deliver(self, method, params)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        report = self._opts.get("on_progress")
        if report is not None:
            await report(progress, total, message)


_NOTIFICATION_TIMEOUT: Final = 5.0  # seconds that an extension may take for a notification

_log = logging.getLogger("mcp_toolset.upstream")

TransportName: TypeAlias = Literal["stdio", "http", "sse", "in-process"]


@dataclass(frozen=True, slots=True)
class TransportFacts:
    """One transport to a mounted server."""

    in_process: bool = False  # nothing is framed, and it speaks 2026-07-28
    binds_messages: bool = False  # messages come on the stream of their call (2025-11-25)
    carries_headers: bool = False  # each request has HTTP headers of its own
    breaks_requests: bool = False  # one request may fail on the network while the connection goes on
    starts_process: bool = False  # each session is a process of this machine


TRANSPORTS: Final[Mapping[TransportName, TransportFacts]] = {
    "stdio": TransportFacts(starts_process=True),
    "http": TransportFacts(binds_messages=True, carries_headers=True, breaks_requests=True),
    "sse": TransportFacts(breaks_requests=True),
    "in-process": TransportFacts(in_process=True),
}
"""The transports to a mounted server."""


Target = str | Sequence[str] | ProcessTarget | object
"""A URL, an argument list, what has the attributes of `ProcessTarget`, or a server of this process."""


@dataclass(frozen=True)
class Link:
    """One upstream's transport and what it needs."""

    name: str  # the name it is mounted under, for messages
    transport: TransportName  # which transport reaches it
    url: str = field(default="", repr=False)  # for `http` and `sse`
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)  # for each request
    auth: httpx2.Auth | None = field(default=None, repr=False)  # of HTTP
    credentials: TokenSource | None = field(default=None, repr=False)  # the same, by the bridge's own OAuth
    process: ProcessTarget | None = field(default=None, repr=False)  # for `stdio`
    server: Any = field(default=None, repr=False)  # for `in-process`
    hidden: tuple[str, ...] = field(default=(), repr=False)  # more secret values
    about_caller: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    stand_in: Any = field(default=None, repr=False)
    declared: dict[str, DeclaredToMounts] = field(
        default_factory=dict[str, DeclaredToMounts], repr=False, compare=False
    )
    egress: Egress = Egress()  # where its requests may go besides
    plain: bool = False  # whether errors of the server are passed on without its name

    def share(self, shared: Shared) -> None:
        """Give the link the state that replicas share, before it is opened; this one needs none."""

    @cached_property
    def facts(self) -> TransportFacts:
        return TRANSPORTS[self.transport]

    def declares(self, capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self.declared:
            return capabilities
        return with_extensions(capabilities, {name: one.settings for name, one in self.declared.items()})

    async def hear(self, method: str, params: Mapping[str, Any] | None) -> None:
        for name, one in self.declared.items():
            if (hears := one.hears.get(method)) is None:
                continue
            try:
                with anyio.fail_after(_NOTIFICATION_TIMEOUT):
                    await hears(params or {})
            # It is the application's code and may raise anything; the server's other messages go on.
            except Exception as fault:
                _log.warning("%s: extension %s failed on %s: %r", self.name, name, method, fault)

    @property
    def is_near(self) -> bool:
        return not self.url or is_loopback(self.url)

    @property
    def shown(self) -> str:
        if self.process is not None:
            return self.scrubbed(f"command {self.process.command}")
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
        async with AsyncExitStack() as stack:
            stack.enter_context(self.secrets.kept_from_logs())
            if self.server is not None:
                yield await stack.enter_async_context(in_process_dispatcher(self.server))
                return
            if self.process is not None:
                if fault := program_fault(self.process.command, self.process.env, self.process.cwd):
                    raise UpstreamUnavailableError(self.name, self.scrubbed(fault), sent=False)
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

    def scrubbed(self, text: str) -> str:
        """`text` without the secrets and tokens of this mount."""
        return self.secrets.scrubbed(text)

    def cleaned(self, value: Any) -> Any:
        return self.secrets.cleaned(value)


def _startable(process: ProcessTarget) -> ProcessTarget:
    """The process to start; this installation's own program where `mcp-toolset` is not on its `PATH`."""
    if not _is_own_program(process.command, process.env):
        return process
    return replace(process, command=sys.executable, args=("-P", "-m", "mcp_toolset", *process.args))


def _is_own_program(command: str, env: Mapping[str, str] | None) -> bool:
    # Programs that a desktop starts have a short PATH.
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
    transport: Literal["auto", "stdio", "http", "sse"] = "auto",
    headers: Mapping[str, str] | None = None,
    auth: httpx2.Auth | MountAuth | None = None,
    login: str = "",
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    hidden: Iterable[str] = (),
    egress: Egress = Egress(),  # noqa: B008 - it is frozen
) -> Link:
    """Read a target; `login` is what a person does to log in to it, for messages."""
    if transport not in ("auto", "stdio", "http", "sse"):
        raise DefinitionError(
            f"mount {name!r}: there is no transport {transport!r}; write 'auto', 'http', 'sse' or 'stdio'"
        )
    if isinstance(target, str):
        link = _url_link(target, name, transport, headers or {})
        link = replace(link, hidden=tuple(hidden), egress=egress)
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
    # While the server side of the SDK is not imported, nothing is a server of the SDK.
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


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server's description of itself (MCP schema, `Implementation`)."""

    name: str  # the name of its program
    version: str  # the version of its program
    title: str | None = None  # a name for people
    description: str | None = None  # what it is for
    website_url: str | None = None  # where more is said about it
    wire: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @classmethod
    def of(cls, wire: object) -> ServerInfo | None:
        if not isinstance(wire, dict) or IMPLEMENTATION.fault(wire) is not None:
            return None
        members = cast("dict[str, Any]", wire)
        given = {key: value for key, value in members.items() if value is not None}
        return cls(
            given["name"],
            given["version"],
            given.get("title"),
            given.get("description"),
            given.get("websiteUrl"),
            given,
        )


MAX_INSTRUCTIONS: Final = 100_000
"""Characters of a server's instructions that are kept: they are looked through for each client."""


class KnownServer:
    """The information and the instructions that a server sent about itself."""

    def __init__(self, link: Link) -> None:
        self.info: ServerInfo | None = None  # `None` before anything is known
        self.instructions = self.about = ""  # its instructions, unchanged, and one line about it
        self._link = link

    def take(self, server: ServerInfo | None, instructions: str) -> None:
        instructions = instructions[:MAX_INSTRUCTIONS]
        self.info, self.instructions = server, instructions
        about = "" if server is None else server.description or server.title or ""
        self.about = self._link.scrubbed(one_line(about or instructions))

    def shown_instructions(self, policy: HiddenTextPolicy) -> str:
        return clean_instructions(self._link.scrubbed(self.instructions), policy)

    def identity(self, live: ServerInfo | None) -> str:
        server = live or self.info
        return f"{self._link.identity}:{server.name if server else ''}"


LONGEST_ICON: Final = 2048  # characters of an icon's address; a longer one is an image of its own

Wire = Mapping[str, Any]


def keep_key(link: Link, *settings: str | bool | Collection[str]) -> str | None:
    """The key of a mount's kept lists: a digest of its name, its target and its settings."""
    # Credentials in headers and environment are no part of it. A server of this process has none.
    if link.facts.in_process:
        return None
    how = [one if isinstance(one, str | bool) else sorted(one) for one in settings]
    return hashlib.sha256(json.dumps([link.name, link.identity, *how]).encode()).hexdigest()[:32]


def catalog_of(
    link: Link,
    listed: CatalogSnapshot,
    *,
    server: ServerInfo | None,
    instructions: str,
    capabilities: Wire,
    offers: Mapping[str, Sequence[Wire]],
) -> KeptCatalog:
    tools = [tool.definition.to_wire() for tool in listed.tools.values()]
    about = {} if server is None else dict(server.wire)
    plain = {method: [dict(entry) for entry in entries] for method, entries in offers.items()}
    catalog = KeptCatalog(tools, about, instructions, capabilities, plain)
    if not link.secrets:
        return catalog
    clean = partial(scrubbed, scrub=link.scrubbed)
    return KeptCatalog(
        [tool for tool in clean(tools) if tool.get("name") in listed.tools],
        clean(about),
        link.scrubbed(instructions),
        clean(capabilities),
        clean(plain),
    )


def introduction(server: ServerInfo | None, link: Link) -> dict[str, Any]:
    """A server's description of itself in wire form, without secrets, hidden text and big icons."""
    if server is None:
        return {}
    wire = dict(server.wire)
    icons = [icon for icon in wire.pop("icons", ()) if len(str(icon.get("src", ""))) <= LONGEST_ICON]
    if icons:
        wire["icons"] = icons
    return cast("dict[str, Any]", cleaned_metadata(link.cleaned(wire)))


class MountState:
    """The state of one mounted server: its supervisor sets it, calls read it."""

    def __init__(self, link: Link) -> None:
        self.now: SourceState = "closed"  # the state
        self.reason = ""  # why it is in this state, cleared of secrets
        self.retry_in: float | None = None  # seconds until the next attempt, if one is waited for
        self.used = False  # True after a request of a client was forwarded; reset from outside
        self.calls = 0  # the number of forwarded requests
        self.wake: Callable[[], None] = lambda: None  # starts the server if it is stopped
        self._link = link
        self.changed = Callbacks()  # told when the state or a list has changed

    def set(self, now: SourceState, reason: str, retry_in: float | None = None) -> None:
        self.now, self.reason, self.retry_in = now, self._link.scrubbed(reason), retry_in
        self.changed.tell()

    async def summoned(self, within: float) -> None:
        """Start a stopped server; wait for a start that is under way, at most `within` seconds."""
        self.wake()
        if self.now == "starting":
            await self.arrived(within)

    async def arrived(self, within: float) -> None:
        arrived = anyio.Event()

        def changed() -> None:
            if self.now != "starting":
                arrived.set()

        stop = self.changed.add(changed)
        try:
            with anyio.move_on_after(within):
                await arrived.wait()
        finally:
            stop()

    def require_ready(self) -> None:
        """Raise `UpstreamUnavailableError`, with the reason, unless the server is ready."""
        if self.now == "ready":
            return
        reason = f"the server is {self.now}" + (f": {self.reason}" if self.reason else "")
        again = f"; next attempt within {self.retry_in:g} s" if self.retry_in else ""
        raise UpstreamUnavailableError(self._link.name, reason + again, sent=False)
