"""`Journal`: the calls of a server are recorded, so that a repeat of one has no second effect."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from mcp_toolset.context.shared import Shared
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.journal.guard import JournalGuard
from mcp_toolset.extensions.journal.journal_store import (
    LIFETIME,
    NAME,
    JournalStore,
    SqliteJournal,
    journal_at,
)
from mcp_toolset.extensions.journal.rules import JournalRules
from mcp_toolset.extensions.journal.settings import JournalOfServer, JournalSettings

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import ServerSettings, Settings
    from mcp_toolset.extending.host import Host
    from mcp_toolset.tools.toolset import Toolset

    Journaled = JournalStore | JournalGuard | str | PathLike[str]


class Journal(Extension):
    """The journal of one server."""

    key: ClassVar = "journal"
    _guard: JournalGuard

    def __init__(self, said: Journaled | None = None) -> None:
        """Record calls.

        Args:
            said: The store, the path of a file, or a guard with rules of its own; unless given, the store of
                the configuration, of the replicas, or the file of the user.
        """
        self._said = said

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        """See `Extension`; what is stated holds as it is read again."""
        return cls(None if said is True else said)

    def bind(self, host: Host) -> Self:
        """Find the store.

        Raises:
            ConfigError: the store cannot be used, or replicas would record calls in files, one each.
        """
        bound = copy(self)
        bound.host = host
        bound._find(host.need(Shared))
        return bound

    def _find(self, shared: Shared | None) -> None:
        self._rules = self._ruled()
        said = self._said
        self._given = isinstance(said, JournalGuard)
        self._guard = said if isinstance(said, JournalGuard) else self._made(self._store(said, shared))
        if shared is not None and isinstance(self._guard.journal, SqliteJournal):
            raise ConfigError(
                f"the journal {self._guard.journal.path} is a file, and replicas may run on other "
                "machines, where a repeat of a call would run again: leave the file out, so that calls are "
                "recorded in the shared store, or name a `store` that all replicas reach"
            )

    def guard(self) -> JournalGuard:
        """What records the calls, as the configuration says now."""
        if not self._given and (rules := self._ruled()) != self._rules:
            self._rules, serves_one = rules, self._guard.serves_one
            self._guard = self._made(self._guard.journal)
            self._guard.serves_one = serves_one
        return self._guard

    def alone(self) -> None:
        """See `Extension`."""
        self._guard.serves_one = True

    def lifespan(self) -> AbstractAsyncContextManager[object]:
        """The store is open before tools can be called."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        async with self._guard.journal:
            yield

    @classmethod
    def mounted(cls, server: str, stated: ServerSettings, tools: Toolset) -> Toolset:
        """Tell the tools the keys of calls, where the entry says so."""
        places = cast("JournalOfServer", stated).places
        if not places:
            return tools
        from mcp_toolset.extensions.journal.key_places import KeyPlaces
        from mcp_toolset.tools.toolset import Transformed
        from mcp_toolset.tools.view import Each

        return Transformed(tools, Each(KeyPlaces(server, places)))

    def _store(self, said: Journaled | None, shared: Shared | None) -> JournalStore:
        """The store that is given, else that of the configuration, the replicas, or the user."""
        if isinstance(said, JournalStore):
            return said
        if isinstance(said, str | PathLike):
            return journal_at(said if isinstance(said, str) and "://" in said else Path(said))
        if said is not None:
            raise DefinitionError(
                f"journal takes a JournalStore, a JournalGuard, a path or True, not {said!r}"
            )
        stated = self._stated()
        lifetime = LIFETIME if stated is None else stated.lifetime
        if stated is not None and (stated.store or stated.path):
            return journal_at(stated.store or stated.path, lifetime=lifetime)
        if shared is None:
            return SqliteJournal(lifetime=lifetime)
        return JournalStore(shared.store(NAME), lifetime=lifetime)

    def _made(self, store: JournalStore) -> JournalGuard:
        stated, servers = self._stated(), self._by_server()
        own = {name: one.modes for name, one in servers.items() if one.modes}
        if stated is None:
            return JournalGuard(store, JournalRules(servers=own), served=self.host.identified)
        rules = JournalRules(stated.tools, own, reads=stated.read_only)
        return JournalGuard(
            store, rules, served=self.host.identified, wait=stated.wait, most=stated.result_bytes
        )

    def _ruled(self) -> object:
        """What the rules are made of, to be compared."""
        return self._stated(), self._by_server()

    def _stated(self) -> JournalSettings | None:
        return cast("JournalSettings | None", self.host.stated("journal"))

    def _by_server(self) -> dict[str, JournalOfServer]:
        return {
            name: cast("JournalOfServer", one) for name, one in self.host.stated_by_server("journal").items()
        }


EXTENSION = Journal
