"""`ToolGrant` and its ledger: a deferred tool runs only with a live grant (X1).

A grant is bound to its owner, to the source, the tool and the digest of its definition, and it
expires. Its handle carries the tool's name, so that a model copies it without error, and 96 random
bits, so that nobody guesses it. Whoever is not the owner learns nothing (F34); the owner is told
what happened (F35).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from mcp_toolset.errors import GrantError
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.view import ToolBinding

OWNED_LIFETIME: Final = 3600.0
"""Seconds that a grant lives when it is bound to a session or a principal."""

BEARER_LIFETIME: Final = 900.0
"""Seconds that a grant lives when its handle is all that binds it."""

MAX_GRANTS: Final = 10_000
"""Grants that the ledger keeps; the oldest go first."""


@dataclass(frozen=True, slots=True)
class ToolGrant:
    """Leave for one owner to run one tool as it was defined when it was granted.

    Attributes:
        handle: What the caller shows; unguessable.
        name: The tool's public name.
        source: The name of the source it came from.
        tool: The tool's own name there.
        digest: The digest of its definition (H17).
        owner: Who may use it; empty when the handle alone is the proof.
        expires: Seconds since the epoch.
    """

    handle: str
    name: str
    source: str
    tool: str
    digest: str
    owner: str
    expires: float


class GrantStore(Protocol):
    """Where grants are kept."""

    def put(self, grant: ToolGrant) -> None:
        """Keep a grant."""
        ...

    def get(self, handle: str) -> ToolGrant | None:
        """The grant of a handle, expired or not."""
        ...

    def latest(self, owner: str, name: str) -> ToolGrant | None:
        """The newest grant of an owner for a tool's public name."""
        ...

    def names(self, owner: str) -> list[str]:
        """The public names an owner has grants for."""
        ...


class MemoryGrantStore:
    """Grants in this process; they end with it (F37: a restart fails closed)."""

    def __init__(self, limit: int = MAX_GRANTS) -> None:
        """Keep at most `limit` grants."""
        self._limit = limit
        self._grants: dict[str, ToolGrant] = {}
        self._latest: dict[str, dict[str, str]] = {}

    def put(self, grant: ToolGrant) -> None:
        """Keep a grant, and forget the oldest one if there are too many."""
        self._grants[grant.handle] = grant
        if grant.owner:
            self._latest.setdefault(grant.owner, {})[grant.name] = grant.handle
        while len(self._grants) > self._limit:
            self._forget(next(iter(self._grants)))

    def get(self, handle: str) -> ToolGrant | None:
        """The grant of a handle."""
        return self._grants.get(handle)

    def latest(self, owner: str, name: str) -> ToolGrant | None:
        """The newest grant of an owner for a name."""
        handle = self._latest.get(owner, {}).get(name)
        return None if handle is None else self._grants.get(handle)

    def names(self, owner: str) -> list[str]:
        """The names an owner has grants for."""
        return list(self._latest.get(owner, ()))

    def _forget(self, handle: str) -> None:
        grant = self._grants.pop(handle)
        held = self._latest.get(grant.owner, {})
        if held.get(grant.name) == handle:
            del held[grant.name]
            if not held:
                del self._latest[grant.owner]


def owner_of(context: ToolContext) -> str:
    """Whom a grant of this caller is bound to: principal, else session, else nobody (the handle alone)."""
    if context.principal:
        return f"principal:{context.principal}"
    return f"session:{context.session}" if context.session else ""


class GrantLedger:
    """Issues grants and checks them; the only judge of whether a deferred tool may run."""

    def __init__(self, store: GrantStore | None = None, *, now: Callable[[], float] = time.time) -> None:
        """Keep grants in `store`, in memory unless told; `now` gives seconds since the epoch."""
        self._store: GrantStore = store or MemoryGrantStore()
        self._now = now

    def issue(self, binding: ToolBinding, context: ToolContext) -> ToolGrant:
        """Grant a tool to a caller."""
        owner = owner_of(context)
        grant = ToolGrant(
            handle=f"{binding.name}.{secrets.token_urlsafe(12)}",
            name=binding.name,
            source=binding.source,
            tool=binding.definition.name,
            digest=binding.definition.digest,
            owner=owner,
            expires=self._now() + (OWNED_LIFETIME if owner else BEARER_LIFETIME),
        )
        self._store.put(grant)
        return grant

    def find(self, reference: str, context: ToolContext) -> ToolGrant | None:
        """The grant behind a handle, or behind a public name that the caller's session holds."""
        owner = owner_of(context)
        grant = self._store.get(reference)
        if grant is None and owner:
            grant = self._store.latest(owner, reference)
        return grant if grant is not None and grant.owner == owner else None

    def check(self, grant: ToolGrant, binding: ToolBinding | None) -> None:
        """Refuse a grant that is no longer good; only for the eyes of its owner.

        Raises:
            GrantError: it expired, its tool is gone, or the definition or the source has changed.
        """
        again = "search for it and resolve it again"
        if self._now() >= grant.expires:
            raise GrantError(f"the grant for {grant.name} has expired; {again}")
        if binding is None:
            raise GrantError(f"{grant.name} is no longer in the catalog; {again}")
        if (binding.source, binding.definition.name) != (grant.source, grant.tool):
            raise GrantError(f"{grant.name} now belongs to another server than the one granted; {again}")
        if binding.definition.digest != grant.digest:
            raise GrantError(f"the definition of {grant.name} has changed since it was granted; {again}")

    def names(self, context: ToolContext) -> list[str]:
        """The public names that the caller holds live grants for; empty without a session or principal."""
        owner = owner_of(context)
        if not owner:
            return []
        now = self._now()
        held = ((name, self._store.latest(owner, name)) for name in self._store.names(owner))
        return [name for name, grant in held if grant is not None and grant.expires > now]
