"""`GrantLedger`: the only judge of whether a deferred tool may run.

A grant is bound to its owner, to the source, the server behind it, the tool and the digest of its
definition, and it expires. Its handle carries the tool's name, so that a model copies it without
error, and 96 random bits, so that nobody guesses it. Whoever is not the owner learns nothing;
the owner is told what happened, and what has moved.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from mcp_toolset.catalog.grants.clock import SteadyClock
from mcp_toolset.catalog.grants.difference import difference
from mcp_toolset.catalog.grants.store import (
    MAX_GRANTS,
    GrantFilter,
    GrantRecord,
    GrantStore,
    MemoryGrantStore,
    ToolGrant,
    key_of,
)
from mcp_toolset.errors import DefinitionError, GrantError
from mcp_toolset.tools.core.asking import REPLAY_META_KEY
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.result import encodable
from mcp_toolset.tools.view.view import ToolBinding

__all__ = [
    "GrantFilter",
    "GrantLedger",
    "GrantRecord",
    "GrantStore",
    "MemoryGrantStore",
    "SteadyClock",
    "ToolGrant",
    "owner_of",
    "replay_key",
]

OWNED_LIFETIME: Final = 3600.0
"""Seconds that a grant lives when it is bound to a session or a principal."""

BEARER_LIFETIME: Final = 900.0
"""Seconds that a grant lives when its handle is all that binds it."""

SKEW: Final = 5.0
"""Seconds that the clocks of processes that share a store may differ."""

LONGEST_REFERENCE: Final = 400
"""Characters of a handle, and of a replay key; nothing longer is ever issued or looked for."""

_PURGE_EVERY: Final = 500
_AGAIN: Final = "search for it and resolve it again"


def owner_of(context: ToolContext) -> str:
    """Whom a grant of this caller is bound to: principal, else session, else nobody (the handle alone)."""
    if context.principal:
        return f"principal:{context.principal}"
    return f"session:{context.session}" if context.session else ""


def replay_key(context: ToolContext) -> str:
    """The replay key that a request carries in its `_meta`; empty without one, or without an owner.

    Callers that cannot be told apart are given none: one could have what another resolved.
    """
    key: object = context.meta.get(REPLAY_META_KEY)
    usable = isinstance(key, str) and 0 < len(key) <= LONGEST_REFERENCE and bool(owner_of(context))
    return encodable(str(key)) if usable else ""


class GrantLedger:
    """Issues grants, checks them and takes them back."""

    def __init__(
        self,
        store: GrantStore | None = None,
        *,
        lifetime: float = OWNED_LIFETIME,
        bearer_lifetime: float = BEARER_LIFETIME,
        bearer_uses: int | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        """Keep grants in `store`, in memory unless told.

        Args:
            store: Where they are kept.
            lifetime: Seconds that a grant of a session or a principal lives.
            bearer_lifetime: Seconds that a grant lives whose handle is all that binds it.
            bearer_uses: How often such a grant can be used; any number of times unless given.
            now: The time, in seconds since the epoch; it must not run backwards.

        Raises:
            DefinitionError: a number is not positive.
        """
        if not (lifetime > 0 and bearer_lifetime > 0 and (bearer_uses is None or bearer_uses > 0)):
            raise DefinitionError("the lifetimes and uses of grants are positive numbers")
        self._store: GrantStore = store or MemoryGrantStore()
        self._lifetime = lifetime
        self._bearer_lifetime = bearer_lifetime
        self._bearer_uses = bearer_uses
        self._now = now or SteadyClock()
        self._added = 0
        self._issued: OrderedDict[str, int] = OrderedDict()
        self._listeners: dict[object, Callable[[], None]] = {}

    @property
    def waits(self) -> bool:
        """Whether issuing may wait for a disk, so that it belongs in a worker thread."""
        return self._store.waits

    def issue(self, binding: ToolBinding, context: ToolContext) -> ToolGrant:
        """Grant a tool to a caller; `GrantStoreError` if it cannot be kept."""
        grant = self.resolved([(binding.name, binding)], context)[0].grant
        assert grant is not None
        return grant

    def resolved(
        self, asked: Sequence[tuple[str, ToolBinding | str]], context: ToolContext, replay: str = ""
    ) -> list[GrantRecord]:
        """Record what came of each id: a grant for a binding, a refusal for a reason.

        Under a replay key an id keeps what first came of it, whatever is asked now.

        Raises:
            GrantStoreError: nothing could be kept; nothing is granted.
        """
        owner, now = owner_of(context), self._now()
        records = [
            GrantRecord(owner, replay, encodable(id), now, now + self._lifetime, reason=found)
            if isinstance(found, str)
            else self._record(found, id, owner, replay, now)
            for id, found in asked
        ]
        definitions = {
            found.definition.digest: found.definition.to_wire()
            for _, found in asked
            if not isinstance(found, str)
        }
        stands = self._store.add(records, definitions)
        self._count(owner, sum(record.grant is not None for record in records), now)
        return stands

    def recorded(self, id: str, context: ToolContext, replay: str) -> GrantRecord | None:
        """What came of an id under the caller's replay key."""
        if not replay:
            return None
        return self._store.recorded(owner_of(context), replay, encodable(id))

    def find(self, reference: str, context: ToolContext) -> ToolGrant | None:
        """The grant behind a handle, or behind a public name that the caller's session holds.

        Raises:
            GrantStoreError: the store cannot be read.
        """
        if len(reference) > LONGEST_REFERENCE or encodable(reference) != reference:
            return None
        owner = owner_of(context)
        grant = self._store.get(key_of(reference))
        if grant is None and owner:
            grant = self._store.latest(owner, reference)
        if grant is None or grant.owner != owner:
            return None
        return grant if grant.handle else replace(grant, handle=reference)

    def check(self, grant: ToolGrant, binding: ToolBinding | None) -> None:
        """Refuse a grant that is no longer good; only for the eyes of its owner.

        Raises:
            GrantError: it was taken back, expired or used up, its tool is gone, or the definition or
                the server has changed.
        """
        fault = self.lapsed(grant) or self.moved(grant, binding)
        if fault:
            raise GrantError(f"{fault}; {_AGAIN}")

    def lapsed(self, grant: ToolGrant) -> str:
        """Why a grant has ended by itself or by the host; empty while it has not."""
        now = self._now()
        if grant.revoked:
            return f"the grant for {grant.name} was taken back"
        if now >= grant.expires or grant.issued > now + SKEW:
            return f"the grant for {grant.name} has expired"
        return f"the grant for {grant.name} is used up" if grant.uses == 0 else ""

    def moved(self, grant: ToolGrant, binding: ToolBinding | None) -> str:
        """What is no longer as it was granted; empty while all is."""
        if binding is None:
            return f"{grant.name} is no longer in the catalog"
        if (binding.source, _id(binding)) != (grant.source, grant.tool):
            return f"{grant.name} now belongs to another server or tool than the one granted"
        endpoint, listed = _behind(binding)
        if endpoint != grant.endpoint:
            return f"{grant.name} now comes from another server than the one granted"
        if binding.definition.digest != grant.digest:
            return (
                f"the definition of {grant.name} has changed since it was granted{self._how(grant, binding)}"
            )
        if listed != grant.listed:
            return f"the definition of {grant.name} has just changed at its server"
        return ""

    def use(self, grant: ToolGrant) -> bool:
        """Use up one use of a grant that has only so many; whether there was one left."""
        return grant.uses is None or self._store.take(grant.key)

    def remaining(self, grant: ToolGrant) -> int:
        """Seconds that a grant still lasts."""
        return max(0, int(grant.expires - self._now()))

    def give_back(self, grant: ToolGrant) -> None:
        """Return a use of a call that came to nothing."""
        if grant.uses is not None:
            self._store.give_back(grant.key)

    def held(self, context: ToolContext) -> list[ToolGrant]:
        """The caller's newest grant for each name, while it lasts; none without a session or principal."""
        owner = owner_of(context)
        if not owner:
            return []
        return [grant for grant in self._store.held(owner) if not self.lapsed(grant)]

    def names(self, context: ToolContext) -> list[str]:
        """The public names that the caller holds live grants for; empty without a session or principal."""
        return [grant.name for grant in self.held(context)]

    def issued_to(self, context: ToolContext) -> int:
        """How many grants this process has issued to the caller's session or principal so far."""
        return self._issued.get(owner_of(context), 0)

    def records(self, *, principal: str | None = None, session: str | None = None) -> list[GrantRecord]:
        """What came of resolving, grants and refusals, the oldest first; of one owner if given."""
        return self._store.records(_owner(principal, session))

    def revoke(
        self,
        *,
        handle: str | None = None,
        principal: str | None = None,
        session: str | None = None,
        source: str | None = None,
        name: str | None = None,
    ) -> int:
        """Take back every grant that fits all that is given; at once, for calls that wait too.

        Args:
            handle: The very grant.
            principal: Those of a principal.
            session: Those of a session.
            source: Those for the tools of a source; empty for local tools.
            name: Those for a tool, by public name.

        Returns:
            How many there were.

        Raises:
            DefinitionError: nothing is given; `revoke_all` is the way to say that.
            GrantStoreError: the store cannot be written.
        """
        owner = _owner(principal, session)
        if (handle, owner, source, name) == (None,) * 4:
            raise DefinitionError("revoke() takes back what it is told; for every grant use revoke_all()")
        key = None if handle is None else key_of(handle)
        return self._revoke(GrantFilter(key, owner, source, name))

    def revoke_all(self) -> int:
        """Take back every grant; `GrantStoreError` if the store cannot be written."""
        return self._revoke(GrantFilter())

    def on_revoke(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when grants were taken back here; returns a function that ends this."""
        key = object()
        self._listeners[key] = callback
        return lambda: self._listeners.pop(key, None) and None

    def _revoke(self, which: GrantFilter) -> int:
        count = self._store.revoke(which)
        if count:
            for callback in list(self._listeners.values()):
                callback()
        return count

    def _record(self, binding: ToolBinding, id: str, owner: str, replay: str, now: float) -> GrantRecord:
        expires = now + (self._lifetime if owner else self._bearer_lifetime)
        handle = f"{binding.name}.{secrets.token_urlsafe(12)}"
        endpoint, listed = _behind(binding)
        grant = ToolGrant(
            handle=handle,
            name=binding.name,
            source=binding.source,
            tool=_id(binding),
            digest=binding.definition.digest,
            owner=owner,
            expires=expires,
            endpoint=endpoint,
            listed=listed,
            issued=now,
            uses=None if owner else self._bearer_uses,
            key=key_of(handle),
        )
        return GrantRecord(owner, replay, id, now, expires, grant)

    def _how(self, grant: ToolGrant, binding: ToolBinding) -> str:
        old = self._store.definition(grant.digest)
        lines = [] if old is None else difference(old, binding.definition.to_wire())
        return f" ({'; '.join(lines)})" if lines else ""

    def _count(self, owner: str, grants: int, now: float) -> None:
        if owner and grants:
            self._issued[owner] = self._issued.pop(owner, 0) + grants
            if len(self._issued) > MAX_GRANTS:
                self._issued.popitem(last=False)
        self._added += 1
        if self._added % _PURGE_EVERY == 0:
            # What has ended stays for as long again, so that its owner can be told.
            self._store.purge(now - self._lifetime)


def _owner(principal: str | None, session: str | None) -> str | None:
    if principal is not None and session is not None:
        raise DefinitionError("a grant belongs to a principal or to a session; give one of them")
    if principal is not None:
        return f"principal:{principal}"
    return None if session is None else f"session:{session}"


def _id(binding: ToolBinding) -> str:
    return binding.tool_id or binding.definition.name


def _behind(binding: ToolBinding) -> tuple[str, str]:
    if binding.provenance is None:
        return "", ""
    found = binding.provenance()
    return found.endpoint, found.digest
