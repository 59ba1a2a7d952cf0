"""`Approvals`: calls that wait until a person allows them, in a file of servers and the command line.

An approval is for one call: of one caller, one tool with its definition, and its arguments. A granted one
lets that call through once, whichever process makes it; each step is one transaction.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Final, Literal, cast

from mcp_toolset._records import dataclass
from mcp_toolset.calls.permissions import CallToApprove
from mcp_toolset.concurrency.sqlite_file import SqliteFile, transaction
from mcp_toolset.errors import StoreError

LIFETIME: Final = 3600.0
"""Seconds for which a call waits for a decision, and after it for which the decision holds."""

MAX_WAITING: Final = 100
"""Approvals of one caller that may wait at a time."""

VARIABLE: Final = "MCP_TOOLSET_APPROVALS"
"""The environment variable that names another file; `off` for none."""

State = Literal["pending", "granted", "refused"]

_TABLES: Final = """CREATE TABLE IF NOT EXISTS approvals (
    id TEXT PRIMARY KEY, key TEXT NOT NULL UNIQUE, state TEXT NOT NULL, caller TEXT NOT NULL,
    who TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL,
    asked REAL NOT NULL, expires REAL NOT NULL, decider TEXT NOT NULL DEFAULT ''
)"""
_FILE: Final = SqliteFile(b"MTsa", (_TABLES,))
_FIELDS: Final = "id, state, who, server, tool, arguments, asked, expires, decider"


@dataclass(frozen=True, slots=True)
class Approval:
    """One call that waits, or that was decided about and not made since."""

    id: str  # what people name it by
    state: State  # `pending`, `granted` or `refused`
    who: str  # the caller; empty if unknown
    server: str  # the mounted server of the tool; empty for a local tool
    tool: str  # the public name of the tool
    arguments: str  # the arguments, shortened and without secrets
    asked: float  # when the call was made first, in seconds since the epoch
    expires: float  # until when it waits, or the decision holds
    decider: str = ""  # who has granted or refused it; empty if unknown


def approvals_path() -> Path | None:
    """The file, by `MCP_TOOLSET_APPROVALS` or else in the user's folder for state; `None` for none."""
    if said := os.environ.get(VARIABLE, ""):
        return None if said == "off" else Path(said)
    from platformdirs import user_state_path

    return user_state_path("mcp-toolset") / "approvals.sqlite3"


class Approvals:
    """The approvals in one file, or in memory. Methods wait for the disk: call them in a worker thread."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        lifetime: float = LIFETIME,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Use this file; the first call that waits creates it, readable by its owner only.

        Args:
            path: The file; `None` keeps them in memory, where no other process sees them.
            lifetime: Seconds for which a call waits, and for which a decision is valid.
            now: Seconds since the epoch.
        """
        self.path = None if path is None else Path(path)
        self.lifetime = lifetime
        self._now = now
        self._lock = RLock()
        self._memory: sqlite3.Connection | None = None

    def ask(self, call: CallToApprove) -> Approval:
        """The approval of a call, which stays valid; if there is none, the call waits for one from now on.

        Raises:
            StoreError: the file cannot be used, or too many calls of the caller wait.
        """
        with self._transaction() as file:
            return self._found(file, call)

    def claim(self, call: CallToApprove) -> Approval:
        """Use up the approval of a call; if there is none, the call waits for one from now on.

        Returns:
            The approval: if it is `granted`, the call may run now, and the approval is gone.

        Raises:
            StoreError: the file cannot be used, or too many calls of the caller wait.
        """
        with self._transaction() as file:
            found = self._found(file, call)
            if found.state == "granted":
                file.execute("DELETE FROM approvals WHERE id = ?", (found.id,))
            return found

    def waiting(self) -> list[Approval]:
        """All approvals that have not expired, the oldest first.

        Raises:
            StoreError: the file cannot be used.
        """
        if self.path is not None and not self.path.exists():
            return []
        with self._transaction() as file:
            query = f"SELECT {_FIELDS} FROM approvals WHERE expires > ? ORDER BY asked, id"
            return [Approval(*row) for row in file.execute(query, (self._now(),))]

    def decide(self, id: str, state: Literal["granted", "refused"], *, decider: str = "") -> Approval:
        """Grant or refuse; a decision can be changed until the call has been made.

        Args:
            id: The id of the approval.
            state: The decision.
            decider: Who decides, for the audit log.

        Raises:
            StoreError: no such approval waits, or the file cannot be used.
        """
        if self.path is None or self.path.exists():
            with self._transaction() as file:
                now = self._now()
                update = (
                    "UPDATE approvals SET state = ?, expires = ?, decider = ? WHERE id = ? AND expires > ?"
                )
                file.execute(update, (state, now + self.lifetime, decider, id, now))
                found = _one(file, "SELECT {} FROM approvals WHERE id = ? AND expires > ?", id, now)
            if found is not None:
                return found
        raise StoreError(f"no approval {id} waits: it was used, has expired, or is in another file")

    def _found(self, file: sqlite3.Connection, call: CallToApprove) -> Approval:
        now = self._now()
        file.execute("DELETE FROM approvals WHERE expires <= ?", (now,))
        return _one(file, "SELECT {} FROM approvals WHERE key = ?", call.key) or self._added(file, call, now)

    def _added(self, file: sqlite3.Connection, call: CallToApprove, now: float) -> Approval:
        many = "SELECT count(*) FROM approvals WHERE caller = ?"
        if file.execute(many, (call.caller,)).fetchone()[0] >= MAX_WAITING:
            raise StoreError(f"{MAX_WAITING} calls of this caller wait for an approval already")
        made = Approval(
            secrets.token_hex(4),
            "pending",
            call.who,
            call.server,
            call.tool,
            call.arguments,
            now,
            now + self.lifetime,
        )
        row = (made.id, call.key, made.state, call.caller, made.who, made.server, made.tool)
        put = "INSERT INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')"
        file.execute(put, (*row, made.arguments, made.asked, made.expires))
        return made

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        """One step that no other process can come between."""
        with self._lock:
            try:
                file = self._memory or _FILE.open(self.path)
                self._memory = file if self.path is None else None
                try:
                    with transaction(file):
                        yield file
                finally:
                    if file is not self._memory:
                        file.close()
            except (sqlite3.Error, OSError) as fault:
                raise StoreError(f"the approvals cannot be read or written: {fault}") from fault


def _one(file: sqlite3.Connection, query: str, *values: Any) -> Approval | None:
    row = file.execute(query.format(_FIELDS), values).fetchone()
    return None if row is None else Approval(*cast("tuple[Any, ...]", row))
