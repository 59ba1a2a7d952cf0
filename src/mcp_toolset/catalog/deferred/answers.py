"""The answers of the fixed tools of a deferred catalog: hits, resolutions, and servers that are down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields
from typing import Any, Final, Literal, cast

from mcp_toolset._records import dataclass
from mcp_toolset.tools.core.source import STARTING, SourceStatus

HitState = Literal["available", "listed", "offline", "changed", "filtered", "unauthorised"]
"""Whether a found tool can be had now, and if not, what stands in the way; `listed` needs no grant."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One found tool.

    Attributes:
        id: What `resolve_tools` takes.
        signature: The public name, with the names of the parameters.
        description: One line.
        state: Left out where the tool is available.
        reason: Why it is not available, or how it is called.
        retry_in: Seconds until another try makes sense.
        score: From 0 to 1; left out where nothing was searched for.
    """

    id: str
    signature: str
    description: str
    state: HitState = "available"
    reason: str | None = None
    retry_in: float | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """One resolved tool, or why it could not be.

    Attributes:
        id: The id that was asked for.
        status: Whether there is a grant.
        grant: What `call_tool` and `call_read_only_tool` take.
        expires_in: Seconds that the grant lasts.
        reason: Why there is none, and what to do.
        retry_in: Seconds until another try makes sense.
        definition: What a model needs to call it: name, description, input schema, hints.
        stub: The same as a typed function of Python, if stubs were asked for.
    """

    id: str
    status: Literal["granted", "not_available"]
    grant: str | None = None
    expires_in: int | None = None
    reason: str | None = None
    retry_in: float | None = None
    definition: dict[str, Any] | None = None
    stub: str | None = None


SEARCH_AGAIN: Final = 5.0
"""Seconds after which a search may see the tools of a server that is starting."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A server whose tools cannot be had now; they may be missing among the hits."""

    server: str
    state: str
    reason: str
    retry_in: float | None = None

    @classmethod
    def of(cls, server: str, status: SourceStatus) -> Unavailable:
        """The status of a server; for one that is starting also when to search again."""
        again = SEARCH_AGAIN if status.is_starting else status.retry_in
        return cls(server, status.state, status.reason, again)

    @property
    def is_starting(self) -> bool:
        """Whether it has neither listed its tools nor failed."""
        return self.state in STARTING


def of_away(away: Sequence[Unavailable]) -> str:
    """What a search could not see, and when to search again; empty if it saw everything."""
    starting = ", ".join(one.server for one in away if one.is_starting)
    down = ", ".join(one.server for one in away if not one.is_starting)
    verb = "are" if ", " in starting else "is"
    told = f"{starting} {verb} starting: search again in {SEARCH_AGAIN:g} s" if starting else ""
    return "; ".join(
        filter(None, (told, f"{down} cannot be reached, so that more may be there" * bool(down)))
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found."""

    hits: list[Hit]
    resolved: list[Resolution] = field(default_factory=list[Resolution])
    unavailable: list[Unavailable] = field(default_factory=list[Unavailable])
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """What became of each id, in order."""

    tools: list[Resolution]


Answer = Hit | Resolution | Unavailable | Found | Resolved

_ALWAYS: Final = ("hits", "tools")


def said(answer: Answer) -> dict[str, Any]:
    """An answer as JSON, without what is empty and what goes without saying."""
    found: dict[str, Any] = {}
    for each in fields(answer):
        value = getattr(answer, each.name)
        if isinstance(value, list):
            value = [said(one) for one in cast("list[Answer]", value)]
        if each.name in _ALWAYS or value not in (None, [], "available"):
            found[each.name] = value
    return found
