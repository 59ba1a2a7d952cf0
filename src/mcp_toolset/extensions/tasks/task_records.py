"""`TaskRecords`: what other processes know of the tasks of a server: their ids, places and outcomes.

An id is a sealed suspended call (`calls.suspended`), bound to its owner. Another process goes on with it if
the two have the keys in common: with a store for suspended calls, or a store that replicas share.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcp_toolset.calls.suspended.sealed import Sealer, Suspended
from mcp_toolset.calls.suspended.store import SuspendedStore
from mcp_toolset.context.shared import Shared
from mcp_toolset.errors import CallError, RequestStateError, StoreError
from mcp_toolset.security.secrets.key_ring import KeyRing
from mcp_toolset.tools.text.hidden_text import in_log

MAX_ID: Final = 4096
"""Characters of an id; it travels in a header of each request about its task."""

LOOK: Final = 5.0
"""Seconds that a request for the state of a task waits for the mounted server's answer."""

_KIND: Final = "task"
_OUTCOME: Final = "task outcome"
_log = logging.getLogger("mcp_toolset.server")

Wire = Mapping[str, Any]


class TaskRecords:
    """What other processes know of the tasks of one server.

    Attributes:
        outlive: Whether ids can be used in another process.
    """

    def __init__(self, store: SuspendedStore | None, shared: Shared | None) -> None:
        """Use the keys of a store; without one, ids end with this process."""
        self._store = store
        self._shared = shared
        self._kept = None if store is None else store.kept(_KIND)
        self._fresh: KeyRing | None = None
        self._sealer = Sealer(_KIND, self._keys)
        self.outlive = store is not None

    def serve(self, answer: Callable[[Wire], Awaitable[Wire | None]]) -> None:
        """Let other replicas ask about tasks that are here."""
        if self._shared is not None:
            self._shared.replicas.serve(_KIND, answer)

    def seal(self, state: Wire, owner: str, seconds: float, tools: Mapping[str, str] | None = None) -> str:
        """The id of a task in this state, for its owner; empty if it is too long."""
        at = "" if self._shared is None else self._shared.replicas.own
        id = self._sealer.seal({**state, "at": at}, who=owner, what=_KIND, seconds=seconds, tools=tools)
        return id if len(id) <= MAX_ID else ""

    def is_own(self, id: object) -> bool:
        """Whether a value is the id of a task of this server's, of this process or another one."""
        return isinstance(id, str) and self._sealer.is_own(id)

    def open(self, id: str, owner: str) -> Suspended | None:
        """The state in an id; `None` if it is none of ours, of another owner, or its time is over."""
        if len(id) > MAX_ID or not self._sealer.is_own(id):
            return None
        try:
            return self._sealer.open(id, who=owner, what=_KIND)
        except RequestStateError as fault:
            _log.warning("a task is not found: %s", in_log(str(fault)))
            return None

    def require_same(self, sealed: Suspended, tools: Mapping[str, str]) -> None:
        """Check the definition of the tool; raises `RequestStateError`."""
        self._sealer.require_same(sealed, tools)

    async def elsewhere(self, id: str, at: str, what: str, answers: Wire) -> Wire | None:
        """What the replica says that has the task; `None` if that is this one, or gone."""
        shared = self._shared
        params = {"id": id, "what": what, "answers": dict(answers)}
        while shared is not None and at not in ("", shared.replicas.own):
            try:
                return await shared.replicas.ask(at, _KIND, params, within=2 * LOOK) or None
            except (CallError, StoreError):
                before, at = at, (await self._got(_place_of(id)) or b"").decode()
                if at == before or not at:
                    await self._require_gone(before)
                    return None
        return None

    async def note_place(self, id: str, *, seconds: float) -> None:
        """Tell other replicas that a task goes on here."""
        if self._shared is not None:
            await self._put(_place_of(id), self._shared.replicas.own.encode(), seconds)

    async def keep(self, id: str, wire: Wire, *, seconds: float) -> None:
        """Keep how a task has ended; the data opens with its id."""
        if self._kept is not None:
            sealed = self._keys().seal(_OUTCOME, json.dumps(wire).encode(), bound=id)
            await self._put(_name_of(id), sealed.encode(), seconds)

    async def outcome(self, id: str) -> dict[str, Any] | None:
        """How a task has ended; `None` if that is not known."""
        data = await self._got(_name_of(id))
        if data is None:
            return None
        found = self._keys().open(_OUTCOME, data.decode("ascii", "replace"), bound=id)
        return None if found is None else json.loads(found)

    async def _require_gone(self, replica: str) -> None:
        if self._shared is not None and await self._shared.replicas.lives(replica):
            raise CallError("the replica that has the task gave no answer; ask again later")

    async def _put(self, name: str, data: bytes, seconds: float) -> None:
        try:
            if self._kept is not None and seconds > 0:
                await self._kept.put(name, data, seconds=seconds)
        except StoreError as fault:
            _log.error("%s", fault)

    async def _got(self, name: str) -> bytes | None:
        return None if self._kept is None else await self._kept.get(name)

    def _keys(self) -> KeyRing:
        if self._store is not None:
            return self._store.keys
        if self._fresh is None:
            self._fresh = KeyRing.fresh()
        return self._fresh


def _place_of(id: str) -> str:
    return f"{_name_of(id)}.at"


def _name_of(id: str) -> str:
    """What a store calls a task; its id itself is a secret of the client's."""
    return hashlib.blake2b(id.encode(), digest_size=16).hexdigest()
