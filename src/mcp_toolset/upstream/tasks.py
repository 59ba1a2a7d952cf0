"""`UpstreamTasks`: calls that a mounted server answers with a task, followed to their results.

A server of 2026-07-28 may answer a call with a handle (`io.modelcontextprotocol/tasks`); one of 2025-11-25
does if it is asked to (`task`). The bridge's call goes on until the task has ended, so that hooks, middleware
and the audit log see its final result. A client that takes tasks has a handle of the bridge meanwhile
(`context.task`); any other client waits.

The id of a task of 2026-07-28 travels with the call as an answer does (`Replay.parked`): when the call runs
again, as the client was asked or the bridge has started anew, the same task is followed, and no second one is
created. A task of 2025-11-25 is followed over the session that has begun it.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.task import POLL_MS, RELATED, TASKS, TaskContext
from mcp_toolset.errors import (
    CallError,
    InvalidOutputError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
)
from mcp_toolset.protocol.json_rpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.definition import ToolDefinition, task_support
from mcp_toolset.upstream.followed_task import (
    DECLARED,
    LEAST_PAUSE,
    TELLING,
    FollowedTask,
    Teller,
    Wire,
    milliseconds,
    too_long,
)
from mcp_toolset.upstream.forwarding import Exchange, Send
from mcp_toolset.upstream.sessions.question_shapes import mapping_of

_ENDED: Final = ("completed", "failed", "cancelled")


@dataclass(eq=False)
class UpstreamTasks:
    """The tasks of one mounted server.

    Attributes:
        exchange: The way of requests to it.
        wait: Seconds that a client which takes no tasks waits; 0 if it does not wait.
        needed: The tools that run only as tasks, as far as it has said so.
    """

    exchange: Exchange
    wait: float
    needed: set[str] = field(default_factory=set[str])

    def is_for(self, context: ToolContext, tool: ToolDefinition) -> bool:
        """Whether a call is made as one that may become a task."""
        support = "" if self._is_modern else task_support(tool)
        if not context.is_task:
            return (tool.name in self.needed or support == "required") and not self._refuses(context)
        return self._is_modern or bool(support)

    def is_needed(self, fault: UpstreamProtocolError, context: ToolContext, tool: ToolDefinition) -> bool:
        """Whether a call failed because its tool runs only as a task, and is to be made as one instead."""
        if tool.name in self.needed or self._refuses(context):
            return False
        required = mapping_of(mapping_of(fault.data).get("requiredCapabilities"))
        declares = TASKS in mapping_of(required.get("extensions"))
        if fault.code != MISSING_REQUIRED_CLIENT_CAPABILITY or not declares:
            return False
        self.needed.add(tool.name)
        return True

    @property
    def _is_modern(self) -> bool:
        return self.exchange.listing.main.modern

    def _refuses(self, context: ToolContext) -> bool:
        """Whether a client is told to declare the extension, rather than waits."""
        return not self.wait and isinstance(context, WireContext) and context.modern

    async def call(
        self, method: str, params: dict[str, Any], context: ToolContext, tool: ToolDefinition
    ) -> dict[str, Any]:
        """Make a call, and follow the task that it may become; see `Exchange.perform`."""
        if not self._is_modern:
            then = partial(self._followed, context)
            return await self.exchange.perform(method, {**params, "task": {}}, context, tool, then)
        replay = context.replay if isinstance(context, WireContext) else None
        key = "" if replay is None else replay.key("task", {}, f"task {self.exchange.link.name} {tool.name}")
        id = None if replay is None else replay.parked.get(key)
        state: Wire = {}
        if id is None:
            declared = {**params.get("_meta", {}), **DECLARED}
            wire = await self.exchange.perform(method, {**params, "_meta": declared}, context, tool)
            if wire.get("resultType") != "task":
                return wire
            state, id = wire, self._id_in(wire)
            if replay is not None:
                replay.parked[key] = id
        task = FollowedTask(self.exchange, id, context, self.wait)
        if isinstance(context, TaskContext):
            with context.way.following():
                return await task.result(state)
        return await task.within_deadline(state)

    async def _followed(self, context: ToolContext, send: Send, wire: dict[str, Any]) -> dict[str, Any]:
        """The result of a task of 2025-11-25; of a call that has become none, its own result."""
        created = wire.get("task")
        if created is None:
            return wire
        state = mapping_of(created)
        id = self._id_in(state)
        try:
            with anyio.fail_after(None if isinstance(context, TaskContext) else self.wait):
                return _plain(await self._ended(context, send, id, state))
        except TimeoutError:
            await _cancel(send, id)
            raise too_long(self.exchange.link.name, self.wait) from None
        except anyio.get_cancelled_exc_class():
            await _cancel(send, id)
            raise

    async def _ended(self, context: ToolContext, send: Send, id: str, state: Wire) -> dict[str, Any]:
        teller = Teller(context)
        while True:
            status = state.get("status")
            told = {**state, "ttlMs": state.get("ttl"), "pollIntervalMs": state.get("pollInterval")}
            await teller.tell(told)
            if status in _ENDED or status == "input_required":
                try:
                    return await self._outcome(context, send, id, status)
                except UpstreamTimeoutError:
                    if status in _ENDED:
                        raise
            seconds = max((milliseconds(told) or POLL_MS) / 1000, LEAST_PAUSE)
            if isinstance(context, TaskContext):
                await context.way.wait_for_interest(seconds)
            else:
                await anyio.sleep(seconds)
            state = await send("tasks/get", {"taskId": id})

    async def _outcome(self, context: ToolContext, send: Send, id: str, status: object) -> dict[str, Any]:
        """Its result; while it waits for input, the server asks the client by this request."""
        if status == "cancelled":
            if isinstance(context, TaskContext):
                context.way.ended_upstream = True
            raise CallError(f"{self.exchange.link.name}: the server has cancelled the task")
        return await send("tasks/result", {"taskId": id})

    def _id_in(self, state: Wire) -> str:
        id = state.get("taskId")
        if not isinstance(id, str):
            raise InvalidOutputError(
                f"{self.exchange.link.name}: its task does not follow the protocol: it has no taskId"
            )
        return id


async def _cancel(send: Send, id: str) -> None:
    with anyio.move_on_after(TELLING, shield=True):
        try:
            await send("tasks/cancel", {"taskId": id})
        except UpstreamError:
            return


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what relates it to a task of the server."""
    meta = {key: value for key, value in mapping_of(result.get("_meta")).items() if key != RELATED}
    rest = {key: value for key, value in result.items() if key != "_meta"}
    return {**rest, "_meta": meta} if meta else rest
