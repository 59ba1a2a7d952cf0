"""`CodeRun`: one run of a snippet: its calls, each in a task of this run, and what each came to.

The tasks belong to the run: when the run is cancelled or ends early, its calls are cancelled with it. A call
that has to ask the user of a modern client ends with a question; when nothing else is left to do, the run
ends with all of them, and goes on later from the same place.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import anyio
import anyio.abc

from mcp_toolset._records import dataclass
from mcp_toolset.errors import ToolsetError
from mcp_toolset.extensions.code.sandbox import (
    CallAnswer,
    Called,
    Ended,
    Execution,
    Paused,
    Program,
    SandboxFault,
)
from mcp_toolset.extensions.code.transcript import CallNote, Transcript, limit_text
from mcp_toolset.tools.core.result import InputRequired, ToolResult, joined

MAX_MESSAGE = 2000
"""Characters of an error that a call raises in the snippet."""

Requests = Mapping[str, Mapping[str, Any]]


class ToolCaller(Protocol):
    """Makes the calls of a run, by the ordinary way of a call."""

    async def call(self, called: Called) -> ToolResult: ...


@dataclass(frozen=True, slots=True)
class Asking:
    """A run that waits for answers of the client, by the ids of the calls that ask."""

    requests: Mapping[int, Requests]


class CodeRun:
    """One run of a program.

    Attributes:
        transcript: What the run has done so far.
        calls: Calls that were begun; those that are made again count once.
        unanswered: The calls without an answer so far, by id.
    """

    def __init__(self, program: Program, caller: ToolCaller) -> None:
        """Make the calls of the snippet by `caller`."""
        self.transcript = Transcript()
        self.calls = 0
        self.unanswered: dict[int, Called] = {}
        self._program = program
        self._caller = caller
        self._slots = anyio.CapacityLimiter(program.mode.parallel)
        self._changed = anyio.Event()
        self._answers: dict[int, CallAnswer] = {}
        self._running: set[int] = set()
        self._asking: dict[int, Requests] = {}

    def saved(self) -> dict[str, Any]:
        """What a run that waits for answers has done so far, as JSON."""
        return {
            "ended": [[each.name, each.ok, each.ms, each.error] for each in self.transcript.calls],
            "calls": self.calls,
            "unanswered": [[each.id, each.function, each.arguments] for each in self.unanswered.values()],
        }

    @classmethod
    def of_saved(cls, saved: Mapping[str, Any], program: Program, caller: ToolCaller) -> CodeRun:
        """Go on with a run, on behalf of another request; the calls that asked are made again."""
        run = cls(program, caller)
        run.transcript.calls.extend(CallNote(*each) for each in saved["ended"])
        run.calls = saved["calls"]
        run.unanswered = {each[0]: Called(*each) for each in saved["unanswered"]}
        return run

    async def drive(self, execution: Execution) -> Ended | Asking:
        """Run to the end, or to a question."""
        outcome: Ended | Asking | SandboxFault = SandboxFault("died", "the run was cancelled")
        async with anyio.create_task_group() as group:
            try:
                outcome = await self._driven(execution, group)
            except SandboxFault as fault:
                group.cancel_scope.cancel()
                outcome = fault
        # Raised outside of the group, which would wrap it.
        if isinstance(outcome, SandboxFault):
            raise outcome
        return outcome

    async def _driven(self, execution: Execution, group: anyio.abc.TaskGroup) -> Ended | Asking:
        if self.unanswered:
            for each in self.unanswered:
                self._start(each, group)
            await self._settled()
        while not (self._asking and not self._answers):
            answers, self._answers = self._answers, {}
            step = await execution.step(answers)
            if isinstance(step, Ended):
                return step
            for called in step.fresh:
                self._take(called)
            self._begin(step, group)
            await self._settled()
            if not self._answers and not self._asking:
                raise SandboxFault("died", "the sandbox waits for no call")
        return Asking(dict(self._asking))

    def _take(self, called: Called) -> None:
        """Count a call; one too many is answered with the limit."""
        self.calls += 1
        if self.calls > self._program.mode.calls:
            self._answers[called.id] = CallAnswer(error=limit_text("calls", self._program.mode))
        else:
            self.unanswered[called.id] = called

    def _begin(self, step: Paused, group: anyio.abc.TaskGroup) -> None:
        """Start the calls that the snippet waits for now."""
        for each in sorted(step.waiting):
            if each in self.unanswered and each not in self._running and each not in self._asking:
                self._start(each, group)

    def _start(self, call: int, group: anyio.abc.TaskGroup) -> None:
        self._running.add(call)
        group.start_soon(self._made, self.unanswered[call])

    async def _settled(self) -> None:
        """Wait for an answer, or until there is nothing to wait for but questions."""
        while not self._answers and self._running:
            self._changed = anyio.Event()
            await self._changed.wait()

    async def _made(self, called: Called) -> None:
        began, name = time.perf_counter(), self._program.functions.tools[called.function]
        error = "cancelled"
        try:
            async with self._slots:
                answer = await self._answer(called)
            if answer is None:
                error = "asks"
                return
            error = "" if answer.error is None else "failed"
            self._answers[called.id] = answer
            del self.unanswered[called.id]
        finally:
            self._running.discard(called.id)
            if error != "asks":
                took = round((time.perf_counter() - began) * 1000)
                told = error if error == "cancelled" else ""
                self.transcript.calls.append(CallNote(name, not error, took, told))
            self._changed.set()

    async def _answer(self, called: Called) -> CallAnswer | None:
        """The answer to a call; `None` if it asks first."""
        try:
            result = await self._caller.call(called)
        except ToolsetError as fault:
            return CallAnswer(error=str(fault)[:MAX_MESSAGE])
        except (InputRequired, BaseExceptionGroup) as fault:
            asking = joined(fault)
            if not isinstance(asking, InputRequired):
                raise asking from None
            self._asking[called.id] = asking.requests
            return None
        if result.is_error:
            # The next call, with which errors for models end, is none of a snippet.
            told = result.text.partition("\nNext: ")[0]
            return CallAnswer(error=(told or "the call failed")[:MAX_MESSAGE])
        return CallAnswer(result.value())
