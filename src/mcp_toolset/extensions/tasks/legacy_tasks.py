"""`LegacyTasks`: tasks in the words of 2025-11-25, where a client asks for one with the call (`task`)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

import anyio

from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.task import RELATED
from mcp_toolset.extensions.tasks.task import LONGEST_MS, legacy
from mcp_toolset.extensions.tasks.tasks import HANDOVER, Tasks
from mcp_toolset.protocol.json_rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MCPError

ENDED: Final = frozenset({"completed", "failed", "cancelled"})
"""The statuses of tasks that have ended."""

Wire = Mapping[str, Any]
Handler = Callable[[RequestContext], Awaitable[dict[str, Any]]]
_NONE: Final[Wire] = {}
_CANCELLED: Final[Wire] = {"code": INTERNAL_ERROR, "message": "the task was cancelled"}


class LegacyTasks:
    """The tasks of one server, for clients of 2025-11-25.

    Attributes:
        answers: What answers the methods about tasks, of either revision.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self.answers: Mapping[str, Handler] = {
            "tasks/get": lambda request: tasks.get(request) if request.modern else self.get(request),
            "tasks/update": tasks.update,
            "tasks/cancel": lambda request: tasks.cancel(request) if request.modern else self.cancel(request),
            "tasks/result": self.result,
        }

    async def call(self, request: RequestContext) -> dict[str, Any]:
        """The handle of a call that a client of 2025-11-25 makes as a task."""
        params = request.params or {}
        listed = self._tasks.calls.listed(params["name"], WireContext(request))
        if "taskSupport" not in (listed.get("execution") or ()):
            raise MCPError(METHOD_NOT_FOUND, f"Tool {params['name']} does not run as a task")
        asked = _time_asked(params["task"])
        task = await self._tasks.begin(request)
        await self._tasks.until(task.settled, task, within=HANDOVER)
        if task.fault is not None and not task.id:
            raise task.fault
        self._tasks.hand_over(task)
        if asked > 0:
            task.way.ttl_ms = min(asked, task.way.ttl_ms or LONGEST_MS)
        return {"task": {**legacy(task.created_wire()), "status": "working"}}

    async def get(self, request: RequestContext) -> dict[str, Any]:
        return legacy(await self._tasks.about(request))

    async def cancel(self, request: RequestContext) -> dict[str, Any]:
        wire = await self._tasks.about(request, "get")
        if wire["status"] in ENDED:
            raise MCPError(INVALID_PARAMS, f"Cannot cancel task: it has ended, and is {wire['status']}")
        return {**legacy(await self._tasks.about(request)), "status": "cancelled"}

    async def result(self, request: RequestContext) -> dict[str, Any]:
        """The result of a task, once it has ended; this request asks the client meanwhile (2025-11-25)."""
        wire = await self._tasks.about(request, "get")
        while wire["status"] not in ENDED:
            task = self._tasks.here(wire["taskId"])
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
        raise MCPError(error["code"], error["message"], error.get("data"))


def _time_asked(task: object) -> int:
    """Milliseconds for which a client asks that its task is kept; 0 if it does not say."""
    if not isinstance(task, dict):
        raise MCPError(INVALID_PARAMS, "Invalid params: task must be an object")
    ttl = cast("Wire", task).get("ttl")
    if ttl is None:
        return 0
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not math.isfinite(ttl):
        raise MCPError(INVALID_PARAMS, "Invalid params: task.ttl must be a number of milliseconds")
    return int(ttl)
