"""`Tasks`: calls that become tasks, and `tasks/get`, `tasks/update` and `tasks/cancel` (2026-07-28).

A call of a client that takes tasks runs in the background of the server. If it ends first, its result is the
answer; if it becomes a task, the answer is a handle, and the call goes on: one run of the tool, its hooks and
its middleware, and one entry in the audit log.

The id of a task that a mounted server works on is a state of the call, so that another process goes on with
it (`task_records`). Other replicas ask the one that has the task, as long as it lives.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import anyio

from mcp_toolset.calls.background import BackgroundWork
from mcp_toolset.calls.suspended.sealed import Suspended
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.request_state import Replay
from mcp_toolset.context.task import KEPT_MS, TASKS, TaskContext, TaskWay, takes_tasks
from mcp_toolset.errors import CallError, ClientCapabilityError, StoreError
from mcp_toolset.extensions.tasks.task import LONGEST_MS, Task
from mcp_toolset.extensions.tasks.task_records import LOOK, TaskRecords
from mcp_toolset.protocol.errors import error_for_peer, refusal
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MCPError
from mcp_toolset.protocol.methods import FIRST_WITH_TASKS, TASK
from mcp_toolset.server.answers.tool_answers import ToolAnswers
from mcp_toolset.tools.core.asking import InputRequired
from mcp_toolset.tools.core.call import ToolCall

MAX_TASKS: Final = 512
"""Calls that may run as tasks at once, and tasks that are kept."""

OWN_TASKS: Final = 128
"""The same of one caller."""

KEEPING: Final = 10.0
"""Seconds in which an outcome is written."""

HANDOVER: Final = 2.0
"""Seconds after which a legacy client gets its handle, and that a cancelled call has to end."""

_LOST: Final = "the server ended while the task ran; it is not known how far it came"
_AGAIN: Final = 0.1
_NONE: Final[Mapping[str, Any]] = {}
_log = logging.getLogger("mcp_toolset.server")

Wire = Mapping[str, Any]


class Tasks:
    """The tasks of one server.

    Attributes:
        calls: Runs them.
    """

    def __init__(
        self,
        calls: ToolAnswers,
        work: BackgroundWork,
        records: TaskRecords,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Begin without any.

        Args:
            calls: Runs calls of clients, and knows the tools.
            work: The work of the server; tasks run while it is open.
            records: What other processes know of the tasks.
            now: Seconds since the epoch.
        """
        self.calls = calls
        self._records = records
        self._now = now
        self._tasks: dict[str, Task] = {}
        self._running: set[Task] = set()
        self._background = work.beside(limit=MAX_TASKS, deadline=LONGEST_MS / 1000)

    def serve(self) -> None:
        """Let other replicas ask about the tasks that are here."""
        self._records.serve(self._asked)

    def takes(self, request: RequestContext) -> bool:
        """Whether a call may become a task."""
        if request.modern:
            return takes_tasks(request) and self.calls.offers_tasks()
        return request.protocol_version == FIRST_WITH_TASKS and self.calls.offers_tasks()

    async def call(self, request: RequestContext) -> dict[str, Any]:
        """The result of a call, or the handle of the task that it has become."""
        task = await self.begin(request)
        await self.until(task.settled, task)
        if task.id:
            return {"resultType": "task", **task.created_wire(), "_meta": dict(self.calls.stamp)}
        try:
            return self.outcome_of(task)
        finally:
            task.release()
            task.result = task.fault = None

    def outcome_of(self, task: Task) -> dict[str, Any]:
        """The result of a call that has ended; raises its error."""
        if task.fault is not None:
            raise task.fault
        if task.result is None:
            raise refusal(CallError(f"{task.call.name}: the call was cancelled; the server is closing"))
        return task.result

    def hand_over(self, task: Task) -> None:
        """Make a call a task, unless it is one."""
        if not task.id:
            task.way.ttl_ms = task.way.ttl_ms or KEPT_MS
            task.way.known = task.way.begun = True
            self._begun(task, task.call)

    def here(self, id: str) -> Task | None:
        return self._tasks.get(id)

    def owned(self, id: str, owner: str) -> Task:
        self._forget()
        task = self._tasks.get(id)
        if task is None or task.owner != owner:
            raise CallError(_not_found().message)
        return task

    async def cancelled(self, task: Task) -> None:
        """Cancel a task, unless it has ended."""
        await self._act(task, "cancel", _NONE)

    async def until(self, event: anyio.Event, task: Task, *, within: float | None = None) -> None:
        """Wait, for a client whose leaving cancels the call, and for so many seconds at most."""
        try:
            with anyio.move_on_after(within):
                await event.wait()
        except anyio.get_cancelled_exc_class():
            self._cancel(task)
            raise

    async def begin(self, request: RequestContext, *, hands_over: bool = True) -> Task:
        """Begin a call; unless it `hands_over`, its client waits until `hand_over`."""
        params: Wire = request.params or {}
        call = ToolCall(params["name"], params.get("arguments") or {})
        task = self._task_of(request)
        task.call, task.hold = call, request.hold
        task.way.hands_over = hands_over
        task.context = TaskContext(request, task.way)
        task.tools = await self.calls.definition(call.name, task.context)
        if hands_over:
            task.way.on_begin = partial(self._begun, task, call)
        task.work = self._started(task, call)
        return task

    async def get(self, request: RequestContext) -> dict[str, Any]:
        """The state of a task, as the mounted server says it now if one works on it."""
        return {"resultType": "complete", **await self.about(request), "_meta": dict(self.calls.stamp)}

    async def update(self, request: RequestContext) -> dict[str, Any]:
        await self.about(request)
        return self._acknowledged()

    async def cancel(self, request: RequestContext) -> dict[str, Any]:
        """Cancel a task; one that has ended stays as it is."""
        await self.about(request)
        return self._acknowledged()

    async def about(self, request: RequestContext, what: str = "") -> Wire:
        """Do what a client asks for, where the task is; its state then."""
        id, sealed = self._named(request)
        what = what or request.method.partition("/")[2]
        answers: Wire = (request.params or {}).get("inputResponses") or _NONE
        task = self._tasks.get(id)
        if task is not None and task.owner == _owner(request):
            return await self._act(task, what, answers)
        if sealed is None or task is not None:
            raise _not_found()
        try:
            elsewhere = await self._records.elsewhere(id, sealed.data["at"], what, answers)
            if elsewhere is not None:
                return elsewhere
            task = await self._restored(id, sealed, request)
        except (CallError, StoreError) as fault:
            raise MCPError(INTERNAL_ERROR, str(fault)) from None
        return await self._act(task, what, answers)

    async def _act(self, task: Task, what: str, answers: Wire) -> Wire:
        if what == "cancel" and not task.ended.is_set():
            self._cancel(task)
            with anyio.move_on_after(HANDOVER):
                await task.ended.wait()
        elif what == "update":
            task.answer(answers, self._now())
        elif what == "get":
            with anyio.move_on_after(LOOK):
                await task.way.look()
        return task.wire()

    def _acknowledged(self) -> dict[str, Any]:
        return {"resultType": "complete", "_meta": dict(self.calls.stamp)}

    def _require(self, request: RequestContext) -> None:
        if request.modern and not takes_tasks(request):
            raise refusal(ClientCapabilityError(f"extensions.{TASKS}"))

    def _task_of(self, request: RequestContext, created: float | None = None) -> Task:
        way = TaskWay(request.way)
        task = Task(_owner(request), way, self._now() if created is None else created)
        way.on_change = lambda: task.changed(self._now())
        return task

    def _named(self, request: RequestContext) -> tuple[str, Suspended | None]:
        """The id of the task that a request is about, and what it says."""
        params: Wire = request.params or {}
        is_known = self.calls.offers_tasks() or self._tasks or self._records.is_own(params.get("taskId"))
        if not is_known:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", request.method)
        self._require(request)
        if fault := TASK.fault(params):
            raise MCPError(INVALID_PARAMS, f"Invalid params: {fault}")
        self._forget()
        id: str = params["taskId"]
        return id, None if id in self._tasks else self._records.open(id, _owner(request))

    async def _asked(self, params: Wire) -> Wire | None:
        """Answer another replica, which has opened the id for its owner."""
        task = self._tasks.get(params["id"])
        return None if task is None else await self._act(task, params["what"], params["answers"])

    def _started(self, task: Task, call: ToolCall) -> str:
        share = task.context.share
        running = (each for each in self._running if share and each.context.share == share)
        if sum(1 for _ in running) >= OWN_TASKS:
            raise refusal(CallError(f"{OWN_TASKS} tasks of this caller run already; try again later"))
        try:
            work = self._background.start(self._work, task, call)
        except CallError:
            raise refusal(
                CallError(f"{MAX_TASKS} tasks run on this server already; try again later")
            ) from None
        # From now on: calls that come at once are counted before the first of them runs.
        self._running.add(task)
        return work

    def _cancel(self, task: Task) -> None:
        task.way.withdrawn = True
        self._background.cancel(task.work)

    async def _work(self, task: Task, call: ToolCall) -> None:
        """Run the call of a task to its end, however often it has to ask."""
        try:
            with task.scope:
                await self._run_whole(task, call)
        # It is told to the client: by the request that waits, or in the state of the task.
        except Exception as fault:
            task.fault = fault
            told = error_for_peer(fault)
            task.error = MCPError(told.code, told.message, told.data)
        finally:
            self._running.discard(task)
            task.end(self._now())
            # What a stop has cut off goes on in another process, or is said to be lost.
            if task.id and (task.status != "cancelled" or task.way.withdrawn):
                with anyio.move_on_after(KEEPING, shield=True):
                    await self._records.keep(task.id, task.wire(), seconds=task.expires - self._now())
            if task.id:
                task.release()

    async def _run_whole(self, task: Task, call: ToolCall) -> None:
        while True:
            asked: dict[str, Any] | None = None
            try:
                result = await self.calls.result(call, task.context)
                if not task.way.begun or result.get("resultType") != "input_required":
                    task.result = result
                    return
                asked = result
                requests: Mapping[str, Any] = result.get("inputRequests") or _NONE
            except InputRequired as fault:
                requests = fault.requests
            if not requests:
                await anyio.sleep(_AGAIN)
            answers = await task.ask(requests, self._now())
            replay = task.context.replay.again(answers, asked)
            task.context = task.context.again(replay)

    def _begun(self, task: Task, call: ToolCall) -> None:
        state: dict[str, Any] = {"name": call.name, "created": task.created, "ttl": task.way.ttl_ms}
        seconds, replay = task.expires - self._now(), task.context.replay
        if not replay.parked:
            task.scope.deadline = anyio.current_time() + seconds
        else:
            state |= {"arguments": call.arguments, "replay": replay.saved()}
        task.id = self._records.seal(state, task.owner, seconds, task.tools)
        task.way.outlives = self._records.outlive and bool(replay.parked and task.id)
        if not task.id:
            # Its arguments are too long to be carried: it ends with this process.
            task.id = self._records.seal({**state, "arguments": None, "replay": None}, task.owner, seconds)
        self._forget()
        self._tasks[task.id] = task
        task.way.id = task.id
        task.settled.set()

    async def _restored(self, id: str, sealed: Suspended, request: RequestContext) -> Task:
        """The task that another process has begun."""
        task = self._task_of(request, sealed.data["created"])
        task.id = task.way.id = id
        task.way.known = task.way.begun = True
        task.way.ttl_ms = sealed.data["ttl"]
        if (ended := await self._records.outcome(id)) is not None:
            task.take(ended)
        elif not sealed.data.get("replay"):
            task.error = MCPError(INTERNAL_ERROR, _LOST)
            task.end(self._now())
        else:
            await self._resume(task, sealed, request)
        return self._tasks.setdefault(id, task)

    async def _resume(self, task: Task, sealed: Suspended, request: RequestContext) -> None:
        """Go on with a task of a mounted server here."""
        call = ToolCall(sealed.data["name"], sealed.data["arguments"])
        known = await self.calls.definition(call.name, TaskContext(request, task.way))
        if not known:
            raise CallError(f"{call.name} is not served now, as its server may be starting; ask again later")
        self._records.require_same(sealed, known)
        if task.id in self._tasks:
            return
        _log.info("a task of %s goes on here that another process has begun", call.name)
        own = RequestContext(
            "tools/call",
            {**(request.params or {}), "name": call.name, "arguments": call.arguments},
            request.request_id,
            request.connection,
            request.way,
            request.http,
        )
        task.way.outlives = True
        task.context = TaskContext(own, task.way, Replay.of_saved(sealed.data["replay"]))
        task.tools = sealed.tools
        self._tasks[task.id] = task
        task.work = self._started(task, call)
        await self._records.note_place(task.id, seconds=task.expires - self._now())

    def _forget(self) -> None:
        """Forget tasks whose time is over; one that still runs is cancelled."""
        now = self._now()
        for id, task in list(self._tasks.items()):
            if task.expires <= now:
                if not task.ended.is_set():
                    self._cancel(task)
                del self._tasks[id]
        while len(self._tasks) > MAX_TASKS:
            # The oldest of the caller that has the most.
            ended = {id: task.owner for id, task in self._tasks.items() if task.ended.is_set()}
            if not ended:
                return
            ((owner, _),) = Counter(ended.values()).most_common(1)
            del self._tasks[next(id for id, each in ended.items() if each == owner)]


def _not_found() -> MCPError:
    return MCPError(
        INVALID_PARAMS, "Task not found: it has expired, belongs to another caller, or ended with its server"
    )


def _owner(request: RequestContext) -> str:
    """Who may use the id of a task: the principal; without authentication the id is the proof."""
    identity = request.identity
    return "" if identity is None else identity.key
