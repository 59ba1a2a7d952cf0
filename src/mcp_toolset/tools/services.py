"""Services for tools: the processes of a caller, and a model for tools whose client offers none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from mcp_toolset._records import dataclass
from mcp_toolset.tools.call import Identity, ToolCall, ToolContext
from mcp_toolset.tools.result import SampledMessage

ProcessState = Literal["running", "done", "failed", "cancelled", "lost"]
"""The state of a process; `lost`: its program ended before it, and it is never started again."""


@dataclass(frozen=True, slots=True)
class Process:
    """The handle of a process, with its state at the time when the handle was read.

    Attributes:
        id: Its id, which cannot be guessed.
        name: The name of the work.
        state: Its state.
        tool: The public name of the tool that started it.
        began: Seconds since the epoch.
        ended: Seconds since the epoch; 0 if it runs, or if it is lost and the moment is not known.
        note: Why it failed or was stopped; empty if there is nothing to say.
    """

    id: str
    name: str
    state: ProcessState
    tool: str
    began: float
    ended: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class ProcessEvent:
    """One event that a process has recorded: `number` counts from 1, `at` is in seconds since the epoch."""

    number: int
    kind: str
    data: Any
    at: float


class RunningProcess(ABC):
    """A running process as its own work sees it: the first argument of the work's function."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The id of its handle."""

    @abstractmethod
    async def emit(self, kind: str, data: Any = None) -> None:
        """Record an event in the store of processes; `CallError` if it has no JSON form or is too long."""


class OwnProcesses(ABC):
    """The processes of one caller (capability `processes`); those of other callers are not visible."""

    __slots__ = ()

    @property
    @abstractmethod
    def current(self) -> RunningProcess:
        """The process whose work calls this."""

    @abstractmethod
    async def start(self, name: str, work: Callable[..., Awaitable[Any]], *arguments: Any) -> Process:
        """Start a process that awaits `work(process, *arguments)`; returns its handle at once."""

    @abstractmethod
    async def get(self, id: str) -> Process: ...

    @abstractmethod
    async def list(self, *, limit: int = 100) -> Sequence[Process]: ...

    @abstractmethod
    async def result(self, id: str, *, timeout: float | None = None) -> Any:
        """The result of the work, in JSON form, once it has ended; `timeout` bounds the wait, in seconds."""

    @abstractmethod
    async def cancel(self, id: str) -> Process:
        """Ask for the end of a process, also of one that another program runs; returns its handle."""

    @abstractmethod
    async def events(self, id: str, *, after: int = 0) -> Sequence[ProcessEvent]: ...


class ProcessesOf(Protocol):
    """Keeps the processes of callers: a service for tools, such as `Processes`."""

    def owned_by(self, context: Any) -> OwnProcesses: ...


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A tool's request for a message of a model, and its call.

    Attributes:
        messages: The messages, in wire form (client/sampling).
        max_tokens: The largest number of tokens that the model may write.
        system: The system prompt; `None` without one.
        key: The name of this request among those of its call, the same if the call runs again.
        tool: The tool that asks.
        call: The id of the call.
        session: The caller's session, if the protocol has sessions.
        principal: The key of the authenticated caller.
        identity: The authenticated caller; `None` without authentication.
        server: The mounted server that asks, by its name here; empty for a tool of the program.
    """

    messages: Sequence[Mapping[str, Any]]
    max_tokens: int
    system: str | None
    key: str
    tool: str
    call: str
    session: str | None
    principal: str | None
    identity: Identity | None
    server: str = ""


ModelSampler = Callable[[SamplingRequest], Awaitable[SampledMessage | str]]
"""Answers a request by a model of the program; a text is the message alone."""


class ModelsOfCalls(Protocol):
    """A service for tools: answers their requests for a model, if the client has none to offer."""

    def of_call(
        self, call: ToolCall, context: ToolContext
    ) -> Callable[[Mapping[str, Any], str], Awaitable[SampledMessage]]: ...
