"""`RemoteToolset`: a mounted MCP server as a toolset, with the same verbs, hooks and gate as local tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack, get_args

import anyio
import anyio.abc

from mcp_toolset._index import needed
from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass, replace
from mcp_toolset.catalog.pins.lockfile import LockEntry, LockFile, making_pins
from mcp_toolset.catalog.pins.policy import PinPolicy, Pins
from mcp_toolset.catalog.registry.kept_catalog import KeptCatalog
from mcp_toolset.catalog.snapshot import EMPTY_SNAPSHOT, CatalogSnapshot, ListedTool
from mcp_toolset.config import tables
from mcp_toolset.context.offer_kinds import MountedSource, Offers
from mcp_toolset.errors import CallError, ConfigError, DefinitionError
from mcp_toolset.extending.mounts import DeclaredToMounts, MountAuth, mount_keywords, stand_in_of
from mcp_toolset.security.egress import Egress
from mcp_toolset.tools.argument_repair import repaired
from mcp_toolset.tools.binding import NameUse, near_names
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import ToolDefinition, public_name
from mcp_toolset.tools.hidden_text import visible
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.source import Provenance, SourceStatus, ToolSource
from mcp_toolset.tools.tool import Tool
from mcp_toolset.tools.toolset import Toolset
from mcp_toolset.tools.validation import SchemaCheck
from mcp_toolset.tools.view import KnownTools, ToolBinding, UnboundName
from mcp_toolset.upstream.connection import ConnectionOptions, UpstreamConnection
from mcp_toolset.upstream.mount_state import introduction
from mcp_toolset.upstream.resting import StartOptions
from mcp_toolset.upstream.routing import TASK_TIMEOUT, SessionOptions
from mcp_toolset.upstream.target import Link, Target, TransportChoice, link_to

if TYPE_CHECKING:
    import httpx2

    from mcp_toolset.config.extensions import ServerSettings
    from mcp_toolset.extensions.keywords import MountKeywords

DEFAULT_TIMEOUT = 60.0
DEFAULT_START_TIMEOUT = 30.0


_ANYTHING: Final = SchemaCheck({}, tool="unlisted", part="inputSchema")


@dataclass(frozen=True, slots=True)
class _Bound:
    """The tools of a snapshot, each with its binding."""

    snapshot: CatalogSnapshot
    tools: Mapping[str, tuple[ListedTool, ToolBinding]]
    deferred: bool = False


class RemoteToolset(Toolset, MountedSource):
    """The tools of one MCP server, over one session that stays open while the toolset is open.

    While the server is down, its tools stay listed and their calls fail with the reason. The toolset tries
    to reconnect until the server is back.
    """

    def __init__(
        self,
        target: Target,
        *,
        name: str,
        transport: TransportChoice = "auto",
        headers: Mapping[str, str] | None = None,
        auth: MountAuth | httpx2.Auth | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        start_timeout: float = DEFAULT_START_TIMEOUT,
        start: tables.StartRule = "background",
        idle_timeout: float | None = None,
        task_timeout: float = TASK_TIMEOUT,
        pins: PinPolicy | None = None,
        lock: str | Path | LockEntry | None = None,
        sessions: tables.SessionRule = "auto",
        declare: Iterable[tables.Asked] = (),
        protocol: tables.ProtocolRule = "auto",
        hidden: Iterable[str] = (),
        eras: Mapping[str, tables.Era] | None = None,
        arguments: tables.ArgumentRule = "lenient",
        login: str = "",
        unlisted: tables.UnlistedRule = "refuse",
        egress: Iterable[str] = (),
        **others: Unpack[MountKeywords],
    ) -> None:
        """Describe a mount; nothing is opened before `async with`.

        Args:
            target: A URL, an argument list, `StdioServerParameters`, a server of this process, or the
                `MountTarget` of an extension.
            name: The name of the mount in messages, in search and in `list`.
            transport: For URLs; `auto` takes SSE when the path ends in `/sse`, else streamable HTTP.
            headers: Headers of every HTTP request to this server.
            auth: The source of the credentials for this server over HTTP: `OAuth()` and others of
                `mcp_toolset.auth`, or an `httpx2.Auth`; see docs/upstream-login.md.
            env: Additional environment variables of a command, which inherits only a safe part of ours.
            cwd: The working directory of a command.
            timeout: Seconds that one call may take; waiting for a client's answer to a question does not
                count.
            start_timeout: Seconds that connecting and listing may take.
            start: When the server is started. `lazy`: by its first call, once its lists are known.
                `background`: when the toolset is opened. `eager`: also then, but the lists of
                the last run are not served.
            task_timeout: Seconds that a client which takes no tasks waits for a tool that runs only as a
                task; with 0 such a call is refused if the client speaks 2026-07-28. See docs/tasks.md.
            idle_timeout: Seconds without a request after which the server is stopped until the next call; by
                default 300 for a lazy server, otherwise never.
            pins: The reaction to definitions that change or have hidden text.
            lock: A lock file that `mcp-toolset pin` wrote; without one, the first listing is pinned.
            sessions: The sharing of sessions by callers with a server up to 2025-11-25; see docs/sessions.md.
            protocol: `auto` speaks to the server in the era of each client, if the server knows it,
                `legacy` in none after 2025-11-25, `modern` in none before 2026-07-28; see docs/sessions.md.
            eras: The era, `legacy` or `modern`, that single tools need, by the server's own names for them,
                where the server has both.
            declare: The capabilities to declare when listing, as some servers list tools only to clients
                that can be asked for it: some of `elicitation`, `roots`, `sampling`. Calls declare what
                their own clients can do, not this value; see docs/sessions.md.
            arguments: The action on a model's arguments that do not fit: `lenient` repairs them if there is
                only one way, `strict` refuses them; see docs/typed-calls.md.
            login: The command that logs a person in to this server, for messages; by default `mcp-toolset
                login` with its address.
            unlisted: `pass` sends calls of tools and prompts that the server does not list on to it, for a
                server that is served alone: arguments, results, errors and instructions stay as they are;
                see docs/adopting.md.
            egress: Hosts and networks to which the server may send the bridge, such as `login.corp`, `*.corp`
                and `10.0.0.0/8`, though they are at loopback, link-local or private addresses; see
                docs/upstream-login.md.
            hidden: Values in the target that must not be shown in statuses, errors and logs, beside those
                that count anyway; see docs/configuration.md.
            others: Extensions of the mount, such as `retries=2`, `sampler=…` and `forward={…}`; see
                `MountKeywords`.

        Raises:
            ConfigError: the lock file is broken, is not a lock file, or is not there.
            DefinitionError: the target is of no known kind, the name is empty, a time is not positive, or
                another argument has no known value.
        """
        if not name or not name.isprintable():
            # Questions to users begin with it.
            hint = "give RemoteToolset(…, name=…)"
            raise DefinitionError(f"a mount needs a name of visible characters, not {name!r}; {hint}")
        require_positive(
            f"mount {name!r}", {"idle_timeout": idle_timeout}, timeout=timeout, start_timeout=start_timeout
        )
        _check_rule(name, "start", start, tables.StartRule)
        _check_rule(name, "sessions", sessions, tables.SessionRule)
        _check_rule(name, "protocol", protocol, tables.ProtocolRule)
        _check_rule(name, "arguments", arguments, tables.ArgumentRule)
        _check_rule(name, "unlisted", unlisted, tables.UnlistedRule)
        for tool, era in (eras or {}).items():
            _check_rule(name, f"eras[{tool!r}]", era, tables.Era)
        extensions = mount_keywords(others) if others else {}
        allowed = Egress(tuple(egress))
        auth = auth.within(allowed) if isinstance(auth, MountAuth) else auth
        credentials = [*extensions.values(), *([auth] if isinstance(auth, MountAuth) else ())]
        forwards = any(source.forwards for source in credentials)
        by_caller = any(source.by_caller for source in credentials)
        link = link_to(
            target,
            name=name,
            transport=transport,
            headers=headers,
            auth=auth,
            login=login,
            env=env,
            cwd=cwd,
            hidden=hidden,
            egress=allowed,
        )
        _check_link(link, forwards=forwards, protocol=protocol)
        if extensions:
            link, sessions = _linked(link, extensions, sessions, forwards=forwards)
        entry = _entry_of(name, pins, lock)
        judge = partial(Pins, name, pins, entry, link.secrets.scrubbed if link.secrets else None)
        link = replace(link, plain=_passes(name, unlisted, by_caller or judge().decides_by_list))
        options: ConnectionOptions = {
            "timeout": timeout,
            "start_timeout": start_timeout,
            "options": SessionOptions(protocol, sessions, dict(eras or {}), task_timeout=task_timeout),
            "forwards": forwards,
            "shows": _declared(name, declare),
            "stated": extensions,
        }
        self.connection: UpstreamConnection
        if by_caller:
            access = needed("access", f"mount {name!r}: connections of single callers are")
            self.connection = access.connections(link, auth, judge, lenient=arguments == "lenient", **options)
        else:
            # A server of this process needs no start, and lists of single callers are not kept.
            starts = StartOptions() if link.facts.in_process else StartOptions(start, idle_timeout)
            self.connection = UpstreamConnection(link, pins=judge(), starts=starts, **options)
        connection = self.connection
        self.kept, self.list_hint = connection.kept, connection.list_hint
        self.hidden_from, self.unknown_to = connection.hidden_from, connection.unknown_to
        self.known_to, self.carry, self.share = connection.known_to, connection.carry, connection.link.share
        self.login_of, self.watch_logins = connection.login_of, connection.watch_logins
        self.on_change = connection.changed.add
        self._start = start
        self._eras = tuple(eras or ())
        self.passes = link.plain
        self._lenient = arguments == "lenient" and not self.passes
        self._bound_tools = _Bound(EMPTY_SNAPSHOT, {})
        super().__init__(name=name)

    @property
    def source_name(self) -> str:
        """The name of the mount."""
        return self.connection.link.name

    @property
    def declared(self) -> dict[str, DeclaredToMounts]:
        """The extensions that the server is told of, by identifier; see `Extension.declared`."""
        return self.connection.link.declared

    @property
    def status(self) -> SourceStatus:
        """The status of the server."""
        return self.connection.status

    def scrubbed(self, text: str) -> str:
        """The text without the secrets that the mount was given."""
        return self.connection.link.secrets.scrubbed(text)

    @property
    def known(self) -> bool:
        """True if the tools are known from this run or the last; see `UnlistedMounts`."""
        return self.connection.tools.known

    @property
    def keep_key(self) -> str | None:
        """The key of its lists in the cache folder."""
        return self.connection.keep_key

    async def remember(self, kept: KeptCatalog) -> None:
        """Serve the lists of the last run until the server has listed; nothing for an eager start."""
        if self._start != "eager":
            await self.connection.remember(kept)

    @property
    def instructions(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The server's instructions for models."""
        return self.connection.instructions

    def server_info(self) -> dict[str, Any]:
        """The server's name and version (`serverInfo`)."""
        return introduction(self.connection.server_info, self.connection.link)

    @property
    def at_hand(self) -> bool:
        """True if the server is part of this process."""
        return self.connection.link.facts.in_process

    @property
    def offers(self) -> Offers:
        """The server's prompts, resources and completions."""
        return self.connection.offered

    @property
    def is_personal(self) -> bool:
        """True if each caller has a separate connection with separate lists."""
        return self.connection.is_personal

    def list_meta(self) -> Mapping[str, Any]:
        """The `_meta` of its list of tools."""
        return self.connection.tools.meta

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the connection until cancelled; see `ToolSource.run`."""
        await self.connection.run(task_status=task_status)

    def members(self) -> Iterator[Tool[..., Any] | Toolset]:
        """Always empty: the tools are those that the server lists."""
        return iter(())

    def sources(self) -> list[ToolSource]:
        """The mount itself."""
        return [self]

    def unbound(self) -> list[UnboundName]:
        """The names in `eras` of tools that the server does not list; see docs/names.md."""
        listed = {tool.definition.name: tool for tool in self.bindings()} if self._eras else {}
        known = {*listed, *(name for name, _ in self.status.set_aside)} if self._eras else set[str]()
        tools = KnownTools(listed.values, [self])
        return [
            replace(tools.missing(NameUse(name, "eras"), near_names(name, listed)), server=self.source_name)
            for name in self._eras
            if name not in known
        ]

    @property
    def snapshot(self) -> CatalogSnapshot:
        """The snapshot that its tools are read from."""
        return self.connection.snapshot

    def bindings(self) -> list[ToolBinding]:
        """The tools as the server last listed them."""
        connection, bound = self.connection, self._bound_tools
        snapshot = connection.snapshot
        if snapshot is not bound.snapshot:
            deferred = self.defers
            previous = bound.tools if deferred == bound.deferred else {}
            # A tool that is listed as before is the same object in the next snapshot.
            tools = {
                name: before
                if (before := previous.get(name)) is not None and before[0] is tool
                else (tool, self._binding(connection, tool, deferred))
                for name, tool in snapshot.tools.items()
            }
            bound = self._bound_tools = _Bound(snapshot, tools, deferred)
        return [binding for _, binding in bound.tools.values()]

    @property
    def defers(self) -> bool:
        """True if the server has so many tools that clients find them by search; see `Link.defer_from`."""
        least = self.connection.link.defer_from
        return 0 < least <= len(self.connection.snapshot.tools)

    def _binding(
        self, connection: UpstreamConnection, tool: ListedTool, deferred: bool = False
    ) -> ToolBinding:
        definition = tool.definition
        return ToolBinding(
            name=public_name(definition.name),
            definition=definition,
            execute=partial(connection.call, definition),
            arguments=_ANYTHING if self.passes else tool.arguments,
            output=None if self.passes else tool.output,
            source=self.source_name,
            place=f"server {self.source_name!r}",
            deferred=deferred,
            gate=connection.gate(definition),
            personal=connection.personal(definition),
            provenance=partial(self._provenance, definition.name),
            prepare=partial(repaired, definition.input_schema, tool.arguments) if self._lenient else None,
        )

    def passing(self) -> RemoteToolset | None:
        """This mount, if it sends calls of unlisted tools on; see docs/adopting.md."""
        return self if self.passes and not self.connection.tools.pins.decides_by_list else None

    def passed(self, name: str) -> ToolBinding | None:
        """A tool that sends calls of an unlisted name on; `None` for the name of a tool that is held back."""
        if not self.admits(name):
            return None
        definition = ToolDefinition(name, "", {"type": "object"})

        async def call(call: ToolCall, context: ToolContext) -> ToolResult:
            await self.connection.summoned()
            if not self.admits(name):
                raise CallError(
                    f"{name} is listed otherwise since the server was started; list the tools again"
                )
            return await self.connection.call(definition, call, context)

        return ToolBinding(
            name=name,
            definition=definition,
            execute=call,
            arguments=_ANYTHING,
            source=self.source_name,
            place=f"server {self.source_name!r}",
            provenance=partial(self._provenance, name),
        )

    def admits(self, name: str) -> bool:
        """True if the server neither lists nor sets aside a tool of this name.

        Letter case is ignored; a name with hidden characters is never admitted.
        """
        status = self.status
        known = {*self.snapshot.tools, *(change.name for change in status.changes)}
        known.update(aside for aside, _ in status.set_aside)
        return visible(name) == name and name.casefold() not in {own.casefold() for own in known}

    def listed(self, tool: str) -> ToolDefinition | None:
        """The tool that the server listed last under one of its own names."""
        listed = self.connection.snapshot.tools.get(tool)
        return None if listed is None else listed.definition

    def _provenance(self, tool: str) -> Provenance:
        definition = self.listed(tool)
        return Provenance(self.connection.identity, "" if definition is None else definition.digest)


def _check_link(link: Link, *, forwards: bool, protocol: tables.ProtocolRule) -> None:
    """Refuse options that a transport cannot carry out."""
    if forwards and not link.facts.carries_headers:
        raise DefinitionError(
            f"mount {link.name!r}: credentials are forwarded over streamable HTTP, not by {link.transport}"
        )
    if protocol == "legacy" and link.facts.in_process:
        raise DefinitionError(
            f"mount {link.name!r}: a server in this process is always called in 2026-07-28; leave out "
            "protocol"
        )


def _linked(
    link: Link, extensions: Mapping[str, ServerSettings], sessions: tables.SessionRule, *, forwards: bool
) -> tuple[Link, tables.SessionRule]:
    """The link and the rule of sessions as extensions of the mount change them."""
    sends = forwards or any(extension.by_caller for extension in extensions.values())
    for extension in extensions.values():
        changed: Link | None = extension.linked(link, sessions, forwards=sends)
        if changed is not None:
            link, sessions = changed, "shared"
            break
    stand_in = stand_in_of(link.name, extensions, shares=sessions == "shared")
    return replace(link, stand_in=stand_in), sessions


def _declared(mount: str, declare: Iterable[tables.Asked]) -> tuple[tables.Asked, ...]:
    declared, known = tuple(declare), get_args(tables.Asked)
    if unknown := [capability for capability in declared if capability not in known]:
        raise DefinitionError(
            f"mount {mount!r}: declare takes some of {', '.join(known)}, not {unknown[0]!r}"
        )
    return declared


def _entry_of(mount: str, pins: object, lock: str | Path | LockEntry | None) -> LockEntry | None:
    """The pins of a mount in its lock file, which must exist, except while `mcp-toolset pin` makes it."""
    if not isinstance(pins, PinPolicy | None):
        raise DefinitionError(f"mount {mount!r}: pins takes PinPolicy(…), not {pins!r}")
    if lock is None or isinstance(lock, LockEntry):
        return lock
    file = LockFile(lock)
    if not file.exists and not making_pins.get():
        raise ConfigError(
            f"mount {mount!r}: there is no lock file {lock}, so nothing is pinned; make it with `mcp-toolset "
            "pin` and the program, such as `mcp-toolset pin app.py`"
        )
    return file.entry(mount)


def _passes(mount: str, unlisted: tables.UnlistedRule, decides_by_list: bool) -> bool:
    if unlisted == "pass" and decides_by_list:
        raise DefinitionError(
            f"mount {mount!r}: unlisted='pass' does not go with a lock file, pins that quarantine or "
            "connections of single callers, which decide by what the server lists; leave one of them out"
        )
    return unlisted == "pass"


def _check_rule(mount: str, name: str, value: str, rule: Any) -> None:
    if value not in get_args(rule):
        raise DefinitionError(f"mount {mount!r}: {name} is one of {', '.join(get_args(rule))}, not {value!r}")
