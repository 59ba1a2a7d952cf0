"""`ToolCall` and `ToolContext`: one call, and what its surroundings offer to whatever handles it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_toolset.errors import CallError, CapabilityError

_EMPTY: Final[Mapping[str, Any]] = {}
_log = logging.getLogger("mcp_toolset.tools")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of one tool (L3).

    Attributes:
        name: The public name that was called.
        arguments: The arguments as they stand now; a hook may have replaced them (L17).
        id: The call's id, where the caller gave one (rounds), else empty.
        original: The arguments as the caller sent them (L19).
        grant: The handle of the grant that the call was made with, for a deferred tool (X1).
    """

    name: str
    arguments: dict[str, Any]
    id: str = ""
    original: Mapping[str, Any] | None = None
    grant: str = ""

    def with_arguments(self, arguments: dict[str, Any]) -> ToolCall:
        """The same call with other arguments; what the caller sent stays readable in `original`."""
        original = self.arguments if self.original is None else self.original
        return ToolCall(self.name, arguments, self.id, original, self.grant)


class ToolContext:
    """What the surroundings of a call offer: who calls, and the ways to report back.

    Outside a served call (an owned loop, a script) this base class is used as it is: progress goes
    nowhere and log lines go to the logger `mcp_toolset.tools`. The bridge supplies a subclass whose
    reports reach the very client that made the call.
    """

    __slots__ = ()

    session: str | None = None
    """The caller's session, where the protocol has one (2025-11-25 and earlier, and in memory)."""

    principal: str | None = None
    """Who the caller has proved to be, where the transport authenticates."""

    protocol_version: str | None = None
    """The protocol revision of this call, `None` when no wire is involved."""

    capabilities: frozenset[str] = frozenset({"progress", "log"})
    """What was granted to the tool beyond its arguments (H4); each further one by name."""

    def require(self, capability: str) -> None:
        """Go on only if a capability was granted.

        Raises:
            CapabilityError: it was not; the message says how to grant it.
        """
        if capability not in self.capabilities:
            raise CapabilityError(capability)

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request; empty when there is none."""
        return _EMPTY

    @property
    def params(self) -> Mapping[str, Any]:
        """The request's parameters as they came, for parts of the bridge that pass them on."""
        return _EMPTY

    @property
    def wants_progress(self) -> bool:
        """Whether the caller asked for progress reports."""
        return False

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller; nothing happens if it did not ask for it."""

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the caller. `level` is one of the eight of RFC 5424, in lower case."""
        _log.log(_LEVELS.get(level, logging.INFO), "%s: %s", logger or "tool", data)

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass a notification on to the caller, on the stream of this call."""

    async def request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Ask the caller's client (elicitation, sampling, roots) and wait for its answer.

        Raises:
            CallError: there is no client to ask here, or its protocol forbids it.
        """
        raise CallError(
            f"nobody can be asked for {method} here: this call has no client that answers requests"
        )


_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}

LOCAL_CONTEXT: Final = ToolContext()
"""The context of a call that no client made."""
