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

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Any, Final

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.tasks import WorkingTime
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.task import POLL_MS, RELATED, TASKS, TaskContext
from mcp_toolset.errors import (
    CallError,
    InvalidOutputError,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from mcp_toolset.protocol.codec import MAX_ERROR
from mcp_toolset.protocol.dispatch import CallOptions
from mcp_toolset.protocol.eras import final_result
from mcp_toolset.protocol.json_rpc import (
    INTERNAL_ERROR,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    URL_ELICITATION_REQUIRED,
)
from mcp_toolset.tools.call import ToolContext
from mcp_toolset.tools.definition import ToolDefinition, task_support
from mcp_toolset.tools.result import InputRequired, mapping_of
from mcp_toolset.upstream.forwarding import Exchange, Send
from mcp_toolset.upstream.questions import answers_to, checked, requests_in
from mcp_toolset.upstream.session import OWN_EXTENSIONS, OwnExtensions

LEAST_PAUSE: Final = 0.02  # seconds between two requests for the state of a task, at least
MISSES: Final = 5  # requests for the state in a row that may be lost before a client that waits is told
LONGEST_PAUSE: Final = 30.0  # seconds between two attempts to reach a server that has a task and is away
TELLING: Final = 2.0  # seconds in which a server is told that its task is cancelled

DECLARED: Final[Mapping[str, Any]] = {OWN_EXTENSIONS: OwnExtensions({TASKS: {}})}
"""What the `_meta` of a request has that may begin a task, or is about one."""

Wire = Mapping[str, Any]


class FollowedTask:
    """One task of a server, while the bridge follows it."""

    def __init__(self, exchange: Exchange, id: str, context: ToolContext, wait: float) -> None:
        self._wait = wait
        self._teller = Teller(context)
        self._exchange = exchange
        self._name = exchange.link.name
        self._id = id
        self._context = context
        self._way = context.way if isinstance(context, TaskContext) else None
        self._time: WorkingTime | None = None
        self._answered: set[str] = set()

    async def within_deadline(self, state: Wire) -> dict[str, Any]:
        try:
            with anyio.fail_after(self._wait) as scope:
                self._time = WorkingTime(scope)
                return await self.result(state)
        except TimeoutError:
            raise too_long(self._name, self._wait) from None

    async def result(self, state: Wire) -> dict[str, Any]:
        ending = self._exchange.ending
        ending.working += 1
        try:
            return await self._followed(state)
        except anyio.get_cancelled_exc_class():
            if self._way is None or self._way.withdrawn or not self._way.outlives:
                await self._cancel()
            raise
        finally:
            ending.working -= 1
            ending.request_ended()

    async def _followed(self, state: Wire) -> dict[str, Any]:
        """Its result; `state` is the handle just given, or empty if an earlier run got it."""
        if state:
            await self._teller.tell(state)
            if state.get("status") == "working":
                await self._pause(state)
            state = {}
        misses = 0
        while True:
            if state:
                misses = 0
                await self._take(state)
                if state.get("status") == "completed":
                    return final_result(mapping_of(state.get("result")))
                await self._pause(state)
            try:
                state = await self._ask("tasks/get", {"taskId": self._id})
            except UpstreamUnavailableError:
                misses += 1
                # A client that has a handle may ask for as long as the task is kept.
                if misses >= MISSES and (self._way is None or not self._way.begun):
                    raise
                state = {}
                await self._pause({"pollIntervalMs": min(POLL_MS * misses, int(LONGEST_PAUSE * 1000))})

    async def _take(self, state: Wire) -> None:
        status, said = state.get("status"), _said(state)
        if status == "failed":
            error = mapping_of(state.get("error"))
            code = error.get("code")
            link, data = self._exchange.link, error.get("data")
            told = link.scrubbed(str(error.get("message") or said or "the task has failed")[:MAX_ERROR])
            data = link.cleaned(data) if link.secrets.takes(data) else None
            if not isinstance(code, int) or code == URL_ELICITATION_REQUIRED:
                code, data = INTERNAL_ERROR, None
            raise UpstreamProtocolError(self._name, code, told, data)
        if status == "cancelled":
            if self._way is not None:
                self._way.ended_upstream = True
            raise CallError(
                f"{self._name}: the server has cancelled the task" + (f": {said}" if said else "")
            )
        if status not in ("working", "input_required", "completed"):
            raise InvalidOutputError(
                f"{self._name}: its task does not follow the protocol: status {status!r}"
            )
        await self._teller.tell(state)
        if status == "input_required":
            await self._answer(state)

    async def _answer(self, state: Wire) -> None:
        context = self._context
        requests: Mapping[str, Wire] = {
            key: each
            for key, each in requests_in(self._exchange.link, state).items()
            if key not in self._answered
        }
        if not isinstance(context, WireContext):
            raise CallError(f"{self._name}: its task asks the client, and this call has none")
        requests = checked(self._exchange.link, requests, context)
        if not requests:
            return
        if context.modern:
            # The id of the task sets its questions apart from those of other tasks in the same call.
            places = {key: f"{self._id}/{key}" for key in requests}
            given = context.replay.answers
            if missing := {places[key]: requests[key] for key in requests if places[key] not in given}:
                raise InputRequired(missing)
            answers: dict[str, Any] = {key: given[place] for key, place in places.items()}
        else:
            answers = await self._asked(requests, context)
        self._answered |= answers.keys()
        await self._ask("tasks/update", {"taskId": self._id, "inputResponses": answers})

    async def _asked(self, requests: Mapping[str, Wire], context: WireContext) -> dict[str, Any]:
        if self._time is not None:
            self._time.pause()
        try:
            return dict(await answers_to(self._name, requests, context))
        finally:
            if self._time is not None:
                self._time.resume()

    async def _pause(self, state: Wire) -> None:
        seconds = max((milliseconds(state) or POLL_MS) / 1000, LEAST_PAUSE)
        if self._way is not None:
            await self._way.wait_for_interest(seconds)
        else:
            await anyio.sleep(seconds)

    async def _ask(self, method: str, params: dict[str, Any]) -> Wire:
        exchange = self._exchange
        if exchange.state.now != "ready":
            await exchange.state.summoned(exchange.timeout)
        exchange.state.require_ready()
        opts: CallOptions = {"timeout": exchange.timeout}
        try:
            return await exchange.listing.main.request(
                method, {**params, "_meta": dict(DECLARED)}, context=self._context, opts=opts
            )
        except TimeoutError:
            raise UpstreamUnavailableError(self._name, f"no answer to {method}") from None

    async def _cancel(self) -> None:
        with anyio.move_on_after(TELLING, shield=True):
            try:
                await self._ask("tasks/cancel", {"taskId": self._id})
            except UpstreamError:
                return


class Teller:
    """Tells the client of a call what its task is doing."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._said = ""
        self._steps = 0

    async def tell(self, state: Wire) -> None:
        message, ttl = _said(state), state.get("ttlMs")
        if isinstance(self._context, TaskContext):
            way = self._context.way
            kept = ttl if isinstance(ttl, int) else None
            way.begin(ttl_ms=kept, poll_ms=milliseconds(state), message=message)
            if way.begun:
                return
        if message and message != self._said and self._context.wants_progress:
            self._said = message
            self._steps += 1
            await self._context.progress(self._steps, message=message)


def too_long(server: str, seconds: float) -> CallError:
    return CallError(
        f"{server}: the task has not ended within {seconds:g} s, and was cancelled; set a longer `task_wait` "
        f"for this server, or call it from a client that declares {TASKS}"
    )


def milliseconds(state: Wire) -> int | None:
    found = state.get("pollIntervalMs")
    return found if isinstance(found, int) and found > 0 else None


def _said(state: Wire) -> str | None:
    message = state.get("statusMessage")
    return message if isinstance(message, str) else None


_ENDED: Final = ("completed", "failed", "cancelled")


@dataclass(eq=False)
class UpstreamTasks:
    """The tasks of one mounted server."""

    exchange: Exchange  # the way of requests to it
    wait: float  # seconds that a client which takes no tasks waits; 0 if it does not wait
    needed: set[str] = field(default_factory=set[str])  # run only as tasks, as far as said

    def is_for(self, context: ToolContext, tool: ToolDefinition) -> bool:
        support = "" if self._is_modern else task_support(tool)
        if not context.is_task:
            return (tool.name in self.needed or support == "required") and not self._refuses(context)
        return self._is_modern or bool(support)

    def is_needed(self, fault: UpstreamProtocolError, context: ToolContext, tool: ToolDefinition) -> bool:
        """True if a call failed because its tool runs only as a task, and is to be made as one instead."""
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
        """True if a client is told to declare the extension, rather than waits."""
        return not self.wait and isinstance(context, WireContext) and context.modern

    async def call(
        self, method: str, params: dict[str, Any], context: ToolContext, tool: ToolDefinition
    ) -> dict[str, Any]:
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
