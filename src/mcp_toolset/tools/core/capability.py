"""The capabilities that a tool can be granted beyond its arguments, and what they show."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mcp_toolset.errors import DefinitionError

CAPABILITIES: Final = {
    "progress": "report progress to the caller",
    "log": "send log messages to the caller",
    "ask": "ask the user a question",
    "sample": "have the client's model write something",
    "roots": "see which folders the client works in",
    "session": "see who calls and which tools the caller sees",
    "catalog": "search the deferred tools",
    "membership": "see and change which tools are members of the catalog",
    "background": "start work that outlives the call, and await it",
    "events": "append events to the record of the session",
}
"""What each capability allows."""

ALWAYS: Final = frozenset({"progress", "log"})
"""Granted to every tool: they tell the caller about its own call and nothing else."""


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """What a tool may know of the session that it is called in, as it is now.

    Attributes:
        session: The session's name, where the protocol has sessions.
        principal: Who the caller has proved to be.
        protocol_version: The protocol revision of the call; `None` without a wire.
        tools: The public names that this caller is shown, in order.
    """

    session: str | None
    principal: str | None
    protocol_version: str | None
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """Something that a tool has noted for the application.

    Attributes:
        number: Its place in the record, from 1.
        kind: What sort of thing it is, in the tool's own words.
        data: What it says, as JSON.
        tool: The public name of the tool that noted it.
        call_id: The call that it was noted in, where that has an id.
        session: The session of the call, where the protocol has sessions.
        principal: Who the caller has proved to be.
    """

    number: int
    kind: str
    data: Any
    tool: str = ""
    call_id: str = ""
    session: str | None = None
    principal: str | None = None


class Membership(Protocol):
    """Which tools are members of the catalog (capability `membership`)."""

    @property
    def generation(self) -> int:
        """Advances with each change."""
        ...

    def members(self) -> Mapping[str, bool]:
        """Every tool by public name, and whether it is a member now."""
        ...

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Make tools members or take them out, all or nothing; the new generation.

        Raises:
            StateError: it was decided on an older generation; nothing is changed.
            UnknownToolError: there is no such tool; nothing is changed.
        """
        ...


class Background(Protocol):
    """Work that outlives the call it was started in (capability `background`)."""

    def start(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> str:
        """Run `work(*arguments)` on, after the call too; the id to ask for its result with.

        Raises:
            CallError: too much is under way.
        """
        ...

    async def result(self, id: str, *, within: float | None = None) -> Any:
        """What some work came to, once it has ended; `within` bounds the wait, in seconds.

        Raises:
            CallError: no such work of this caller is known, it failed, or it has not ended in time.
        """
        ...

    def cancel(self, id: str) -> None:
        """Stop some work; raises as `result` does if it is not known."""
        ...


class CatalogHit(Protocol):
    """One deferred tool that a search has found."""

    @property
    def name(self) -> str:
        """Its public name."""
        ...

    @property
    def server(self) -> str | None:
        """The source it comes from, if any."""
        ...

    @property
    def description(self) -> str:
        """One line about it."""
        ...

    @property
    def score(self) -> float:
        """From 0 to 1."""
        ...


def granted(names: Iterable[str], where: str) -> frozenset[str]:
    """Capabilities by name, checked.

    Raises:
        DefinitionError: it is one text instead of several, or there is no such capability.
    """
    if isinstance(names, str):
        raise DefinitionError(f"{where}: capabilities is a list of names: capabilities=[{names!r}]")
    wanted = frozenset(names)
    unknown = sorted(wanted - CAPABILITIES.keys())
    if unknown:
        known = ", ".join(CAPABILITIES)
        raise DefinitionError(f"{where}: there is no capability {unknown[0]!r} to grant; there are {known}")
    return wanted
