"""`ManualCalls`: calls that wait for the application instead of running."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import anyio
import anyio.from_thread

from mcp_toolset._records import dataclass
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, StateError
from mcp_toolset.server.answers.tool_answers import fitted
from mcp_toolset.tools.core.call import ToolCall, ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.view.view import ToolBinding

MANUAL_TIMEOUT: Final = 300.0
"""Seconds that a manual call waits for the application unless the server or the tool says otherwise."""

NOTE_EVERY: Final = 10.0
"""Seconds between the notes that a caller who asked for progress is sent while its call waits."""

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
        """Let calls wait for `timeout` seconds, with a note of progress every `note_every` seconds."""
        if not timeout > 0:
            raise DefinitionError(f"manual_timeout is a positive number of seconds, not {timeout!r}")
        self._timeout = timeout
        self._note_every = note_every
        self._waiting: dict[str, _Waiting] = {}
        self._fresh: deque[str] = deque()
        self._arrived = anyio.Event()
        self._open = True

    def pending(self) -> list[PendingCall]:
        """The calls that wait now, the oldest first."""
        return [waiting.call for waiting in list(self._waiting.values())]

    async def next(self) -> PendingCall:
        """Wait for a call that has not been handed out yet; each is handed out once."""
        while True:
            while self._fresh:
                waiting = self._waiting.get(self._fresh.popleft())
                if waiting is not None:
                    return waiting.call
            await self._arrived.wait()
            if not self._open:
                raise StateError("the server is closed; no calls will come")

    def submit(self, call_id: str, output: Any) -> None:
        """Give a call its result: a value, a `ToolResult`, `AskUser` or `Halt`.

        To be called on the event loop's thread, or in a worker thread of anyio's.
        """
        waiting = self._found(call_id)
        self._settle(waiting, fitted(waiting.binding, output))

    def fail(self, call_id: str, message: str) -> None:
        """End a call with an error that the model can read."""
        waiting = self._found(call_id)
        self._settle(waiting, ToolResult.of_error(f"{waiting.call.name} failed: {message}"))

    def open(self) -> None:
        """Take calls in, also after a `close`."""
        self._open, self._arrived = True, anyio.Event()

    def close(self) -> None:
        """Tell programs that wait for a call that none will come."""
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
