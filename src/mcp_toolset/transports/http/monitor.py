"""`Monitor`: how a server is doing, for `/health` and `/ready`; `Ready`: what must work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from mcp_toolset._records import dataclass
from mcp_toolset.tools.call import Identity
from mcp_toolset.tools.source import SourceStatus

if TYPE_CHECKING:
    from mcp_toolset.shared.state import SharedState

WELL: Final = ("ready", "stopped", "starting")  # the states of a mounted server that are no fault


@dataclass(frozen=True, slots=True)
class Ready:
    """Conditions for a server to be ready; by default it is ready when it listens.

    Attributes:
        servers: The names of mounted servers that must be up, or patterns (`fnmatch`) of names.
        store: True if the store that replicas share must answer.
    """

    servers: tuple[str, ...] | list[str] = ()
    store: bool = False


class Monitor:
    """Tells how one server is doing, for `MonitoringPages`."""

    def __init__(
        self,
        ready: Callable[[], Ready],
        statuses: Callable[[], Mapping[str, SourceStatus]],
        hides: Callable[[str, Identity | None], bool],
        shared: SharedState | None,
    ) -> None:
        self._ready = ready
        self._statuses = statuses
        self._hides = hides
        self._shared = shared

    def health(self, identity: Identity | None) -> dict[str, Any]:
        seen = {name: one for name, one in self._statuses().items() if not self._hides(name, identity)}
        well = all(one.state in WELL for one in seen.values())
        told: dict[str, Any] = {"servers": {name: _told(one) for name, one in seen.items()}}
        if self._shared is not None:
            # The reason, which the log has, may name an address.
            told["store"] = self._shared.health.state
            well = well and told["store"] == "ready"
        return {"status": "ok" if well else "degraded", **told}

    def is_ready(self) -> bool:
        return not any(True for _ in self._missing())

    def readiness(self, identity: Identity | None) -> dict[str, Any]:
        found = list(self._missing())
        missing = {what: reason for what, reason, server in found if not self._hides(server, identity)}
        return {"status": "unready" if found else "ready", "missing": missing}

    def _missing(self) -> Iterator[tuple[str, str, str]]:
        policy, statuses = self._ready(), self._statuses()
        for pattern in policy.servers:
            found = [name for name in statuses if fnmatchcase(name, pattern)]
            if not found:
                yield f"server {pattern}", "no mounted server has this name", ""
            for name in found:
                if not (status := statuses[name]).is_up:
                    yield f"server {name}", status.reason or status.state, name
        if policy.store and self._shared is not None and (state := self._shared.health.state) != "ready":
            yield "store", state, ""


def _told(status: SourceStatus) -> dict[str, Any]:
    told: dict[str, Any] = {"state": status.state, "tools": status.tools}
    if status.reason:
        told["reason"] = status.reason
    if status.retry_in is not None:
        told["retry_in"] = status.retry_in
    return told
