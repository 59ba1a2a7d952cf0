"""The capabilities that a tool can be granted beyond its arguments, and the types behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from mcp_toolset._records import dataclass
from mcp_toolset.errors import CallError, DefinitionError

CAPABILITIES: Final = {
    "progress": "report progress to the caller",
    "log": "send log messages to the caller",
    "ask": "ask the user a question",
    "sample": "have the client's model write something",
    "roots": "see which folders the client works in",
    "session": "see who calls and which tools the caller sees",
    "sessions": "see another session that the host lets the tool know of",
    "catalog": "search the deferred tools",
    "membership": "see and change which tools are members of the catalog",
    "background": "start work that outlives the call, and await it",
    "processes": "start processes whose records outlive the program, list, await and cancel them",
    "events": "append events to the record of the session",
}
"""What each capability allows."""

ALWAYS: Final = frozenset({"progress", "log"})
"""Granted to every tool: they only report to the caller about its own call."""


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """The session that a tool is called in, at the moment of the call.

    Attributes:
        session: The session's id, if the protocol has sessions.
        principal: The authenticated user.
        protocol_version: The protocol revision of the call; `None` without a client.
        tools: The public names of the tools that this caller sees, in order.
    """

    session: str | None
    principal: str | None
    protocol_version: str | None
    tools: tuple[str, ...]


Sessions = Callable[[str, Any], SessionSnapshot | None]
"""Tells of another session by its id, given the context of the call; `None` for one that is not for it."""


def known_session(sessions: Sessions, session: str, context: Any) -> SessionSnapshot:
    """What the host tells a tool of another session."""
    found = sessions(session, context)
    if found is None:
        raise CallError(f"there is no session {session!r} that this tool can see")
    return found


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """One event that a tool has recorded for the application.

    Attributes:
        number: Its position in the record, from 1.
        kind: The kind of event, named by the tool.
        data: Its content, as JSON.
        tool: The public name of the tool.
        call_id: The id of the call, if it has one.
        session: The session of the call, if the protocol has sessions.
        principal: The authenticated user.
    """

    number: int
    kind: str
    data: Any
    tool: str = ""
    call_id: str = ""
    session: str | None = None
    principal: str | None = None


class Membership(Protocol):
    """Read and change which tools are members of the catalog (capability `membership`)."""

    @property
    def generation(self) -> int:
        """The generation: a number that grows with each change."""
        ...

    def members(self) -> Mapping[str, bool]:
        """Every tool by public name, and whether it is a member."""
        ...

    def change(self, members: Mapping[str, bool], *, generation: int) -> int:
        """Add tools to the members or remove them, all or nothing; return the new generation."""
        ...


class Background(Protocol):
    """Work that continues after the call that started it (capability `background`)."""

    def start(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> str:
        """Run `work(*arguments)`, also after the call; return an id to get its result with."""
        ...

    async def result(self, id: str, *, within: float | None = None) -> Any:
        """The result of some work, once it has ended; `within` bounds the wait, in seconds."""
        ...

    def cancel(self, id: str) -> None:
        """Cancel some work; raises like `result` if it is unknown."""
        ...


class CatalogHit(Protocol):
    """One deferred tool that a search found."""

    @property
    def name(self) -> str: ...

    @property
    def server(self) -> str | None:
        """The source that it comes from, if any."""
        ...

    @property
    def description(self) -> str: ...

    @property
    def score(self) -> float:
        """From 0 to 1."""
        ...


def granted(names: Iterable[str], where: str) -> frozenset[str]:
    """The names of capabilities, checked."""
    if isinstance(names, str):
        raise DefinitionError(f"{where}: capabilities is a list of names: capabilities=[{names!r}]")
    wanted = frozenset(names)
    unknown = sorted(wanted - CAPABILITIES.keys())
    if unknown:
        known = ", ".join(CAPABILITIES)
        raise DefinitionError(f"{where}: there is no capability {unknown[0]!r} to grant; there are {known}")
    return wanted
