"""`PassExtensions`: passes extensions of the protocol on that the bridge does not know.

An extension is passed on between a client and a mounted server that both declare it: in `extensions`
(SEP-2133) or, up to 2025-11-25, in `experimental`. Each is told that the other has it, and the requests and
notifications of its methods go from one to the other. A method belongs to an extension by its name. One whose
name MCP has, or keeps, never passes, nor does one of an extension that another part of the bridge carries.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

import anyio

from mcp_toolset._index import homes
from mcp_toolset._records import dataclass
from mcp_toolset.context.connection import EXTENSION_TABLES, RequestContext, extensions_in
from mcp_toolset.context.offer_kinds import MountedSource
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import DefinitionError, UpstreamError, UpstreamProtocolError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.pass_extensions.settings import fault_of
from mcp_toolset.protocol.json_rpc import INVALID_PARAMS, MCPError
from mcp_toolset.protocol.methods import is_of_mcp
from mcp_toolset.server.client_side import SERVERS_META_KEY
from mcp_toolset.tools.hidden_text import in_log

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.extension import Answer
    from mcp_toolset.extending.host import Host
    from mcp_toolset.extensions.pass_extensions.settings import PassExtensionsSettings
    from mcp_toolset.tools.call import Identity, ToolContext
    from mcp_toolset.tools.source import ToolSource

SERVER_META_KEY: Final = "mcp-toolset/server"
"""In the `_meta` of a request or notification of an extension: the name of the mounted server it is for."""

NOTIFY_TIMEOUT: Final = 5.0  # seconds that a notification may wait for its server

Tables = Mapping[str, Mapping[str, Any]]
"""Declared extensions: settings by identifier, in `extensions` and `experimental`."""

_METHOD: Final = re.compile(r"(?!.{257})[\w-][\w.-]*(?:/[\w.-]+)*", re.ASCII)

_log = logging.getLogger("mcp_toolset.server")


@dataclass(frozen=True, slots=True)
class _Passing:
    """The extensions of one server that pass."""

    tables: Tables  # those that pass
    declared: frozenset[str]  # the identifiers of all that the server declares
    is_limited: bool  # true if a list says what passes, so that a method has to be named after it

    def takes(self, method: str, shared: Collection[str]) -> bool:
        """True for a method that may be of an extension that passes.

        Args:
            method: The name, which is none of MCP.
            shared: The identifiers of these extensions that the client declares too.
        """
        name = method.removeprefix("notifications/")
        if not _METHOD.fullmatch(name) or not shared:
            return False
        if any(_has(name, one) for one in shared):
            return True
        others = {*self.declared, *homes("carries")} - set(shared)
        if any(_names(name, one) for one in others):
            return False
        if any(_names(name, one) for one in shared):
            return True
        has_vendor = "." in name.partition("/")[0]
        return not self.is_limited and (not has_vendor or any(_is_near(name, one) for one in shared))


class PassExtensions(Extension):
    """Passes extensions on between clients and mounted servers; see docs/passing-extensions.md."""

    key = "pass_extensions"
    carries: ClassVar[tuple[str, ...]] = ("*",)

    def __init__(self, names: Sequence[str] | None = None) -> None:
        """Say which extensions are passed on.

        Args:
            names: Identifiers, or patterns (`fnmatch`) of identifiers. By default all, unless a policy says
                which tools exist: then none.

        Raises:
            DefinitionError: `names` is no list, or a pattern of it is none.
        """
        if isinstance(names, str):
            raise DefinitionError(f"pass_extensions takes a list of identifiers: write [{names!r}]")
        if not (names is None or isinstance(names, Sequence)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(
                f"pass_extensions takes True, False or a list of identifiers, not {names!r}"
            )
        for name in names or ():
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise DefinitionError(f"pass_extensions: {name!r} is no identifier; write it as a text")
            if fault := fault_of(name):
                raise DefinitionError(f"pass_extensions: {name!r} {fault[0]}; {fault[1]}")
        self._names = names
        self._passed: dict[str, _Passing] = {}

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """The extension for a keyword: `True` for all, or a list. What a file states is read later."""
        return cls(("*",) if said is True else said)

    @classmethod
    def at_restart(cls, before: Settings | None, now: Settings | None) -> bool:
        """Always false: what passes is looked up at each compilation."""
        return False

    def compiled(self, sources: Mapping[str, ToolSource]) -> None:
        """Find out which extensions each server declares and may have, and have it told of them."""
        self._passed = {}
        for name, source in sources.items():
            # What a server declares to one caller is not for others.
            if isinstance(source, MountedSource) and not source.is_personal:
                passing = self._passing(name, source.offers.extensions())
                tables = passing.tables.items()
                source.carry({one: kind for kind, table in tables for one in table}, passing.takes)
                if tables:
                    self._passed[name] = passing

    def intercept(self, method: str, answer: Answer) -> Answer:
        """Tell of extensions at the handshake, and pass on requests that the server does not know."""
        if method in ("initialize", "server/discover"):
            return partial(self._introduced, answer)
        return partial(self._passed_on, answer) if not method else answer

    async def notified(self, request: RequestContext) -> None:
        """Pass a client's notification on to the server that it is for."""
        if is_of_mcp(request.method, notification=True):
            return
        context, params = WireContext(request), _params(request)
        try:
            server = self._server(request, context)
            if server is not None:
                with anyio.fail_after(NOTIFY_TIMEOUT):
                    await self.host.servers(context.identity)[server].tell(request.method, params, context)
        # Nobody waits for an answer.
        except (MCPError, UpstreamError, TimeoutError) as fault:
            _log.info("%s of a client is not passed on: %s", in_log(request.method), in_log(fault))

    def _passing(self, server: str, declared: Tables) -> _Passing:
        patterns = self._patterns(server)
        known = {*homes("carries"), *self.host.identifiers}
        found = {
            kind: {
                name: settings
                for name, settings in declared.get(kind, {}).items()
                if name not in known and any(fnmatchcase(name, pattern) for pattern in patterns)
            }
            for kind in EXTENSION_TABLES
        }
        return _Passing(
            {kind: table for kind, table in found.items() if table},
            frozenset(name for table in declared.values() for name in table),
            "*" not in patterns,
        )

    def _patterns(self, server: str) -> Collection[str]:
        """The patterns of what passes for a server: its entry comes first, then a program, then the file."""
        of_server: Any = self.host.stated_by_server(self.key).get(server)
        of_file = cast("PassExtensionsSettings | None", self.host.stated(self.key))
        if of_file is not None and not of_file.names:
            return ()
        every: list[Any] = [
            getattr(of_server, "pass_extensions", None),
            self._names,
            getattr(of_file, "names", None),
        ]
        chosen = next((one for one in every if one is not None), self.host.policy is None)
        if isinstance(chosen, Sequence):
            return cast("Sequence[str]", chosen)
        return ("*",) if chosen else ()

    def _seen(self, identity: Identity | None) -> dict[str, _Passing]:
        """The extensions that pass, of each server that exists for a caller."""
        if not self._passed:
            return {}
        seen = self.host.servers(identity)
        return {name: passed for name, passed in self._passed.items() if name in seen}

    async def _introduced(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        result = await answer(request)
        params = request.params or {}
        is_first = request.method == "initialize"
        client = extensions_in(
            params.get("capabilities") if is_first else request.connection.client_capabilities
        )
        if not (seen := self._seen(request.identity)):
            return result
        capabilities = dict(result["capabilities"])
        for name, (kinds, settings) in _merged(one.tables for one in seen.values()).items():
            # A client reads the table that it writes itself.
            for kind in [kind for kind, table in client.items() if name in table] or kinds:
                capabilities[kind] = {name: settings, **capabilities.get(kind, {})}
        meta = dict(result.get("_meta") or {})
        tables = {name: one.tables for name, one in seen.items()}
        servers = [{**one, **tables.get(one["name"], {})} for one in meta.get(SERVERS_META_KEY, ())]
        return {**result, "capabilities": capabilities, "_meta": {**meta, SERVERS_META_KEY: servers}}

    async def _passed_on(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        context = WireContext(request)
        server = None if is_of_mcp(request.method) else self._server(request, context)
        if server is None:
            return await answer(request)
        offers = self.host.servers(context.identity)[server]

        async def ask(params: Mapping[str, Any], caller: ToolContext) -> Mapping[str, Any]:
            try:
                return await offers.ask(request.method, params, caller)
            except UpstreamProtocolError as fault:
                # The text is the server's: no name stands before it.
                raise UpstreamProtocolError(
                    server, fault.code, fault.reason, fault.data, plain=True
                ) from None

        return await self.host.relayed(request, ask)

    def _server(self, request: RequestContext, context: WireContext) -> str | None:
        """The server that a message of an extension is for; `None` if there is none.

        Raises:
            MCPError: it may be for several, or names one that does not have the extension.
        """
        client, seen = context.client_extensions, self._seen(context.identity)
        named = {
            name: {one for each in common.values() for one in each}
            for name, passing in seen.items()
            if (common := _both(passing.tables, client))
        }
        if (asked := context.meta.get(SERVER_META_KEY)) is not None:
            if asked not in named:
                known = ", ".join(sorted(named)) or "none"
                raise _refused(
                    f"{SERVER_META_KEY}: no such server has an extension that you declare; {known} has"
                )
            return str(asked) if seen[asked].takes(request.method, named[asked]) else None
        taking = {name: every for name, every in named.items() if seen[name].takes(request.method, every)}
        method = request.method.removeprefix("notifications/")
        for relates in (_names, _is_near, _is_any):
            if found := [
                name for name, every in taking.items() if any(relates(method, one) for one in every)
            ]:
                if len(found) == 1:
                    return found[0]
                raise _refused(
                    f"{request.method} may be for {' or '.join(sorted(found))}: say which one in _meta as "
                    f"{SERVER_META_KEY}"
                )
        return None


def _refused(message: str) -> MCPError:
    return MCPError(INVALID_PARAMS, message)


def _params(request: RequestContext) -> dict[str, Any]:
    return {key: value for key, value in (request.params or {}).items() if key != "_meta"}


def _both(declared: Tables, client: Tables) -> dict[str, dict[str, Any]]:
    """The extensions that both sides declare, in whichever table, with the settings of the first."""
    names = {name for table in client.values() for name in table}
    found = {
        kind: {name: settings for name, settings in table.items() if name in names}
        for kind, table in declared.items()
    }
    return {kind: table for kind, table in found.items() if table}


def _merged(servers: Iterable[Tables]) -> dict[str, tuple[list[str], Any]]:
    """By identifier, the tables that have it, and the settings on which all servers agree."""
    merged: dict[str, tuple[list[str], Any]] = {}
    for tables in servers:
        for kind, name, settings in ((kind, *one) for kind, table in tables.items() for one in table.items()):
            kinds, before = merged.get(name, ([], settings))
            same = before if before == settings else _common(before, settings)
            merged[name] = ([*dict.fromkeys((*kinds, kind))], same)
    return merged


def _common(one: Any, other: Any) -> dict[str, Any]:
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return {}
    theirs = cast("Mapping[str, Any]", other)
    mine = cast("Mapping[str, Any]", one)
    return {key: value for key, value in mine.items() if key in theirs and theirs[key] == value}


def _names(method: str, identifier: str) -> bool:
    """True if a method has the identifier, or the last part of it, as its first part."""
    return _has(method, identifier) or method.partition("/")[0] == identifier.rpartition("/")[2]


def _has(method: str, identifier: str) -> bool:
    """True if a method begins with the whole identifier."""
    return method == identifier or method.startswith(f"{identifier}/")


def _is_near(method: str, identifier: str) -> bool:
    """True if both are of one vendor."""
    return method.partition("/")[0] == identifier.partition("/")[0]


def _is_any(method: str, identifier: str) -> bool:
    return True


EXTENSION: Final = PassExtensions
