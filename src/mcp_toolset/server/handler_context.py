"""`LocalTools`: how a server runs its own tools.

Each handler gets a context with the call and what the tool was granted; a manual tool's
calls wait for the application instead; a question as the outcome is put to the user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mcp_toolset._index import mend
from mcp_toolset._records import replace
from mcp_toolset.calls.background import BackgroundWork, EventLog
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import FOREIGN
from mcp_toolset.context.task import KEPT_MS, begin_task
from mcp_toolset.errors import CallError, CapabilityError
from mcp_toolset.server.answers.tool_answers import answered
from mcp_toolset.server.manual_calls import ManualCalls
from mcp_toolset.tools.binding.binding import Executor
from mcp_toolset.tools.core.asking import CALL_META_KEY, AskUser, ElicitationAnswer, SampledMessage, joined
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.capability import (
    Background,
    CatalogHit,
    Membership,
    SessionEvent,
    Sessions,
    SessionSnapshot,
    granted,
    known_session,
)
from mcp_toolset.tools.core.definition import task_support
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.view import ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.tools.core.processes import OwnProcesses

_S = TypeVar("_S")


class Host(Protocol):
    """What a server can let its tools see of itself."""

    @property
    def members(self) -> Membership: ...

    @property
    def work(self) -> BackgroundWork:
        """What runs longer than a call."""
        ...

    @property
    def sessions(self) -> Sessions | None:
        """Tells tools of other sessions, if the program lets them know of any."""
        ...

    @property
    def events(self) -> EventLog: ...

    def need(self, kind: type[_S]) -> _S | None:
        """A service of an extension, by type; `None` if there is none."""
        ...

    def listed(self, context: ToolContext) -> list[dict[str, Any]]:
        """The tools that a caller is shown, in wire form."""
        ...

    def search(
        self, query: str, *, server: str | None = None, limit: int = 10, context: ToolContext | None = None
    ) -> Sequence[CatalogHit]:
        """Search the deferred tools that a caller may know of."""
        ...


class HandlerContext(ToolContext):
    """What one tool has of one call: the call itself and its named capabilities, nothing else."""

    __slots__ = (
        "_call",
        "_host",
        "_model",
        "_outer",
        "arguments",
        "capabilities",
        "injected",
        "name",
        "identity",
        "principal",
        "protocol_version",
        "session",
    )

    def __init__(self, call: ToolCall, outer: ToolContext, host: Host, capabilities: frozenset[str]) -> None:
        """Show of `outer` and `host` what `capabilities` allow."""
        self._call = call
        self._outer = outer
        self._host = host
        self._model: Callable[[Mapping[str, Any], str], Awaitable[SampledMessage]] | None = None
        self.name = call.name
        self.arguments = call.arguments
        self.capabilities = capabilities
        self.injected = outer.injected
        self.session = outer.session
        self.principal = outer.principal
        self.identity = outer.identity
        self.protocol_version = outer.protocol_version

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        return self._outer.meta

    @property
    def wants_progress(self) -> bool:
        """Whether the caller asked for progress reports."""
        return self._outer.wants_progress

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the caller."""
        self.require("progress")
        await self._outer.progress(progress, total, message)

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the caller."""
        self.require("log")
        await self._outer.log(level, data, logger=logger)

    async def elicit(
        self, question: str, schema: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> ElicitationAnswer:
        """The same as `ask`: a handler needs the grant for either."""
        self.require("ask")
        return await self._outer.elicit(question, schema, key=key)

    async def _sample(self, params: dict[str, Any], key: str) -> SampledMessage:
        # Few tools ask for a model.
        from mcp_toolset.tools.core.sampling import ModelsOfCalls

        models = self._host.need(ModelsOfCalls)
        if models is not None and self._outer.client_capabilities.get("sampling") is None:
            self._model = self._model or models.of_call(self._call, self._outer)
            return await self._model(params, key)
        cause = {"tool": self.name, **({"id": self._call.id} if self._call.id else {})}
        return await self._outer._sample({**params, "_meta": {CALL_META_KEY: cause}}, key)

    async def _roots(self, key: str) -> Sequence[Mapping[str, Any]]:
        return await self._outer._roots(key)

    @property
    def client_info(self) -> Mapping[str, Any]:
        return self._outer.client_info

    @property
    def client_capabilities(self) -> Mapping[str, Any]:
        """What the client declares that it can do."""
        return self._outer.client_capabilities

    def snapshot(self) -> SessionSnapshot:
        """Who calls, and which tools that caller is shown."""
        self.require("session")
        names = tuple(str(listed["name"]) for listed in self._host.listed(self._outer))
        return SessionSnapshot(self.session, self.principal, self.protocol_version, names)

    def other_session(self, session: str) -> SessionSnapshot:
        """Another session that the program lets this tool know of (capability `sessions`)."""
        self.require("sessions")
        if self._host.sessions is None:
            raise CapabilityError("sessions")
        return known_session(self._host.sessions, session, self)

    def search(self, query: str, *, server: str | None = None, limit: int = 10) -> Sequence[CatalogHit]:
        """Search the deferred tools that the caller may know of."""
        self.require("catalog")
        return self._host.search(query, server=server, limit=limit, context=self._outer)

    @property
    def membership(self) -> Membership:
        """Which tools are members, for every caller of this server."""
        self.require("membership")
        return self._host.members

    @property
    def background(self) -> Background:
        """Work that outlives the call, until the server closes; a caller can await its own alone."""
        self.require("background")
        return self._host.work.owned_by(self.principal or self.session or "")

    @property
    def processes(self) -> OwnProcesses:
        """The caller's processes, whose records outlive the server."""
        self.require("processes")
        # Few tools start processes.
        from mcp_toolset.tools.core.processes import ProcessesOf

        if (found := self._host.need(ProcessesOf)) is None:
            raise CapabilityError("processes", mend("processes"))
        return found.owned_by(self)

    def append_event(self, kind: str, data: Any = None) -> SessionEvent:
        """Note something in the server's `events`."""
        self.require("events")
        return self._host.events.append(kind, data, call=self._call, context=self)


class LocalTools:
    """Runs the calls of a server's own tools.

    Attributes:
        has_tasks: Whether one of them may become a task.
    """

    def __init__(self, host: Host, manual: ManualCalls, capabilities: frozenset[str]) -> None:
        """Grant `capabilities` to every tool; `manual` takes the calls of those that do not run."""
        self._host = host
        self._manual = manual
        self._capabilities = capabilities
        self.has_tasks = False

    def bound(self, binding: ToolBinding) -> ToolBinding:
        """The binding as this server runs it; mounted tools run where they are."""
        if binding.source or binding.redirect is not None:
            return binding
        run = partial(self._manual.wait, binding) if binding.manual else self._handled(binding)
        if support := task_support(binding.definition):
            self.has_tasks = True
            run = partial(_as_task, support, run)
        return replace(binding, execute=partial(_run, binding, run))

    def _handled(self, binding: ToolBinding) -> Executor:
        own = granted(binding.capabilities or (), binding.place or f"tool {binding.name!r}")
        host, capabilities, execute = self._host, self._capabilities | own, binding.execute

        async def handled(call: ToolCall, context: ToolContext) -> ToolResult:
            try:
                return await execute(call, HandlerContext(call, context, host, capabilities))
            except BaseExceptionGroup as group:
                raise joined(group) from None

        return handled


async def _as_task(support: str, run: Executor, call: ToolCall, context: ToolContext) -> ToolResult:
    if isinstance(context, WireContext):
        begin_task(context, support, ttl_ms=KEPT_MS)
    return await run(call, context)


async def _run(binding: ToolBinding, run: Executor, call: ToolCall, context: ToolContext) -> ToolResult:
    """Run a call; if it ends with a question, the user's answer is its result, without another run."""
    if not isinstance(context, WireContext):
        return await run(call, context)
    asked: AskUser | None = None
    if context.has_replay:
        if context.replay.foreign:
            raise CallError(f"{FOREIGN}; call the tool again")
        asked = context.replay.final_of(call.name)
    if asked is None:
        result = await run(call, context)
        if result.ask is None:
            return result
        asked = result.ask
        context.replay.final = (call.name, asked)
    return answered(binding, asked, await context.answer(asked))
