"""`Journal`: the calls of a server are recorded, so that a repeat of one has no second effect."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import copy
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast
from uuid import uuid4

from mcp_toolset._records import replace
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.journal.guard import JournalGuard
from mcp_toolset.extensions.journal.journal_store import NAME
from mcp_toolset.extensions.journal.settings import JournalOfServer, JournalSettings
from mcp_toolset.tools.binding import Executor, ToolBinding
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.transform import arrange, hide

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings, Settings
    from mcp_toolset.extending.host import Host
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.stores.store import StorePlace
    from mcp_toolset.tools.toolset import Toolset


META: Final = "_meta."
ARGUMENTS: Final = "arguments."
_log = logging.getLogger("mcp_toolset.tools")


def _told_key(server: str, places: Mapping[str, str], binding: ToolBinding) -> ToolBinding:
    """The tool that is told the key of each call; unchanged if there is no place for it.

    `places` has `_meta.NAME` or `arguments.NAME`, by patterns of the server's own names for its tools.
    """
    tool = binding.definition.name
    fitting = [one for one in places if one == tool or fnmatchcase(tool, one)]
    if not fitting:
        return binding
    pattern = max(fitting, key=lambda one: (one == tool, len(one.replace("*", ""))))
    place = places[pattern]
    if place.startswith(META):
        run = partial(_in_meta, place.removeprefix(META), binding.execute)
        return replace(binding, execute=run)
    try:
        return _in_argument(binding, place.removeprefix(ARGUMENTS))
    except DefinitionError as fault:
        if pattern == tool:
            _log.warning("%s: no key is sent with its calls: %s", in_log(server), in_log(fault))
        return binding


def _in_argument(binding: ToolBinding, name: str) -> ToolBinding:
    shown = arrange(binding, {name: hide(value=str(uuid4()))})
    assert shown.arguments is not None
    return replace(
        binding,
        definition=shown.definition,
        arguments=shown.arguments,
        execute=partial(_filled, binding, name),
        prepare=None,
    )


async def _filled(binding: ToolBinding, name: str, call: ToolCall, context: ToolContext) -> ToolResult:
    call = call.with_arguments({**call.arguments, name: _key(call)})
    return await binding.execute(call if binding.prepare is None else binding.prepare(call, context), context)


async def _in_meta(name: str, execute: Executor, call: ToolCall, context: ToolContext) -> ToolResult:
    meta = cast("Mapping[str, Any]", call.meta or {})
    return await execute(replace(call, meta={**meta, name: _key(call)}), context)


def _key(call: ToolCall) -> str:
    """The key of a call; without a journal each call has another one."""
    return call.key or str(uuid4())


class Journal(Extension):
    """The journal of one server."""

    key: ClassVar = "journal"
    in_views: ClassVar = "shared"
    _guard: JournalGuard

    def __init__(self, said: StorePlace | JournalGuard | None = None) -> None:
        """Record calls.

        Args:
            said: The path of a file, the URL of a store, a `Store`, or a guard with rules of its own; unless
                given, the store of the configuration, of the replicas, or the file of the user.
        """
        self._said = said

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """Build the extension from its keyword; later changes of the configuration hold, too."""
        return cls(None if said is True else said)

    def bind(self, host: Host) -> Self:
        """Find the store.

        Raises:
            ConfigError: the store cannot be used, or replicas would record calls in files, one each.
        """
        bound = copy(self)
        bound.host = host
        bound._find(host.shared)
        return bound

    def _find(self, shared: SharedState | None) -> None:
        self._rules = self._ruled()
        said, stated = self._said, self._stated()
        self._given = isinstance(said, JournalGuard)
        if isinstance(said, JournalGuard):
            self._guard = said
        else:
            stored = stated and (stated.store or stated.path)
            common = None if shared is None else shared.store(NAME)
            self._guard = self._made(said if said is not None else stored or common)
        if shared is not None:
            from mcp_toolset.stores.sqlite import FileStore

            if isinstance(store := self._guard.journal.store, FileStore):
                raise ConfigError(
                    f"the journal {store.path} is a file, and replicas may run on other machines, where a "
                    "repeat of a call would run again: leave the file out, so that calls are recorded in the "
                    "shared store, or name a `store` that all replicas reach"
                )

    def guard(self) -> JournalGuard:
        """The guard that records calls, as the configuration says now."""
        if not self._given and (rules := self._ruled()) != self._rules:
            self._rules, serves_one = rules, self._guard.serves_one
            self._guard = self._made(self._guard.journal.store)
            self._guard.serves_one = serves_one
        self._guard.told_keys = {name: [*one.places] for name, one in self._by_server().items()}
        return self._guard

    def alone(self) -> None:
        self._guard.serves_one = True

    def lifespan(self) -> JournalGuard:
        """The store is open before tools can be called."""
        return self._guard

    @classmethod
    def mounted(cls, server: str, stated: ServerSettings, tools: Toolset) -> Toolset:
        """Tell the tools the keys of calls, where the entry says so."""
        places = cast("JournalOfServer", stated).places
        if not places:
            return tools
        from mcp_toolset.tools.toolset import Transformed
        from mcp_toolset.tools.view import Each

        return Transformed(tools, Each(partial(_told_key, server, places)))

    def _made(self, place: StorePlace | None) -> JournalGuard:
        stated, servers = self._stated(), self._by_server()
        own = {name: one.modes for name, one in servers.items() if one.modes}
        if stated is None:
            return JournalGuard(place, servers=own, served=self.host.identified)
        return JournalGuard(
            place,
            stated.tools,
            servers=own,
            read_only=stated.read_only,
            served=self.host.identified,
            ttl=stated.ttl,
            timeout=stated.timeout,
            max_result_bytes=stated.max_result_bytes,
        )

    def _ruled(self) -> object:
        """The settings behind the rules, for comparison."""
        return self._stated(), self._by_server()

    def _stated(self) -> JournalSettings | None:
        return cast("JournalSettings | None", self.host.stated("journal"))

    def _by_server(self) -> dict[str, JournalOfServer]:
        return {
            name: cast("JournalOfServer", one) for name, one in self.host.stated_by_server("journal").items()
        }


EXTENSION = Journal
