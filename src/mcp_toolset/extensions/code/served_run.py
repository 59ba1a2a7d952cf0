"""`ServedRun`: one run of a snippet for one request of a client: its time, its calls, its questions."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import anyio

from mcp_toolset.concurrency.deadlines import WorkingTime
from mcp_toolset.context.inner_call import InnerCall, InnerState, asked_by
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import Replay
from mcp_toolset.errors import CallError
from mcp_toolset.extensions.code.run import Asking, CodeRun
from mcp_toolset.extensions.code.sandbox import Called, Ended, Execution, Program, Sandbox, SandboxFault
from mcp_toolset.extensions.code.transcript import limit_text
from mcp_toolset.extensions.code.waiting_runs import WaitingRun
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.result import InputRequired, ToolResult, joined

PARKED: Final = "code run"
"""Key in the state of a call: the reference to its run, which waits."""

Call = Callable[[str, Called, str, ToolContext], Awaitable[ToolResult]]
"""Makes a call of a run: the grant, the call, its id and its context."""


class ServedRun:
    """One run for one request."""

    def __init__(
        self,
        program: Program,
        context: ToolContext,
        granted: Mapping[str, str],
        call: Call,
        before: WaitingRun | None,
    ) -> None:
        """Run a program for the caller of `context`, or go on with the run that has waited for it."""
        self._program = program
        self._context = context
        self._granted = granted
        self._call = call
        self._before = before
        self._execution: Execution | None = None
        self._states: dict[int, InnerState] = {}
        self._time: WorkingTime | None = None
        if before is None:
            self._id = secrets.token_hex(6)
            self._run = CodeRun(program, self)
        else:
            self._id = before.id
            self._run = CodeRun.of_saved(before.run, program, self)

    async def result(
        self,
        sandbox: Sandbox,
        place: AbstractAsyncContextManager[object],
        keep: Callable[[WaitingRun], Awaitable[str]],
    ) -> ToolResult:
        """Run it in a place of the sandbox; `keep` holds it while it waits for its client."""
        mode, transcript = self._program.mode, self._run.transcript
        spent = 0 if self._before is None else self._before.spent
        with anyio.move_on_after(mode.timeout - spent) as scope:
            self._time = WorkingTime(scope)
            try:
                async with place, sandbox.running(self._program) as execution:
                    self._execution = execution
                    outcome = await self._run.drive(execution)
                    if isinstance(outcome, Ended):
                        return transcript.value(outcome.value, execution.printed, self._program)
                    await self._wait(
                        outcome, execution, keep, mode.timeout - scope.deadline + anyio.current_time()
                    )
            except SandboxFault as fault:
                return transcript.fault(fault, self._printed(), self._program)
        kind = "timeout" if spent or self._execution is not None else "workers"
        return transcript.fault(f"stopped: {limit_text(kind, mode)}", self._printed(), self._program)

    async def call(self, called: Called) -> ToolResult:
        """Make one call of the snippet; see `ToolCaller`."""
        name = self._program.functions.tools[called.function]
        context = self._inner(called.id)
        try:
            result = await self._call(self._granted[name], called, f"{self._id}.{called.id}", context)
        except (InputRequired, BaseExceptionGroup) as fault:
            asking = joined(fault)
            if isinstance(asking, InputRequired) and isinstance(context, InnerCall):
                self._states[called.id] = context.state()
            elif isinstance(asking, InputRequired):
                raise _cannot_wait(name) from None
            raise asking from None
        if result.is_complete:
            return result
        if not isinstance(context, InnerCall):
            raise _cannot_wait(name)
        self._states[called.id] = context.relayed(result)
        raise asked_by(result.wire)

    def _inner(self, id: int) -> ToolContext:
        """The caller, as one call of the snippet sees it."""
        outer = self._context
        if not isinstance(outer, WireContext):
            return outer
        assert self._time is not None
        name, mark = f"{outer.replay.call_id}.{id}", f"{id}."
        asked = None if self._before is None else self._before.asking.get(id)
        if asked is None:
            return InnerCall(outer, Replay(name), self._time, id)
        mine = [key for key in outer.replay.answers if key.startswith(mark)]
        given = {key.removeprefix(mark): outer.replay.answers.pop(key) for key in mine}
        return InnerCall(outer, asked.answered(given, name), self._time, id)

    async def _wait(
        self, asking: Asking, execution: Execution, keep: Callable[[WaitingRun], Awaitable[str]], spent: float
    ) -> None:
        """Hold the run, and have the client asked."""
        assert isinstance(self._context, WireContext)
        states = {id: self._states[id] for id in asking.requests}
        waiting = WaitingRun(
            self._id, execution.dump(), execution.printed, self._run.saved(), states, self._granted, spent
        )
        try:
            self._context.replay.parked[PARKED] = await keep(waiting)
        except CallError as fault:
            names = {self._program.functions.tools[self._run.unanswered[id].function] for id in states}
            raise SandboxFault("failed", f"{', '.join(sorted(names))} asks the user: {fault}") from None
        raise InputRequired(
            {f"{id}.{key}": one for id, each in asking.requests.items() for key, one in each.items()}
        )

    def _printed(self) -> str:
        return self._program.printed if self._execution is None else self._execution.printed


def _cannot_wait(name: str) -> CallError:
    return CallError(
        f"{name} asks a question, and this caller cannot be asked within code; call it by itself"
    )
