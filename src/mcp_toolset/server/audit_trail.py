"""`AuditTrail`: what a server records in its audit log beside calls: starts, grants, changed definitions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import reduce
from importlib.metadata import version
from os import PathLike
from typing import Any, Final, Protocol, runtime_checkable

import anyio
import anyio.to_thread

from mcp_toolset.catalog.grants.ledger import GrantLedger
from mcp_toolset.security.audit.audit_log import AuditLog
from mcp_toolset.server.reloadable import Reloadable
from mcp_toolset.tools.core.source import Scrubbing, ToolSource

TAKE_OVER: Final = 2.0
"""Seconds between two looks at what other processes have handed over."""

Audit = AuditLog | str | PathLike[str]
"""What is given as `audit=`: a log, or the path of its file."""


@runtime_checkable
class TellingLogins(Protocol):
    """A source at which callers log in."""

    def watch_logins(self, callback: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Call `callback` with the facts of each login that ends; return what stops this."""
        ...


class AuditTrail:
    """Tells the audit log of one server what happens to it.

    Attributes:
        log: The audit log.
    """

    def __init__(self, audit: Audit) -> None:
        """Nothing is recorded yet."""
        self.log = audit if isinstance(audit, AuditLog) else AuditLog(audit)
        self._seen: frozenset[tuple[str, str, str]] = frozenset()
        self._sources: tuple[Scrubbing, ...] = ()
        self._telling: tuple[TellingLogins, ...] = ()
        self._ends: list[Callable[[], None]] = []

    @asynccontextmanager
    async def running(self, grants: GrantLedger, facts: Callable[[], dict[str, Any]]) -> AsyncGenerator[None]:
        """Hold the log open for the length of a block, and follow the grants.

        Raises:
            AuditError: the log cannot be opened.
        """
        async with AsyncExitStack() as stack:
            await anyio.to_thread.run_sync(
                self.log.open, lambda: {**facts(), "toolset": version("mcp-toolset")}
            )
            stack.push_async_callback(self._close)
            stack.callback(grants.watch(self._of_grant))
            stack.callback(self._follow_logins, ())
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            group.start_soon(self._take_over)
            yield

    def digests(self, configured: Reloadable | None) -> dict[str, str]:
        """Digests of the configuration, by which its changes are seen; keyed, as a file may hold secrets."""
        path = None if configured is None else configured.config.path
        if path is None or not path.is_file():
            return {}
        return {"configuration": self.log.digest({"file": path.read_text(errors="replace")})}

    def look(self, sources: Mapping[str, ToolSource]) -> None:
        """Record the definitions that differ from their pins by now, and learn which secrets to blank."""
        scrubbing = tuple(source for source in sources.values() if isinstance(source, Scrubbing))
        if scrubbing != self._sources:
            self._sources = scrubbing
            self.log.redact(self, self._scrubbed)
        self._follow_logins(tuple(one for one in sources.values() if isinstance(one, TellingLogins)))
        changes = {
            (name, change.name, change.offered.digest): change
            for name, source in sources.items()
            for change in source.status.changes
        }
        for (server, tool, digest), change in changes.items():
            if (server, tool, digest) not in self._seen:
                self.log.record(
                    "definition_changed",
                    server=server,
                    tool=tool,
                    held=change.held,
                    reason=change.reason,
                    gained=change.gained,
                    pinned=change.pinned.digest if change.pinned else None,
                    offered=digest,
                )
        self._seen = frozenset(changes)

    async def _take_over(self) -> None:
        """Record what commands in other processes do, such as logins to mounted servers."""
        # Other processes set no event here.
        while True:
            await anyio.to_thread.run_sync(self.log.take_over)
            await anyio.sleep(TAKE_OVER)

    def _follow_logins(self, telling: tuple[TellingLogins, ...]) -> None:
        if telling == self._telling:
            return
        for end in self._ends:
            end()
        self._telling = telling
        self._ends = [
            source.watch_logins(lambda facts: self.log.record("login", **facts)) for source in telling
        ]

    def _of_grant(self, what: str, /, **facts: Any) -> None:
        kind, _, owner = (facts.pop("owner", None) or "").partition(":")
        who = {"key" if kind == "principal" else "session": owner}
        # The key of a grant is a digest of its handle, so the grant cannot be used by it.
        grant = str(facts.pop("grant", None) or "")[:16]
        self.log.record("grant", outcome=what, **who, grant=grant, **facts)

    def _scrubbed(self, text: str) -> str:
        return reduce(lambda clear, source: source.scrubbed(clear), self._sources, text)

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.log.take_over)
            await anyio.to_thread.run_sync(self.log.close)
