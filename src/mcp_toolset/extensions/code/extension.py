"""`CodeMode`: `run_code` and `run_read_only_code`, which run a snippet for a caller, within limits.

Each call of the snippet is a call of `call_tool`, or of `call_read_only_tool`, with the caller's context: the
same gate, checks, middleware, hooks, policy, limits and observers as for any call.

The calls are tasks of their `CodeRun`: when the run is cancelled or ends early, its calls are cancelled with
it. A call that has to ask the user of a modern client ends with a question; when nothing else is left to do,
the run ends with all of them, and goes on later from the same place.

For a run that waits, the client holds a random reference in the sealed request state of its call, which is
bound to the tool, the arguments and the caller, and used once. A run that leaves this process is sealed: what
a sandbox dumps is not signed, and a sandbox must not load what somebody else has written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import KW_ONLY, field
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self
from weakref import WeakValueDictionary

import anyio
import anyio.abc
from pydantic import Field

from mcp_toolset._records import dataclass, replace
from mcp_toolset.calls.suspended import Sealer, SuspendedStore
from mcp_toolset.catalog.grants.ledger import LONGEST_REFERENCE, owner_of
from mcp_toolset.concurrency.tasks import WorkingTime
from mcp_toolset.context.inner_call import InnerCall, InnerState, asked_by
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import FOREIGN, STATE_TTL, Replay
from mcp_toolset.errors import CallError, DefinitionError, StoreError, ToolsetError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.code.monty_sandbox import MontySandbox
from mcp_toolset.extensions.code.sandbox import (
    CallAnswer,
    Called,
    CodeLimits,
    Ended,
    Execution,
    FaultKind,
    Program,
    Sandbox,
    SandboxFault,
)
from mcp_toolset.tools.call import ToolCall, ToolContext
from mcp_toolset.tools.definition import FIXED_TOOLS
from mcp_toolset.tools.hidden_text import cleaned
from mcp_toolset.tools.python_stub import Functions
from mcp_toolset.tools.result import InputRequired, ToolResult, joined
from mcp_toolset.tools.tool import Tool, tool

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.host import Host
    from mcp_toolset.tools.tool import Tool


MAX_LISTED: Final = 20  # calls that are listed one by one; more are counted by tool
MAX_TRACEBACK: Final = 3000  # characters of a traceback; of a longer one, the start and the end
PREVIEW: Final = 2000  # characters of JSON that are shown of a value that is too large

_LIMITS: Final[Mapping[FaultKind | str, str]] = {
    "max_compute_seconds": "the code has computed for more than {} s",
    "timeout": "the run took more than {} s",
    "max_memory_mb": "the code needs more than {} MB",
    "max_stops": "the code stopped for calls, waits and imports more than {} times",
    "max_printed": "the code has printed more than {} characters",
    "workers": "no process of the sandbox was free; runs at once: {}",
    "max_calls": "the code has called tools more than {} times",
}
_COROUTINE: Final = '"<coroutine object'
_TOO_LARGE: Final = object()
_NOT_AWAITED: Final = "it is a coroutine that was not awaited: put `await` before the call"


def limit_text(kind: FaultKind | str, mode: CodeLimits) -> str:
    """A refusal that names the limit of `CodeMode` behind it; empty for any other kind."""
    if kind not in _LIMITS:
        return ""
    limit: float = getattr(mode, kind)
    return f"{_LIMITS[kind].format(f'{limit:g}')} (the server's limit `{kind}` of code mode)"


@dataclass(frozen=True, slots=True)
class CallNote:
    """One call that the snippet made: the tool, whether it has succeeded, and milliseconds."""

    name: str
    ok: bool
    ms: int
    error: str = ""

    def to_wire(self) -> dict[str, Any]:
        wire = {"name": self.name, "ok": self.ok, "ms": self.ms}
        return {**wire, "error": self.error} if self.error else wire


@dataclass(slots=True)
class Transcript:
    """The calls of a run that have ended, and its result."""

    calls: list[CallNote] = field(default_factory=list[CallNote])

    def value(self, text: str, printed: str, program: Program) -> ToolResult:
        size = len(text.encode())
        most = program.mode.max_value_bytes
        value = _read(text) if size <= most else _TOO_LARGE
        told: dict[str, Any] = {"value": value}
        if value is _TOO_LARGE:
            limit = f"the server's limit `max_value_bytes` of code mode: {most} bytes"
            note = f"the value is too large ({limit}): filter, count or sum within the code"
            told = {"preview": text[:PREVIEW], "bytes": size, "note": note}
        if text.startswith(_COROUTINE):
            told["note"] = _NOT_AWAITED
        return self._result(told, printed)

    def fault(self, fault: SandboxFault | str, printed: str, program: Program) -> ToolResult:
        """Return the result of a run that has ended early; what ran stays done."""
        if isinstance(fault, str):
            told = fault
        else:
            limit = limit_text(fault.kind, program.mode)
            told, half = fault.text, MAX_TRACEBACK // 2
            if limit:
                told = f"stopped: {limit}"
            elif len(told) > MAX_TRACEBACK:
                told = f"{told[:half]}\n…\n{told[-half:]}"
            if "NameError" in fault.text:
                names = ", ".join(sorted(program.functions.tools)) or "none: pass grants"
                told += f"\nFunctions in scope: {names}"
        return self._result({"error": told}, printed, is_error=True)

    def _result(self, told: dict[str, Any], printed: str, *, is_error: bool = False) -> ToolResult:
        if printed:
            told["printed"] = cleaned(printed)
        if self.calls:
            told["calls"] = self._listed()
        text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
        wire: dict[str, Any] = {"content": [{"type": "text", "text": text}], "structuredContent": told}
        return ToolResult({**wire, "isError": True} if is_error else wire)

    def _listed(self) -> list[dict[str, Any]]:
        if len(self.calls) <= MAX_LISTED:
            return [each.to_wire() for each in self.calls]
        counted: dict[tuple[str, bool], list[int]] = {}
        for each in self.calls:
            counted.setdefault((each.name, each.ok), []).append(each.ms)
        return [
            {"name": name, "ok": ok, "times": len(times), "ms": sum(times)}
            for (name, ok), times in counted.items()
        ]


def _read(text: str) -> object:
    try:
        return json.loads(text, parse_constant=lambda constant: None)
    # Nested too deeply to be read, or what a snippet has put in place of the JSON.
    except (RecursionError, ValueError):
        return _TOO_LARGE


MAX_MESSAGE = 2000  # characters of an error that a call raises in the snippet
Requests = Mapping[str, Mapping[str, Any]]
Questions = Mapping[int, Requests]
"""The questions to the client that a run waits for, by the ids of the calls that ask."""


Calling = Callable[[Called], Awaitable[ToolResult]]
"""Makes the calls of a run, by the ordinary way of a call."""


class CodeRun:
    """One run of a program; `unanswered` has the calls without an answer so far, by id."""

    def __init__(self, program: Program, calling: Calling) -> None:
        self.transcript = Transcript()
        self.calls = 0
        self.unanswered: dict[int, Called] = {}
        self._program = program
        self._calling = calling
        self._slots = anyio.CapacityLimiter(program.mode.max_parallel)
        self._changed = anyio.Event()
        self._answers: dict[int, CallAnswer] = {}
        self._running: set[int] = set()
        self._asking: dict[int, Requests] = {}

    def saved(self) -> dict[str, Any]:
        return {
            "ended": [[each.name, each.ok, each.ms, each.error] for each in self.transcript.calls],
            "calls": self.calls,
            "unanswered": [[each.id, each.function, each.arguments] for each in self.unanswered.values()],
        }

    @classmethod
    def of_saved(cls, saved: Mapping[str, Any], program: Program, calling: Calling) -> CodeRun:
        """Go on with a run, on behalf of another request; the calls that asked are made again."""
        run = cls(program, calling)
        run.transcript.calls.extend(CallNote(*each) for each in saved["ended"])
        run.calls = saved["calls"]
        run.unanswered = {each[0]: Called(*each) for each in saved["unanswered"]}
        return run

    async def drive(self, execution: Execution) -> Ended | Questions:
        outcome: Ended | Questions | SandboxFault = SandboxFault("died", "the run was cancelled")
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

    async def _driven(self, execution: Execution, group: anyio.abc.TaskGroup) -> Ended | Questions:
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
            for each in sorted(step.waiting):
                if each in self.unanswered and each not in self._running and each not in self._asking:
                    self._start(each, group)
            await self._settled()
            if not self._answers and not self._asking:
                raise SandboxFault("died", "the sandbox waits for no call")
        return dict(self._asking)

    def _take(self, called: Called) -> None:
        """Count a call; one too many is answered with the limit."""
        self.calls += 1
        if self.calls > self._program.mode.max_calls:
            self._answers[called.id] = CallAnswer(error=limit_text("max_calls", self._program.mode))
        else:
            self.unanswered[called.id] = called

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
            result = await self._calling(called)
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


MAX_WAITING: Final = 128
"""Runs that wait at once in this process; in a store, those of all callers who are not known."""

MAX_BYTES: Final = 64_000_000  # bytes of all of them together
OWN_WAITING: Final = 32  # runs of one caller that wait at once, in this process or in a store
OWN_BYTES: Final = 16_000_000  # bytes of all of them together
_PURPOSE: Final = "code run"
_PLACE: Final = "place of a code run"
_GONE: Final = "the run that waited for this answer has ended; see what is done, then run the code again"


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """One run that waits: its calls so far (`run`), those that ask, its grants, and the seconds spent."""

    id: str
    state: bytes
    printed: str
    run: Mapping[str, Any]
    asking: Mapping[int, InnerState]
    granted: Mapping[str, str]
    spent: float

    def saved(self) -> bytes:
        asking = {
            id: {"replay": one.replay.saved(), "passed_on": one.replay.passed_on, "relayed": one.relayed}
            for id, one in self.asking.items()
        }
        saved = {
            "id": self.id,
            "state": b64encode(self.state).decode(),
            "printed": self.printed,
            "run": self.run,
            "asking": asking,
            "granted": dict(self.granted),
            "spent": self.spent,
        }
        try:
            return json.dumps(saved, separators=(",", ":")).encode()
        except (TypeError, ValueError) as fault:
            raise CallError(f"the run cannot wait for an answer: {fault}") from None

    @classmethod
    def of_saved(cls, data: bytes) -> WaitingRun:
        saved = json.loads(data)
        asking = dict[int, InnerState]()
        for id, one in saved["asking"].items():
            replay = Replay.of_saved(one["replay"])
            replay.passed_on = one["passed_on"]
            asking[int(id)] = InnerState(replay, one["relayed"])
        state, run, granted = b64decode(saved["state"]), saved["run"], saved["granted"]
        return cls(saved["id"], state, saved["printed"], run, asking, granted, saved["spent"])


class WaitingRuns:
    """The runs of one server, or of its replicas, that wait for their clients."""

    def __init__(
        self, store: SuspendedStore | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._now = clock
        self._runs: OrderedDict[str, tuple[float, str, bytes, str]] = OrderedDict()
        self.clear = self._runs.clear

    def __len__(self) -> int:
        return len(self._runs)

    async def keep(self, run: WaitingRun, *, owner: str, share: str = "") -> str:
        """Hold a run, bound to `owner`, until its client comes back; `share` is whose room it takes."""
        data, handle = run.saved(), secrets.token_urlsafe(18)
        if self._store is not None:
            try:
                await self._put(self._store, handle, owner, data, share)
            except StoreError as fault:
                raise CallError(str(fault)) from None
            return handle
        self._forget_old()
        every = [len(each) for _, _, each, _ in self._runs.values()]
        own = [len(each) for _, _, each, whose in self._runs.values() if whose == share]
        if share and (len(own) >= OWN_WAITING or sum(own) + len(data) > OWN_BYTES):
            raise _too_many(share)
        if len(every) >= MAX_WAITING or sum(every) + len(data) > MAX_BYTES:
            raise _too_many("")
        self._runs[handle] = (self._now() + STATE_TTL, owner, data, share)
        return handle

    async def take(self, handle: str, owner: str) -> WaitingRun:
        held = self._store
        data = self._taken(handle, owner) if held is None else await self._got(held, handle, owner)
        if data is None:
            raise CallError(_GONE)
        return WaitingRun.of_saved(data)

    async def _put(self, store: SuspendedStore, handle: str, owner: str, data: bytes, share: str) -> None:
        places = await self._placed(store, share, len(data))
        text = "\n".join((" ".join(places), data.decode()))
        sealed = _sealer(store).seal(text, who=owner, what=handle, ttl=store.ttl)
        await store.kept(_PURPOSE).put(handle, sealed.encode(), ttl=store.ttl)

    async def _placed(self, store: SuspendedStore, share: str, size: int) -> list[str]:
        """The places in a caller's share of the store that a run takes, one for so many bytes."""
        taken, most = store.used(_PLACE), OWN_WAITING if share else MAX_WAITING
        wanted, whose = 1 + size * OWN_WAITING // OWN_BYTES, sha256(share.encode()).hexdigest()[:32]
        places, first = list[str](), secrets.randbelow(most)
        for number in range(most if wanted <= most else 0):
            place = f"{whose}.{(first + number) % most}"
            if await taken.use(place, ttl=store.ttl):
                places.append(place)
                if len(places) == wanted:
                    return places
        await self._free(store, places)
        raise _too_many(share)

    async def _free(self, store: SuspendedStore, places: Iterable[str]) -> None:
        for place in places:
            await store.used(_PLACE).free(place)

    async def _got(self, store: SuspendedStore, handle: str, owner: str) -> bytes | None:
        try:
            sealed = await store.kept(_PURPOSE).take(handle)
            if sealed is None:
                return None
            places, _, data = (
                _sealer(store).open(sealed.decode(), who=owner, what=handle).data.partition("\n")
            )
            await self._free(store, places.split())
        except StoreError as fault:
            raise CallError(str(fault)) from None
        return data.encode()

    def _taken(self, handle: str, owner: str) -> bytes | None:
        self._forget_old()
        found = self._runs.pop(handle, None)
        return None if found is None or found[1] != owner else found[2]

    def _forget_old(self) -> None:
        while self._runs and next(iter(self._runs.values()))[0] < self._now():
            self._runs.popitem(last=False)


def _too_many(share: str) -> CallError:
    if not share:
        return CallError("too many runs wait for answers already; try again later")
    most = f"{OWN_WAITING} runs with {OWN_BYTES} bytes of one caller can wait for answers"
    return CallError(f"{most}; keep less in variables, or try again later")


def _sealer(store: SuspendedStore) -> Sealer:
    return Sealer(_PURPOSE, lambda: store.keys, mend="see what is done, then run the code again")


PARKED: Final = "code run"  # key in the state of a call: the reference to its run, which waits
Call = Callable[[str, Called, str, ToolContext], Awaitable[ToolResult]]
"""Makes a call of a run: the grant, the call, its id and its context."""


class ServedRun:
    """One run for one request, or a run that goes on for its caller."""

    def __init__(
        self,
        program: Program,
        context: ToolContext,
        granted: Mapping[str, str],
        call: Call,
        before: WaitingRun | None,
    ) -> None:
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
            self._run = CodeRun(program, self.call)
        else:
            self._id = before.id
            self._run = CodeRun.of_saved(before.run, program, self.call)

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
        self,
        asking: Questions,
        execution: Execution,
        keep: Callable[[WaitingRun], Awaitable[str]],
        spent: float,
    ) -> None:
        assert isinstance(self._context, WireContext)
        states = {id: self._states[id] for id in asking}
        waiting = WaitingRun(
            self._id, execution.dump(), execution.printed, self._run.saved(), states, self._granted, spent
        )
        try:
            self._context.replay.parked[PARKED] = await keep(waiting)
        except CallError as fault:
            names = {self._program.functions.tools[self._run.unanswered[id].function] for id in states}
            raise SandboxFault("failed", f"{', '.join(sorted(names))} asks the user: {fault}") from None
        raise InputRequired({f"{id}.{key}": one for id, each in asking.items() for key, one in each.items()})

    def _printed(self) -> str:
        return self._program.printed if self._execution is None else self._execution.printed


def _cannot_wait(name: str) -> CallError:
    return CallError(
        f"{name} asks a question, and this caller cannot be asked within code; call it by itself"
    )


RUN_CODE: Final = "run_code"
RUN_READ_ONLY_CODE: Final = "run_read_only_code"

MAX_CODE: Final = 100_000  # characters of a snippet
MAX_VALUE: Final = 4_000_000  # bytes of a value, where the server keeps long results
MAX_GRANTS: Final = 100  # grants that one run may use
RUN_TEXT: Final = (
    "Run Python that calls granted tools. Use it for several calls in one, or to compute on long results. "
    "Each tool is an async function with keyword arguments, as resolve_tools shows with stubs=true: "
    "`got = await orders_list(month='2026-11')`. asyncio.gather runs calls at once; a failed call raises "
    "RuntimeError. The value of the last expression comes back, and what was printed. json, re, math, "
    "datetime can be imported; there are no files and no network."
)
READ_TEXT: Final = "Run Python that calls granted read-only tools. It is as run_code; others are refused."

Code = Annotated[str, Field(description="Python.", max_length=MAX_CODE)]
Grants = Annotated[
    list[Annotated[str, Field(max_length=LONGEST_REFERENCE)]] | None,
    Field(description="Grants from resolve_tools; all that you hold, if left out.", max_length=MAX_GRANTS),
]
Title = Annotated[str, Field(description="What it does, in a few words.", max_length=200)]


class CodeTools:
    """The two tools of a server, and the runs that they have begun."""

    def __init__(self, limits: CodeLimits, sandbox: Sandbox | None, host: Host) -> None:
        self._stated = limits
        self._host = host
        self._sandbox = sandbox or MontySandbox(limits.workers)
        self._shares_workers = sandbox is None
        self._places = WeakValueDictionary[str, anyio.Semaphore]()

    def tools(self) -> list[Tool[..., Any]]:
        """Return both tools; they are given the caller itself, as a call of `call_tool` is."""
        return [
            self._tool(RUN_CODE, "Run code", RUN_TEXT, FIXED_TOOLS[2], reads=False),
            self._tool(RUN_READ_ONLY_CODE, "Run read-only code", READ_TEXT, FIXED_TOOLS[3], reads=True),
        ]

    def _tool(self, name: str, shown: str, text: str, by: str, *, reads: bool) -> Tool[..., Any]:

        @tool(
            name=name,
            title=shown,
            description=text,
            read_only=reads,
            destructive=not reads,
            idempotent=reads,
            open_world=True,
        )
        async def run(
            context: ToolContext, code: Code, grants: Grants = None, title: Title = ""
        ) -> ToolResult:
            return await self._run(by, code, grants, context)

        return run

    @cached_property
    def waiting(self) -> WaitingRuns:
        return WaitingRuns(self._host.need(SuspendedStore))

    async def close(self) -> None:
        self.waiting.clear()
        await self._sandbox.close()

    async def _run(
        self, by: str, code: str, grants: Sequence[str] | None, context: ToolContext
    ) -> ToolResult:
        if isinstance(context, WireContext) and context.replay.foreign:
            raise CallError(f"{FOREIGN}; run the code again")
        bound = hashlib.sha256(json.dumps([by, code, grants, owner_of(context)]).encode()).hexdigest()
        parked = context.replay.parked if isinstance(context, WireContext) else {}
        handle = parked.pop(PARKED, None)
        # The client comes back to this run.
        before = None if handle is None else await self.waiting.take(handle, bound)
        # A run that goes on keeps its functions; the grant of each is checked by each call.
        granted = await self._host.in_scope(grants, context) if before is None else before.granted
        program = Program(code, Functions(granted), self._limits())
        if before is not None:
            program = replace(program, state=before.state, printed=before.printed)
        run = ServedRun(program, context, granted, partial(self._called, by), before)
        share = context.share if isinstance(context, WireContext) else ""
        keep = partial(self.waiting.keep, owner=bound, share=share)
        return await run.result(self._sandbox, self._place(share), keep)

    def _limits(self) -> CodeLimits:
        """The limits; a value may be long where long results do not go to the model as they are."""
        if not self._host.reshapes:
            return self._stated
        return replace(self._stated, max_value_bytes=max(self._stated.max_value_bytes, MAX_VALUE))

    def _place(self, share: str) -> AbstractAsyncContextManager[object]:
        """The slot of a run at a worker: all runs of one caller together leave one worker to others."""
        if not share or not self._shares_workers:
            return nullcontext()
        return self._places.setdefault(share, anyio.Semaphore(max(1, self._stated.workers - 1)))

    async def _called(self, by: str, grant: str, called: Called, id: str, context: ToolContext) -> ToolResult:
        arguments = {"grant": grant, "arguments": called.arguments}
        return await self._host.call(ToolCall(by, arguments, id), context)


_log = logging.getLogger("mcp_toolset.server")


@dataclass(frozen=True)
class CodeMode(CodeLimits, Extension):
    """The limits of each run, and the sandbox.

    Attributes:
        sandbox: A sandbox to use in place of the one from the extra `code`.
    """

    key: ClassVar = "code"

    _: KW_ONLY
    sandbox: Sandbox | None = None

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self | None:
        """Build the extension from its keyword, which is `True` or limits."""
        if said is not None and said is not True:
            raise DefinitionError(f"code takes True, False or CodeMode(…), not {said!r}")
        return super().of(None, stated, host)

    def bind(self, host: Host) -> Self:

        bound = replace(self)
        object.__setattr__(bound, "host", host)
        object.__setattr__(bound, "_tools", CodeTools(bound, bound.sandbox, host))
        return bound

    def catalog_tools(self) -> Sequence[Tool[..., Any]]:
        return self._made.tools()

    def lifespan(self) -> None:
        if self.host.need(SuspendedStore) is None or not self.host.grants.ends_with_process:
            return
        _log.warning(
            "runs of code that wait for an answer do not go on after a restart, as grants are in "
            "memory; keep them in a file, as by `--grants FILE`"
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._made.close()

    @property
    def _made(self) -> CodeTools:
        return self.__dict__["_tools"]


EXTENSION = CodeMode
