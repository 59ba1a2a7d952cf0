"""`TaskHandles`: a slow call of a client that takes no tasks is answered with a handle, for two fixed tools.

The model calls `get_task` with the handle for the result, or `cancel_task`. The tools are listed from the
start, as lists do not change because of other requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import anyio

from mcp_toolset._numbers import require_positive
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.context.request import WireContext
from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.extensions.tasks import TaskCalls
from mcp_toolset.protocol.eras import result_for
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.result import ToolResult
from mcp_toolset.tools.tool import Tool, tool

if TYPE_CHECKING:
    from mcp_toolset.extending.extension import Answer
    from mcp_toolset.extensions.tasks.tasks import Tasks

TASK_TOOLS: Final = ("get_task", "cancel_task")
"""The names of the two tools."""

_AT_ONCE: Final = frozenset({*TASK_TOOLS, "search_tools", "resolve_tools"})


class TaskHandles(Extension):
    """Answers slow calls with handles."""

    key: ClassVar = "task_after"

    def __init__(self, seconds: float = 0) -> None:
        """Answer calls that take longer than so many seconds."""
        require_positive("a server", task_after=seconds)
        self.after = seconds

    def tools(self) -> Sequence[Tool[..., Any]]:
        """The tools for handles.

        Raises:
            DefinitionError: the server has no tasks.
        """
        if self.host.need(TaskCalls) is None:
            raise DefinitionError("task_after makes tasks of slow calls: leave out tasks=False")
        return [tool(self.get_task), tool(self.cancel_task)]

    def answer(self, answer: Answer) -> Answer:
        return partial(self._called, answer)

    @property
    def tasks(self) -> Tasks:
        """The tasks of the server."""
        return cast("TaskCalls", self.host.need(TaskCalls)).tasks

    async def _called(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        """The result of a call, or a handle with words for the model."""
        name = (request.params or {})["name"]
        if name in _AT_ONCE:
            return await answer(request)
        task = await self.tasks.begin(request, hands_over=False)
        await self.tasks.until(task.ended, task, within=self.after)
        if task.ended.is_set():
            return self.tasks.outcome_of(task)
        self.tasks.hand_over(task)
        text = (
            f"The call has not ended within {self.after:g} s, and goes on as a task. Call get_task with this "
            f"task_id for the result, or cancel_task to cancel it.\ntask_id: {task.id}"
        )
        # Clients take a result without the structured content that was promised only if it is an error.
        promises = "outputSchema" in self.tasks.calls.listed(name, WireContext(request))
        result = ToolResult.of_text(text, is_error=promises)
        return result_for(result.wire, version=request.protocol_version, stamp=self.tasks.calls.stamp)

    async def get_task(self, task_id: str, context: ToolContext) -> ToolResult:
        """Get the result of a call that goes on as a task. If it still runs, this waits a little and says so.

        Args:
            task_id: The handle that the call was answered with.
            context: The caller.
        """
        task = self.tasks.owned(task_id, context.principal or "")
        with anyio.move_on_after(self.after):
            await task.ended.wait()
        wire = task.wire()
        if wire["status"] == "completed":
            return ToolResult({"content": [], **wire["result"]})
        if (error := wire.get("error")) is not None:
            raise CallError(f"the task has failed: {error['message']}")
        message = f": {wire['statusMessage']}" if wire.get("statusMessage") else ""
        again = "" if task.ended.is_set() else "; call get_task again later"
        return ToolResult.of_text(f"The task is {wire['status'].replace('_', ' ')}{message}{again}.")

    async def cancel_task(self, task_id: str, context: ToolContext) -> str:
        """Cancel a call that goes on as a task.

        Args:
            task_id: The handle that the call was answered with.
            context: The caller.
        """
        task = self.tasks.owned(task_id, context.principal or "")
        await self.tasks.cancelled(task)
        return f"The task is {task.status}."


EXTENSION = TaskHandles
