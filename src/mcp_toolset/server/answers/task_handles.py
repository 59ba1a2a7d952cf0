"""`TaskHandles`: a slow call of a client that takes no tasks is answered with a handle, for two fixed tools.

The model calls `get_task` with the handle for the result, or `cancel_task`. The tools are listed from the
start, as lists do not change because of other requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import anyio

from mcp_toolset.context.incoming import RequestContext
from mcp_toolset.errors import CallError, DefinitionError
from mcp_toolset.protocol.eras import result_for
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.result import ToolResult
from mcp_toolset.tools.declare.function import tool
from mcp_toolset.tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from mcp_toolset.server.answers.tasks import Tasks

TASK_TOOLS: Final = ("get_task", "cancel_task")
"""The names of the two tools."""

_AT_ONCE: Final = frozenset({*TASK_TOOLS, "search_tools", "resolve_tools"})


class TaskHandles:
    """Answers slow calls with handles.

    Attributes:
        tools: The two fixed tools.
        tasks: The tasks of the server; set before a call.
    """

    tasks: Tasks

    def __init__(self, after: float) -> None:
        if not after > 0:
            raise DefinitionError(f"handle_after is a positive number of seconds, not {after!r}")
        self.after = after
        self.tools = Toolset(tool(self.get_task), tool(self.cancel_task))

    def takes(self, name: str) -> bool:
        """Whether a call may be answered with a handle."""
        return name not in _AT_ONCE

    async def call(self, request: RequestContext, promises: Callable[[], bool]) -> dict[str, Any]:
        """The result of a call, or a handle with words for the model.

        Args:
            request: The call.
            promises: Whether clients expect structured content of the tool, which a handle does not have.
        """
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
        result = ToolResult.of_text(text, is_error=promises())
        return result_for(result.wire, version=request.protocol_version, stamp=self.tasks.stamp)

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
        said = f": {wire['statusMessage']}" if wire.get("statusMessage") else ""
        again = "" if task.ended.is_set() else "; call get_task again later"
        return ToolResult.of_text(f"The task is {wire['status'].replace('_', ' ')}{said}{again}.")

    async def cancel_task(self, task_id: str, context: ToolContext) -> str:
        """Cancel a call that goes on as a task.

        Args:
            task_id: The handle that the call was answered with.
            context: The caller.
        """
        task = self.tasks.owned(task_id, context.principal or "")
        await self.tasks.cancelled(task)
        return f"The task is {task.status}."
