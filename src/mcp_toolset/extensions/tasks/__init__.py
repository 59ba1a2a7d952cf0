"""Tasks: a call goes on while its client asks for its state, in both revisions that have such calls.

`TaskCalls` is in each server; the rest is loaded with the first task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from mcp_toolset.calls.background import BackgroundWork
from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.context.connection import RequestContext
from mcp_toolset.errors import DefinitionError
from mcp_toolset.extending.extension import Extension
from mcp_toolset.protocol.methods import EXTENSION_METHODS
from mcp_toolset.server.tool_answers import ToolAnswers

if TYPE_CHECKING:
    from mcp_toolset.config.extensions import Settings
    from mcp_toolset.extending.extension import Answer
    from mcp_toolset.extending.host import Host
    from mcp_toolset.extensions.tasks.tasks import LegacyTasks, Tasks


class TaskCalls(Extension):
    """The tasks of one server: what is called may become one, as it says itself."""

    key: ClassVar = "tasks"
    always: ClassVar = True

    @classmethod
    def of(cls, said: Any, stated: Settings | None, host: Host) -> Self:
        if said is not None and said is not True:
            raise DefinitionError(f"tasks takes True or False, not {said!r}")
        return cls()

    def bind(self, host: Host) -> Self:
        bound = type(self)()
        bound.host = host
        return bound

    def services(self) -> Mapping[type, object]:
        return {TaskCalls: self}

    def lifespan(self) -> None:
        if self.host.shared is not None:
            self.tasks.serve()

    def methods(self) -> Mapping[str, Answer]:
        return dict.fromkeys(EXTENSION_METHODS, self._about)

    def answer(self, answer: Answer) -> Answer:
        is_offered = cast("ToolAnswers", self.host.need(ToolAnswers)).offers_tasks()
        return partial(self._called, answer) if is_offered else answer

    @cached_property
    def tasks(self) -> Tasks:
        # Few servers have any.
        from mcp_toolset.extensions.tasks.tasks import TaskRecords, Tasks

        need = self.host.need
        records = TaskRecords(need(SuspendedStore), self.host.shared)
        return Tasks(
            cast("ToolAnswers", need(ToolAnswers)), cast("BackgroundWork", need(BackgroundWork)), records
        )

    @cached_property
    def _legacy(self) -> LegacyTasks:
        from mcp_toolset.extensions.tasks.tasks import LegacyTasks

        return LegacyTasks(self.tasks)

    async def _called(self, answer: Answer, request: RequestContext) -> dict[str, Any]:
        asks = request.modern or "task" in (request.params or {})
        if asks and self.tasks.takes(request):
            return await (self.tasks if request.modern else self._legacy).call(request)
        return await answer(request)

    def _about(self, request: RequestContext) -> Awaitable[dict[str, Any]]:
        return self._legacy.answers[request.method](request)


EXTENSION = TaskCalls
