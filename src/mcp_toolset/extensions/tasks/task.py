"""`Task`: one task of a client (`io.modelcontextprotocol/tasks`): its state, questions and outcome."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import anyio

from mcp_toolset.context.task import TaskContext, TaskWay
from mcp_toolset.protocol.json_rpc import MCPError
from mcp_toolset.tools.core.call import ToolCall

LONGEST_MS: Final = 86_400_000
"""Milliseconds for which a task of a mounted server is kept, however long that server keeps it."""

Wire = Mapping[str, Any]
_NONE: Final[Wire] = {}
_LEGACY: Final = ("taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt")


class Task:
    """One task, from the call that became it to its end.

    Attributes:
        id: Its id; empty until the call has become a task.
        owner: The caller who may use the id; empty without authentication.
        way: What the work reports by.
        context: The call that runs now.
        work: The id of its background work.
        scope: What ends it when its time is over.
        call: What was called; set before it runs, if it runs here.
        hold: What its request is counted by while it runs.
        tools: The digest of the definition that it was made with, by the name of the tool.
        created: When it was created, in seconds since the epoch.
        settled: Set once the call has become a task, or has ended before.
        ended: Set once it has ended.
    """

    def __init__(self, owner: str, way: TaskWay, created: float) -> None:
        """Begin one; `context` is set before it runs."""
        self.id = ""
        self.owner = owner
        self.way = way
        self.context: TaskContext
        self.work = ""
        self.scope = anyio.CancelScope()
        self.call: ToolCall
        self.hold: object = None
        self.tools: Mapping[str, str] = {}
        self.created = self._updated = created
        self.settled = anyio.Event()
        self.ended = anyio.Event()
        self.result: dict[str, Any] | None = None
        self.fault: Exception | None = None
        self.error: MCPError | None = None
        self._requests: dict[str, Wire] = {}
        self._answers: dict[str, Wire] = {}
        self._answered = anyio.Event()
        self._round = 0
        self._ended: Wire | None = None

    @property
    def expires(self) -> float:
        """When it is forgotten, in seconds since the epoch."""
        ttl = self.way.ttl_ms
        return self.created + (LONGEST_MS if ttl is None else min(ttl, LONGEST_MS)) / 1000

    @property
    def status(self) -> str:
        """Its status, in the words of the protocol."""
        if self._ended is not None:
            return str(self._ended["status"])
        if not self.ended.is_set():
            return "input_required" if self._requests or self.way.asking else "working"
        if self.error is not None:
            return "failed"
        return "cancelled" if self.result is None or self.way.ended_upstream else "completed"

    def changed(self, now: float) -> None:
        """Note that something is new."""
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
        """Keep the outcome alone: the request may be megabytes, and an ended task is kept for long.

        So is one that nobody can ask for: its timers have its context until their time, also once cancelled.
        """
        self.call, self.hold = ToolCall(self.call.name, {}), None
        del self.context
        self.way.release()

    def take(self, wire: Wire) -> None:
        """Be a task that has ended in another process."""
        self._ended = wire
        self.settled.set()
        self.ended.set()

    def created_wire(self) -> dict[str, Any]:
        """What the client is told when the call becomes a task, without what `wire` adds to it."""
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
