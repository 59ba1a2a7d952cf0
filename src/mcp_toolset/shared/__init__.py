"""State of replicas: `SharedState`; calls that outlive one server: `Suspension`; places of state: `Store`.

`hub`, `serving` and applications use it. Rooms below know the protocols of the single stores alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_toolset._lazy import homes_of, lazily

if TYPE_CHECKING:
    from mcp_toolset.extensions.suspended.extension import Suspension
    from mcp_toolset.security.key_ring import KeyRing
    from mcp_toolset.shared.state import SharedState
    from mcp_toolset.stores.store import Entry, Put, Store

__all__ = ["Entry", "KeyRing", "Put", "SharedState", "Store", "Suspension"]

if not TYPE_CHECKING:  # so that a type checker reports a name that is none
    __getattr__, __dir__ = lazily(__name__, homes_of(__all__))
