"""`Tasks`: calls that become tasks, and `tasks/get`, `tasks/update` and `tasks/cancel` (2026-07-28).

A call of a client that takes tasks runs in the background of the server. If it ends first, its result is the
answer; if it becomes a task, the answer is a handle, and the call goes on: one run of the tool, its hooks and
its middleware, and one entry in the audit log.

The id of a task that a mounted server works on is a state of the call, so that another process goes on with
it (`TaskRecords`). Other replicas ask the one that has the task, as long as it lives.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from mcp_toolset.calls.background import BackgroundWork
from mcp_toolset.calls.suspended import Sealer, Suspended, SuspendedStore
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import Replay
from mcp_toolset.context.task import KEPT_MS, RELATED, TASKS, TaskContext, TaskWay, takes_tasks
from mcp_toolset.errors import CallError, ClientCapabilityError, RequestStateError, StoreError
from mcp_toolset.protocol import json_rpc
from mcp_toolset.protocol.methods import FIRST_WITH_TASKS, TASK
from mcp_toolset.security.key_ring import KeyRing
from mcp_toolset.server.tool_answers import ToolAnswers
from mcp_toolset.tools.call import ToolCall
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.tools.result import InputRequired

if TYPE_CHECKING:
    from mcp_toolset.shared.state import SharedState

MAX_ID: Final = 4096  # characters of an id; it travels in a header of each request about its task
LOOK: Final = 5.0  # seconds that a request for the state of a task waits for the mounted server's answer
_KIND: Final = "task"
_OUTCOME: Final = "task outcome"
_log = logging.getLogger("mcp_toolset.server")

Wire = Mapping[str, Any]


class TaskRecords:
    """Records of the tasks of one server for other processes; `outlive` if they can use the ids."""

    def __init__(self, store: SuspendedStore | None, shared: SharedState | None) -> None:
        self._store = store
        self._shared = shared
        self._kept = None if store is None else store.kept(_KIND)
        self._fresh: KeyRing | None = None
        self.sealer = Sealer(_KIND, self._keys)
        self.outlive = store is not None

    def serve(self, answer: Callable[[Wire], Awaitable[Wire | None]]) -> None:
        if self._shared is not None:
            self._shared.replicas.serve(_KIND, answer)

    def seal(self, state: Wire, owner: str, ttl: float, tools: Mapping[str, str] | None = None) -> str:
        """The id of a task in this state, for its owner; empty if it is too long."""
        at = "" if self._shared is None else self._shared.replicas.own
        id = self.sealer.seal({**state, "at": at}, who=owner, what=_KIND, ttl=ttl, tools=tools)
        return id if len(id) <= MAX_ID else ""

    def is_own(self, id: object) -> bool:
        return isinstance(id, str) and self.sealer.is_own(id)

    def open(self, id: str, owner: str) -> Suspended | None:
        """The state in an id; `None` if it is none of ours, of another owner, or its time is over."""
        if len(id) > MAX_ID or not self.sealer.is_own(id):
            return None
        try:
            return self.sealer.open(id, who=owner, what=_KIND)
        except RequestStateError as fault:
            _log.warning("a task is not found: %s", in_log(str(fault)))
            return None

    async def elsewhere(self, id: str, at: str, what: str, answers: Wire) -> Wire | None:
        """The answer of the replica that has the task; `None` if that is this one, or gone."""
        shared = self._shared
        params = {"id": id, "what": what, "answers": dict(answers)}
        while shared is not None and at not in ("", shared.replicas.own):
            try:
                return await shared.replicas.ask(at, _KIND, params, within=2 * LOOK) or None
            except (CallError, StoreError):
                before, at = at, (await self._got(_place_of(id)) or b"").decode()
                if at == before or not at:
                    if await shared.replicas.lives(before):
                        raise CallError(
                            "the replica that has the task gave no answer; ask again later"
                        ) from None
                    return None
        return None

    async def note_place(self, id: str, *, ttl: float) -> None:
        if self._shared is not None:
            await self._put(_place_of(id), self._shared.replicas.own.encode(), ttl)

    async def keep(self, id: str, wire: Wire, *, ttl: float) -> None:
        """Keep how a task has ended; the data opens with its id."""
        if self._kept is not None:
            sealed = self._keys().seal(_OUTCOME, json.dumps(wire).encode(), bound=id)
            await self._put(_name_of(id), sealed.encode(), ttl)

    async def outcome(self, id: str) -> dict[str, Any] | None:
        data = await self._got(_name_of(id))
        if data is None:
            return None
        found = self._keys().open(_OUTCOME, data.decode("ascii", "replace"), bound=id)
        return None if found is None else json.loads(found)

    async def _put(self, name: str, data: bytes, ttl: float) -> None:
        try:
            if self._kept is not None and ttl > 0:
                await self._kept.put(name, data, ttl=ttl)
        except StoreError as fault:
            _log.error("%s", fault)

    async def _got(self, name: str) -> bytes | None:
        return None if self._kept is None else await self._kept.get(name)

    def _keys(self) -> KeyRing:
        if self._store is not None:
            return self._store.keys
        if self._fresh is None:
            self._fresh = KeyRing.fresh()
        return self._fresh


def _place_of(id: str) -> str:
    return f"{_name_of(id)}.at"


def _name_of(id: str) -> str:
    """The name of a task in a store; its id is a secret of the client."""
    return hashlib.blake2b(id.encode(), digest_size=16).hexdigest()


MAX_TTL_MS: Final = 86_400_000
"""Milliseconds for which a task of a mounted server is kept, however long that server keeps it."""

_NONE: Final[Wire] = {}
_LEGACY: Final = ("taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt")


class Task:
    """One task, from the call that became it to its end."""

    def __init__(self, owner: str, way: TaskWay, created: float) -> None:
        self.id = ""  # its id; empty until the call has become a task
        self.owner = owner  # the caller who may use the id; empty without authentication
        self.way = way
        self.context: TaskContext
        self.work = ""
        self.scope = anyio.CancelScope()
        self.call: ToolCall
        self.hold: object = None
        self.tools: Mapping[str, str] = {}
        self.created = self._updated = created
        self.settled = anyio.Event()  # set once the call has become a task, or has ended before
        self.ended = anyio.Event()
        self.result: dict[str, Any] | None = None
        self.fault: Exception | None = None
        self.error: json_rpc.MCPError | None = None
        self._requests: dict[str, Wire] = {}
        self._answers: dict[str, Wire] = {}
        self._answered = anyio.Event()
        self._round = 0
        self._ended: Wire | None = None

    @property
    def expires(self) -> float:
        ttl = self.way.ttl_ms
        return self.created + (MAX_TTL_MS if ttl is None else min(ttl, MAX_TTL_MS)) / 1000

    @property
    def status(self) -> str:
        if self._ended is not None:
            return str(self._ended["status"])
        if not self.ended.is_set():
            return "input_required" if self._requests or self.way.asking else "working"
        if self.error is not None:
            return "failed"
        return "cancelled" if self.result is None or self.way.ended_upstream else "completed"

    def changed(self, now: float) -> None:
        self._updated = now

    async def ask(self, requests: Mapping[str, Wire], now: float) -> dict[str, Wire]:
        """Put questions to the client; its answers, once it has answered all of them."""
        self._round += 1
        # A key is used once in the life of a task, and a mounted server may use one again in its next round.
        self._requests = {f"{self._round}-{key}": each for key, each in requests.items()}
        self._answers, self._answered = {}, anyio.Event()
        self.changed(now)
        if self._requests:
            await self._answered.wait()
        prefix = len(f"{self._round}-")
        return {key[prefix:]: each for key, each in self._answers.items()}

    def answer(self, answers: Mapping[str, Wire], now: float) -> None:
        """Take answers of the client; those to no open question are ignored."""
        taken = self._requests.keys() & answers.keys()
        for key in taken:
            del self._requests[key]
            self._answers[key] = answers[key]
        if taken and not self._requests:
            self._answered.set()
        if taken:
            self.changed(now)

    def end(self, now: float) -> None:
        self._requests = {}
        self.settled.set()
        self.ended.set()
        self.changed(now)

    def release(self) -> None:
        """Keep the outcome alone: the request may be megabytes, and an ended task is kept for long."""
        self.call, self.hold = ToolCall(self.call.name, {}), None
        del self.context
        self.way.release()

    def take(self, wire: Wire) -> None:
        """Be a task that has ended in another process."""
        self._ended = wire
        self.settled.set()
        self.ended.set()

    def created_wire(self) -> dict[str, Any]:
        """The answer to the client when the call becomes a task, without the fields that `wire` adds."""
        wire: dict[str, Any] = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": _iso(self.created),
            "lastUpdatedAt": _iso(self._updated),
            "ttlMs": self.way.ttl_ms,
            "pollIntervalMs": self.way.poll_ms,
        }
        if self.way.message is not None:
            wire["statusMessage"] = self.way.message
        return wire

    def wire(self) -> dict[str, Any]:
        """Its state: `DetailedTask` of the extension."""
        if self._ended is not None:
            return dict(self._ended)
        wire, status = self.created_wire(), self.status
        if status == "input_required":
            wire["inputRequests"] = dict(self._requests)
        elif status == "completed":
            wire["result"] = self.result
        elif status == "failed" and self.error is not None:
            error = self.error.error
            told = {"code": error.code, "message": error.message}
            wire["error"] = told if error.data is None else {**told, "data": error.data}
            wire.setdefault("statusMessage", error.message)
        return wire


def legacy(wire: Wire) -> dict[str, Any]:
    """The state of a task in the words of 2025-11-25, where a tool's error is a failure of the task."""
    told = {key: wire[key] for key in _LEGACY if key in wire}
    if wire["status"] == "completed" and wire.get("result", _NONE).get("isError"):
        told["status"] = "failed"
    return {**told, "ttl": wire["ttlMs"], "pollInterval": wire["pollIntervalMs"]}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


MAX_TASKS: Final = 512  # calls that may run as tasks at once, and tasks that are kept
OWN_TASKS: Final = 128  # the same of one caller
KEEPING: Final = 10.0  # seconds in which an outcome is written
HANDOVER: Final = 2.0
"""Seconds after which a legacy client gets its handle, and that a cancelled call has to end."""

_LOST: Final = "the server ended while the task ran; it is not known how far it came"
_AGAIN: Final = 0.1


class Tasks:
    """The tasks of one server."""

    def __init__(
        self,
        calls: ToolAnswers,
        work: BackgroundWork,
        records: TaskRecords,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.calls = calls
        self._records = records
        self._now = clock
        self.here: dict[str, Task] = {}
        self._running: set[Task] = set()
        self._background = work.beside(max_running=MAX_TASKS, timeout=MAX_TTL_MS / 1000)

    def serve(self) -> None:
        self._records.serve(self._asked)

    def takes(self, request: RequestContext) -> bool:
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
        if task.fault is not None:
            raise task.fault
        if task.result is None:
            raise json_rpc.refusal(
                CallError(f"{task.call.name}: the call was cancelled; the server is closing")
            )
        return task.result

    def hand_over(self, task: Task) -> None:
        if not task.id:
            task.way.ttl_ms = task.way.ttl_ms or KEPT_MS
            task.way.known = task.way.begun = True
            self._begun(task, task.call)

    def owned(self, id: str, owner: str) -> Task:
        self._forget()
        task = self.here.get(id)
        if task is None or task.owner != owner:
            raise CallError(_not_found().message)
        return task

    async def cancelled(self, task: Task) -> None:
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

    async def acted(self, request: RequestContext) -> dict[str, Any]:
        """Take answers, or cancel a task; one that has ended stays as it is."""
        await self.about(request)
        return {"resultType": "complete", "_meta": dict(self.calls.stamp)}

    async def about(self, request: RequestContext, what: str = "") -> Wire:
        """Do what a client asks for, where the task is; its state then."""
        id, sealed = self._named(request)
        what = what or request.method.partition("/")[2]
        answers: Wire = (request.params or {}).get("inputResponses") or _NONE
        task = self.here.get(id)
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
            raise json_rpc.MCPError(json_rpc.INTERNAL_ERROR, str(fault)) from None
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

    def _task_of(self, request: RequestContext, created: float | None = None) -> Task:
        way = TaskWay(request.way)
        task = Task(_owner(request), way, self._now() if created is None else created)
        way.on_change = lambda: task.changed(self._now())
        return task

    def _named(self, request: RequestContext) -> tuple[str, Suspended | None]:
        """The id of the task that a request is about, and what it says."""
        params: Wire = request.params or {}
        is_known = self.calls.offers_tasks() or self.here or self._records.is_own(params.get("taskId"))
        if not is_known:
            raise json_rpc.MCPError(json_rpc.METHOD_NOT_FOUND, "Method not found", request.method)
        if request.modern and not takes_tasks(request):
            raise json_rpc.refusal(ClientCapabilityError(f"extensions.{TASKS}"))
        if fault := TASK.fault(params):
            raise json_rpc.MCPError(json_rpc.INVALID_PARAMS, f"Invalid params: {fault}")
        self._forget()
        id: str = params["taskId"]
        return id, None if id in self.here else self._records.open(id, _owner(request))

    async def _asked(self, params: Wire) -> Wire | None:
        """Answer another replica, which has opened the id for its owner."""
        task = self.here.get(params["id"])
        return None if task is None else await self._act(task, params["what"], params["answers"])

    def _started(self, task: Task, call: ToolCall) -> str:
        share = task.context.share
        running = (each for each in self._running if share and each.context.share == share)
        if sum(1 for _ in running) >= OWN_TASKS:
            raise json_rpc.refusal(
                CallError(f"{OWN_TASKS} tasks of this caller run already; try again later")
            )
        try:
            work = self._background.start(self._work, task, call)
        except CallError:
            raise json_rpc.refusal(
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
            told = json_rpc.error_for_peer(fault)
            task.error = json_rpc.MCPError(told.code, told.message, told.data)
        finally:
            self._running.discard(task)
            task.end(self._now())
            # What a stop has cut off goes on in another process, or is said to be lost.
            if task.id and (task.status != "cancelled" or task.way.withdrawn):
                with anyio.move_on_after(KEEPING, shield=True):
                    await self._records.keep(task.id, task.wire(), ttl=task.expires - self._now())
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
        self.here[task.id] = task
        task.way.id = task.id
        task.settled.set()

    async def _restored(self, id: str, sealed: Suspended, request: RequestContext) -> Task:
        task = self._task_of(request, sealed.data["created"])
        task.id = task.way.id = id
        task.way.known = task.way.begun = True
        task.way.ttl_ms = sealed.data["ttl"]
        if (ended := await self._records.outcome(id)) is not None:
            task.take(ended)
        elif not sealed.data.get("replay"):
            task.error = json_rpc.MCPError(json_rpc.INTERNAL_ERROR, _LOST)
            task.end(self._now())
        else:
            await self._resume(task, sealed, request)
        return self.here.setdefault(id, task)

    async def _resume(self, task: Task, sealed: Suspended, request: RequestContext) -> None:
        call = ToolCall(sealed.data["name"], sealed.data["arguments"])
        known = await self.calls.definition(call.name, TaskContext(request, task.way))
        if not known:
            raise CallError(f"{call.name} is not served now, as its server may be starting; ask again later")
        self._records.sealer.require_same(sealed, known)
        if task.id in self.here:
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
        self.here[task.id] = task
        task.work = self._started(task, call)
        await self._records.note_place(task.id, ttl=task.expires - self._now())

    def _forget(self) -> None:
        """Forget tasks whose time is over; one that still runs is cancelled."""
        now = self._now()
        for id, task in list(self.here.items()):
            if task.expires <= now:
                if not task.ended.is_set():
                    self._cancel(task)
                del self.here[id]
        while len(self.here) > MAX_TASKS:
            # The oldest of the caller that has the most.
            ended = {id: task.owner for id, task in self.here.items() if task.ended.is_set()}
            if not ended:
                return
            ((owner, _),) = Counter(ended.values()).most_common(1)
            del self.here[next(id for id, each in ended.items() if each == owner)]


def _not_found() -> json_rpc.MCPError:
    return json_rpc.MCPError(
        json_rpc.INVALID_PARAMS,
        "Task not found: it has expired, belongs to another caller, or ended with its server",
    )


def _owner(request: RequestContext) -> str:
    """The key of the principal that may use a task; empty without authentication: the id is the proof."""
    identity = request.identity
    return "" if identity is None else identity.key


ENDED: Final = frozenset({"completed", "failed", "cancelled"})  # the statuses of tasks that have ended
Handler = Callable[[RequestContext], Awaitable[dict[str, Any]]]
_CANCELLED: Final[Wire] = {"code": json_rpc.INTERNAL_ERROR, "message": "the task was cancelled"}


class LegacyTasks:
    """The tasks of one server, for clients of 2025-11-25; `answers` has the methods of either revision."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.answers: Mapping[str, Handler] = {
            "tasks/get": lambda request: tasks.get(request) if request.modern else self.get(request),
            "tasks/update": tasks.acted,
            "tasks/cancel": lambda request: tasks.acted(request) if request.modern else self.cancel(request),
            "tasks/result": self.result,
        }

    async def call(self, request: RequestContext) -> dict[str, Any]:
        """The handle of a call that a client of 2025-11-25 makes as a task."""
        params = request.params or {}
        listed = self._tasks.calls.listed(params["name"], WireContext(request))
        if "taskSupport" not in (listed.get("execution") or ()):
            raise json_rpc.MCPError(
                json_rpc.METHOD_NOT_FOUND, f"Tool {params['name']} does not run as a task"
            )
        asked = _time_asked(params["task"])
        task = await self._tasks.begin(request)
        await self._tasks.until(task.settled, task, within=HANDOVER)
        if task.fault is not None and not task.id:
            raise task.fault
        self._tasks.hand_over(task)
        if asked > 0:
            task.way.ttl_ms = min(asked, task.way.ttl_ms or MAX_TTL_MS)
        return {"task": {**legacy(task.created_wire()), "status": "working"}}

    async def get(self, request: RequestContext) -> dict[str, Any]:
        return legacy(await self._tasks.about(request))

    async def cancel(self, request: RequestContext) -> dict[str, Any]:
        wire = await self._tasks.about(request, "get")
        if wire["status"] in ENDED:
            raise json_rpc.MCPError(
                json_rpc.INVALID_PARAMS, f"Cannot cancel task: it has ended, and is {wire['status']}"
            )
        return {**legacy(await self._tasks.about(request)), "status": "cancelled"}

    async def result(self, request: RequestContext) -> dict[str, Any]:
        """The result of a task, once it has ended; this request asks the client meanwhile (2025-11-25)."""
        wire = await self._tasks.about(request, "get")
        while wire["status"] not in ENDED:
            task = self._tasks.here.get(wire["taskId"])
            if task is None:
                await anyio.sleep(wire["pollIntervalMs"] / 1000)
            else:
                with task.way.opened(request.way):
                    await task.ended.wait()
            wire = await self._tasks.about(request, "get")
        if wire["status"] == "completed":
            result: Wire = wire["result"]
            meta: Wire = result.get("_meta") or _NONE
            return {**result, "_meta": {**meta, RELATED: {"taskId": wire["taskId"]}}}
        error: Wire = wire.get("error") or _CANCELLED
        raise json_rpc.MCPError(error["code"], error["message"], error.get("data"))


def _time_asked(task: object) -> int:
    """Milliseconds for which a client asks that its task is kept; 0 if it does not say."""
    if not isinstance(task, dict):
        raise json_rpc.MCPError(json_rpc.INVALID_PARAMS, "Invalid params: task must be an object")
    ttl = cast("Wire", task).get("ttl")
    if ttl is None:
        return 0
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not math.isfinite(ttl):
        raise json_rpc.MCPError(
            json_rpc.INVALID_PARAMS, "Invalid params: task.ttl must be a number of milliseconds"
        )
    return int(ttl)
