"""`shared_grants`: the grants of all replicas, and how each replica hears at once of a revocation."""

from __future__ import annotations

import json
from typing import Final

from mcp_toolset.catalog.grants.cached_grants import CachedGrants
from mcp_toolset.catalog.grants.store import GRANTED, REVOKED, GrantFilter, StoredGrants
from mcp_toolset.shared.topics import Topics
from mcp_toolset.stores.store import Store

HEARD_AGE: Final = 300.0
"""Seconds for which a replica uses a grant without asking, while it hears of revocations."""

DEAF_AGE: Final = 3.0
"""Seconds for which a replica uses a grant without asking, while it may miss revocations."""


def shared_grants(store: Store, topics: Topics) -> CachedGrants:
    """The grants in a store, with a copy in this process that follows what other replicas revoke."""
    cache = CachedGrants(StoredGrants(store, tells=True), max_age=HEARD_AGE)

    def heard(message: bytes) -> None:
        cache.heard(GrantFilter(**json.loads(message)))

    def granted(message: bytes) -> None:
        for owner, names in json.loads(message).items():
            cache.heard_of_grants(owner, names)

    def changed(current: bool) -> None:
        cache.doubt(HEARD_AGE if current else DEAF_AGE)

    changed(topics.is_current)
    topics.subscribe(REVOKED, heard)
    topics.subscribe(GRANTED, granted)
    topics.on_change(changed)
    return cache
