"""`RoundContext`: the capabilities that an owned loop grants to its tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from mcp_toolset.errors import CapabilityError
from mcp_toolset.tools.call import (
    ALWAYS,
    Background,
    Identity,
    Membership,
    SearchHit,
    SessionEvent,
    Sessions,
    SessionSnapshot,
    ToolCall,
    ToolContext,
    granted,
    known_session,
)
from mcp_toolset.tools.view import ToolView

if TYPE_CHECKING:
    from mcp_toolset.tools.services import OwnProcesses, ProcessesOf


Request = Callable[[str, Mapping[str, Any] | None], Awaitable[dict[str, Any]]]
"""Answers a request to a client in wire form (`elicitation/create`, `sampling/createMessage`)."""


class Search(Protocol):
    """Searches the deferred tools, such as the `search` of a `SearchIndex`."""

    def __call__(self, query: str, *, server: str | None = None, limit: int = 10) -> Sequence[SearchHit]: ...


class Events(Protocol):
    """Events are appended here, for example to an `EventLog`."""

    def append(
        self, kind: str, data: Any = None, *, call: ToolCall, context: ToolContext
    ) -> SessionEvent: ...


_ARGUMENTS: Final = {
    "session": "view",
    "catalog": "search",
    "membership": "membership",
    "background": "background",
    "processes": "processes",
    "events": "events",
    "ask": "request",
    "sample": "request",
    "sessions": "sessions",
}
"""The argument of `RoundContext` that each capability needs."""


class RoundContext(ToolContext):
    """The context of calls in a loop of your own. Tools can use the services that you give to it."""

    __slots__ = (
        *("_call", "_offers", "_request", "arguments", "capabilities", "identity", "model", "name"),
        *("principal", "session"),
    )

    def __init__(
        self,
        *,
        session: str | None = None,
        principal: str | Identity | None = None,
        view: ToolView | None = None,
        search: Search | None = None,
        membership: Membership | None = None,
        background: Background | None = None,
        processes: ProcessesOf | None = None,
        events: Events | None = None,
        request: Request | None = None,
        grant: Iterable[str] | None = None,
        model: str | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        """Set the services of the loop, and which tools may use them.

        Args:
            session: The loop's session, for a tool that may see it, and its events.
            principal: The user of the loop: a name, or an `Identity` where policies ask for roles and scopes.
            view: The tools that the model was offered (capability `session`).
            search: Finds deferred tools (capability `catalog`).
            membership: The members of the catalog (capability `membership`).
            background: Runs work that continues after a call (capability `background`).
            processes: Keeps processes, which belong to the principal or else to the session (capability
                `processes`).
            events: The record of events (capability `events`).
            request: Asks the user or a model (capabilities `ask` and `sample`).
            grant: The capabilities that every tool is granted; by default all that the arguments allow. A
                tool also has those of `Toolset.granting`.
            model: The model that the loop works with, for handlers that choose by it.
            sessions: Returns another session that a tool may read (capability `sessions`).

        Raises:
            DefinitionError: a capability does not exist.
        """
        self.session = session
        self.identity = principal if isinstance(principal, Identity) else None
        self.principal = principal.key if isinstance(principal, Identity) else principal
        self.name, self.arguments = "", {}
        self._call = ToolCall("", {})
        self.model = model
        self._request = request
        self._offers: dict[str, Any] = {
            "session": view,
            "catalog": search,
            "membership": membership,
            "background": background,
            "processes": processes,
            "events": events,
            "ask": request,
            "sample": request,
            "sessions": sessions,
        }
        offered = frozenset(name for name, offer in self._offers.items() if offer is not None)
        self.capabilities = ALWAYS | (offered if grant is None else granted(grant, "RoundContext"))

    def for_handler(self, call: ToolCall, granted: frozenset[str]) -> ToolContext:
        made = object.__new__(type(self))
        for slot in RoundContext.__slots__:
            setattr(made, slot, getattr(self, slot))
        made._call, made.name, made.arguments = call, call.name, call.arguments
        made.capabilities = self.capabilities | granted
        return made

    def snapshot(self) -> SessionSnapshot:
        view: ToolView = self._granted("session")
        return SessionSnapshot(self.session, self.principal, None, tuple(view))

    def other_session(self, session: str) -> SessionSnapshot:
        """Another session, if the application returns it for this tool."""
        sessions: Sessions = self._granted("sessions")
        return known_session(sessions, session, self)

    def search(self, query: str, *, server: str | None = None, limit: int = 10) -> Sequence[SearchHit]:
        search: Search = self._granted("catalog")
        return search(query, server=server, limit=limit)

    @property
    def membership(self) -> Membership:
        return self._granted("membership")

    @property
    def background(self) -> Background:
        return self._granted("background")

    @property
    def processes(self) -> OwnProcesses:
        processes: ProcessesOf = self._granted("processes")
        return processes.owned_by(self)

    def append_event(self, kind: str, data: Any = None) -> SessionEvent:
        events: Events = self._granted("events")
        return events.append(kind, data, call=self._call, context=self)

    @property
    def can_ask(self) -> bool:
        return self._request is not None

    async def request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        return await (super().request if self._request is None else self._request)(method, params)

    def require(self, capability: str) -> None:
        """Check that a capability was granted and that the loop offers it; `CapabilityError` says how."""
        if self._offers.get(capability, self) is None:
            raise CapabilityError(capability, f"RoundContext({_ARGUMENTS[capability]}=…)")
        super().require(capability)

    def _granted(self, capability: str) -> Any:
        self.require(capability)
        return self._offers[capability]
