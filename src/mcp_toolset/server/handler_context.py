"""`LocalTools`: how a server runs its own tools.

Each handler gets a context with the call and what the tool was granted; a manual tool's
calls wait for the application instead; a question as the outcome is put to the user.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.from_thread

from mcp_toolset._index import mend
from mcp_toolset._numbers import require_positive
from mcp_toolset._records import dataclass, replace
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import FOREIGN
from mcp_toolset.context.task import KEPT_MS, begin_task
from mcp_toolset.errors import CallError, CapabilityError, InvalidArgumentsError, StateError
from mcp_toolset.server.tool_answers import answered, fitted
from mcp_toolset.tools.binding import Executor
from mcp_toolset.tools.call import (
    Background,
    Membership,
    SearchHit,
    SessionEvent,
    SessionSnapshot,
    ToolCall,
    ToolContext,
    granted,
    known_session,
)
from mcp_toolset.tools.definition import task_support
from mcp_toolset.tools.result import (
    CALL_META_KEY,
    AskUser,
    ElicitationAnswer,
    SampledMessage,
    ToolResult,
    joined,
)
from mcp_toolset.tools.view import ToolBinding

if TYPE_CHECKING:
    from mcp_toolset.server.server import ToolsetServer
    from mcp_toolset.tools.services import OwnProcesses


MANUAL_TIMEOUT: Final = 300.0  # seconds that a manual call waits for the application
NOTE_EVERY: Final = 10.0  # seconds between notes of progress to the caller of a waiting call

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that waits for its result.

    Attributes:
        id: The id to submit the result under. The server chose it, so it is unique in this process.
        name: The public name of the tool.
        arguments: The arguments after hooks, checked against the tool's schema.
        session: The caller's session, where the protocol has sessions.
        principal: The authenticated user; `None` without authentication.
        since: When it began to wait.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    session: str | None
    principal: str | None
    since: datetime


@dataclass(slots=True)
class _Waiting:
    call: PendingCall
    binding: ToolBinding
    thread: int
    result: ToolResult | None = None
    done: anyio.Event = field(default_factory=anyio.Event)


class ManualCalls:
    """The calls of one server's manual tools."""

    def __init__(self, timeout: float = MANUAL_TIMEOUT, *, note_every: float = NOTE_EVERY) -> None:
        require_positive("a server", manual_timeout=timeout)
        self._timeout = timeout
        self._note_every = note_every
        self._waiting: dict[str, _Waiting] = {}
        self._fresh: deque[str] = deque()
        self._arrived = anyio.Event()
        self._open = True

    def pending(self) -> list[PendingCall]:
        return [waiting.call for waiting in list(self._waiting.values())]

    async def next(self) -> PendingCall:
        while True:
            while self._fresh:
                waiting = self._waiting.get(self._fresh.popleft())
                if waiting is not None:
                    return waiting.call
            await self._arrived.wait()
            if not self._open:
                raise StateError("the server is closed; no calls will come")

    def submit(self, call_id: str, output: Any) -> None:
        """Give a call its result: a value, a `ToolResult`, `AskUser` or `Halt`."""
        # To be called on the event loop's thread, or in a worker thread of anyio's.
        waiting = self._found(call_id)
        self._settle(waiting, fitted(waiting.binding, output))

    def fail(self, call_id: str, message: str) -> None:
        waiting = self._found(call_id)
        self._settle(waiting, ToolResult.of_error(f"{waiting.call.name} failed: {message}"))

    def open(self) -> None:
        self._open, self._arrived = True, anyio.Event()

    def close(self) -> None:
        self._open = False
        self._arrived.set()

    async def wait(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> ToolResult:
        """Wait for the application's result; when the caller gives up, the call is not pending any more."""
        # What only the type of the input refuses is the model's to mend, not the application's to find out.
        if fault := binding.misfit(call):
            raise InvalidArgumentsError(fault)
        seconds = self._timeout if binding.timeout is None else binding.timeout
        with self._entered(binding, call, context) as waiting:
            with anyio.move_on_after(seconds):
                await self._settled(waiting, context)
        if waiting.result is not None:
            return waiting.result
        return ToolResult.of_error(
            f"{call.name} is answered by a person or a program, and no answer came within {seconds:g} s; "
            "it may be tried again later"
        )

    @contextmanager
    def _entered(self, binding: ToolBinding, call: ToolCall, context: ToolContext) -> Generator[_Waiting]:
        name = secrets.token_hex(8)
        pending = PendingCall(
            name, call.name, call.arguments, context.session, context.principal, datetime.now(UTC)
        )
        waiting = self._waiting[name] = _Waiting(pending, binding, threading.get_ident())
        self._fresh.append(name)
        self._arrived.set()
        if self._open:
            self._arrived = anyio.Event()
        try:
            yield waiting
        finally:
            self._waiting.pop(name, None)

    async def _settled(self, waiting: _Waiting, context: ToolContext) -> None:
        if not context.wants_progress:
            await waiting.done.wait()
            return
        async with anyio.create_task_group() as group:
            group.start_soon(self._report, waiting.call, context)
            await waiting.done.wait()
            group.cancel_scope.cancel()

    async def _report(self, call: PendingCall, context: ToolContext) -> None:
        began = anyio.current_time()
        notes = 0
        while True:
            notes += 1
            waited = anyio.current_time() - began
            note = f"{call.name} waits for the application" + (f" ({waited:.0f} s)" if notes > 1 else "")
            await context.progress(notes, None, note)
            await anyio.sleep(self._note_every)

    def _found(self, call_id: str) -> _Waiting:
        waiting = self._waiting.get(call_id)
        if waiting is None:
            raise StateError(
                f"no call waits under the id {call_id!r}: it was answered, cancelled or timed out, or is "
                "not manual; pending_calls lists those that wait"
            )
        return waiting

    def _settle(self, waiting: _Waiting, result: ToolResult) -> None:
        def settle() -> None:
            if self._waiting.pop(waiting.call.id, None) is None:
                self._found(waiting.call.id)
            waiting.result = result
            waiting.done.set()

        _on_thread(waiting.thread, settle)


def _on_thread(thread: int, function: Callable[[], _T]) -> _T:
    """Run something on the event loop's thread; other callers are anyio's worker threads."""
    if threading.get_ident() == thread:
        return function()
    return anyio.from_thread.run_sync(function)


_S = TypeVar("_S")


class HandlerContext(ToolContext):
    """The context of one tool in one call: the call itself and its named capabilities, nothing else."""

    __slots__ = (
        "_call _host _model _outer arguments capabilities injected name identity principal "
        "protocol_version session"
    ).split()

    def __init__(
        self, call: ToolCall, outer: ToolContext, host: ToolsetServer, capabilities: frozenset[str]
    ) -> None:
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
        return self._outer.meta

    @property
    def wants_progress(self) -> bool:
        return self._outer.wants_progress

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self.require("progress")
        await self._outer.progress(progress, total, message)

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        self.require("log")
        await self._outer.log(level, data, logger=logger)

    async def elicit(
        self, question: str, schema: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> ElicitationAnswer:
        self.require("ask")
        return await self._outer.elicit(question, schema, key=key)

    async def _sample(self, params: dict[str, Any], key: str) -> SampledMessage:
        # Few tools ask for a model.
        from mcp_toolset.tools.services import ModelsOfCalls

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
        return self._outer.client_capabilities

    def snapshot(self) -> SessionSnapshot:
        self.require("session")
        names = tuple(str(listed["name"]) for listed in self._host.listed(self._outer))
        return SessionSnapshot(self.session, self.principal, self.protocol_version, names)

    def other_session(self, session: str) -> SessionSnapshot:
        """Another session that the program lets this tool know of (capability `sessions`)."""
        self.require("sessions")
        if self._host.sessions is None:
            raise CapabilityError("sessions")
        return known_session(self._host.sessions, session, self)

    def search(self, query: str, *, server: str | None = None, limit: int = 10) -> Sequence[SearchHit]:
        self.require("catalog")
        return self._host.search(query, server=server, limit=limit, context=self._outer)

    @property
    def membership(self) -> Membership:
        self.require("membership")
        return self._host.members

    @property
    def background(self) -> Background:
        """Work that outlives the call, until the server closes; a caller can await its own alone."""
        self.require("background")
        return self._host.work.owned_by(self.principal or self.session or "")

    @property
    def processes(self) -> OwnProcesses:
        self.require("processes")
        # Few tools start processes.
        from mcp_toolset.tools.services import ProcessesOf

        if (service := self._host.need(ProcessesOf)) is None:
            raise CapabilityError("processes", mend("processes"))
        return service.owned_by(self)

    def append_event(self, kind: str, data: Any = None) -> SessionEvent:
        self.require("events")
        return self._host.events.append(kind, data, call=self._call, context=self)


class LocalTools:
    """Runs the calls of a server's own tools."""

    def __init__(self, host: ToolsetServer, manual: ManualCalls, capabilities: frozenset[str]) -> None:
        """Grant `capabilities` to every tool; `manual` takes the calls of those that do not run."""
        self._host = host
        self._manual = manual
        self._capabilities = capabilities
        self.has_tasks = False  # whether one of them may become a task

    def bound(self, binding: ToolBinding) -> ToolBinding:
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
