"""`CallJournal`: the journal of one server: where it is, and what applies it to the server's calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from os import PathLike
from typing import TYPE_CHECKING, cast

from mcp_toolset.calls.journal.guard import JournalGuard
from mcp_toolset.calls.journal.journal import LIFETIME, Journal
from mcp_toolset.calls.journal.rules import JournalRules
from mcp_toolset.calls.journal.sqlite_journal import SqliteJournal
from mcp_toolset.errors import ConfigError, DefinitionError
from mcp_toolset.server.reloadable import Reloadable

if TYPE_CHECKING:
    from mcp_toolset.config.models import HubConfig, JournalConfig
    from mcp_toolset.context.shared import Shared

    Journaled = Journal | JournalGuard | str | PathLike[str] | bool


class CallJournal:
    """The journal of one server.

    Attributes:
        guard: What records its calls now; another object once the configuration says otherwise.
    """

    def __init__(
        self,
        said: Journaled | None,
        configured: Reloadable | None,
        served: Callable[[], str],
        shared: Shared | None = None,
    ) -> None:
        """Use what the program has given, else what the configuration says.

        Args:
            said: The journal, its file, `True` for that of the user, or a guard with rules of its own.
            configured: The configuration that is served.
            served: What tells the server from others that share a journal.
            shared: What replicas share: their journal too, unless a store is named.
        """
        self._configured = configured
        self._served = served
        self._given = isinstance(said, JournalGuard)
        self._rules: object = self._ruled()
        self.guard = said if isinstance(said, JournalGuard) else self._made(self._found(said, shared))
        if shared is not None and isinstance(self.guard.journal, SqliteJournal):
            raise ConfigError(
                f"the journal {self.guard.journal.path} is a file, and replicas may run on other machines, "
                "where a repeat of a call would run again: leave the file out, so that calls are recorded in "
                "the shared store, or name a `store` that all replicas reach"
            )

    def current(self) -> JournalGuard:
        """What records the calls, as the configuration says now."""
        if not self._given and (rules := self._ruled()) != self._rules:
            self._rules, serves_one = rules, self.guard.serves_one
            self.guard = self._made(self.guard.journal)
            self.guard.serves_one = serves_one
        return self.guard

    def _found(self, said: Journaled | None, shared: Shared | None) -> Journal:
        """The journal that is given, else that of the configuration, the replicas, or the user."""
        if isinstance(said, Journal) and not isinstance(cast("object", said), type):
            return said
        if isinstance(said, str | PathLike):
            return SqliteJournal(str(said))
        if said is not None and not isinstance(cast("object", said), bool):
            raise DefinitionError(f"journal takes a Journal, a JournalGuard, a path or True, not {said!r}")
        stated = self._stated()
        lifetime = LIFETIME if stated is None else stated.lifetime
        configured = None if self._configured is None else self._configured.journal()
        if configured is not None:
            return configured
        return SqliteJournal(lifetime=lifetime) if shared is None else shared.journal(lifetime)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The journal is open for the length of a block."""
        async with self.guard.journal:
            yield

    def _made(self, journal: Journal) -> JournalGuard:
        stated, config = self._stated(), self._config()
        servers = {} if config is None else {one.name: one.journal for one in config.servers if one.journal}
        if stated is None:
            return JournalGuard(journal, JournalRules(servers=servers), served=self._served())
        rules = JournalRules(stated.tools, servers, reads=stated.reads)
        return JournalGuard(journal, rules, served=self._served(), wait=stated.wait, most=stated.most)

    def _ruled(self) -> object:
        """What the rules are made of, to be compared."""
        config = self._config()
        return (
            None if config is None else (config.journal, [(one.name, one.journal) for one in config.servers])
        )

    def _config(self) -> HubConfig | None:
        return None if self._configured is None else self._configured.config

    def _stated(self) -> JournalConfig | None:
        config = self._config()
        return None if config is None else config.journal
