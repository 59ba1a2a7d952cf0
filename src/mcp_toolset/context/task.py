"""`TaskContext`: a call whose client takes a task in place of the result.

The extension is `io.modelcontextprotocol/tasks`. The call runs in the background; `begin` answers the
request with a handle, and the call goes on: its progress becomes the status message of the task, and its
questions become the `inputRequests` of the task.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import anyio

from mcp_toolset.context.connection import RequestContext, with_extensions
from mcp_toolset.context.request import WireContext
from mcp_toolset.context.request_state import Replay, RoundTrips
from mcp_toolset.errors import CallError, ClientCapabilityError
from mcp_toolset.protocol.dispatch import DispatchContext
from mcp_toolset.tools.call import ToolCall

TASKS: Final = "io.modelcontextprotocol/tasks"  # The name of the extension (2026-07-28).
RELATED: Final = "io.modelcontextprotocol/related-task"  # In the `_meta` of what belongs to a task.
KEPT_MS: Final = 3_600_000  # Milliseconds from its creation for which a task of our own tools is kept.
POLL_MS: Final = 1000  # Milliseconds between two looks at a task, where no server says otherwise.


class _Gone:
    """The way back to a client whose request was answered long ago."""

    can_send_request: bool = False
    reason: str | None = None

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None
    ) -> dict[str, Any]:
        raise CallError("the client cannot be asked: its task has ended")

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        """Say nothing."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say nothing."""


class TaskWay:
    """The way back to the client of a call that may become a task, and what is known of that task."""

    def __init__(self, way: DispatchContext, *, hands_over: bool = True) -> None:
        self._way = way
        self.hands_over = hands_over  # True if the client gets a handle as soon as the call becomes a task.
        self.known = False  # True if the call has become a task.
        self.id = ""  # The id of the task; empty until the client has it.
        self.on_begin: Callable[[], None] = _nothing
        self.on_change: Callable[[], None] = _nothing
        self.begun = False  # True if the request has been answered with a handle.
        self.message: str | None = None  # The status message.
        # Milliseconds from its creation for which the task is kept; `None` without a limit.
        self.ttl_ms: int | None = None
        self.poll_ms = POLL_MS  # Milliseconds that a client should wait before it asks again.
        # True if another process can go on with the task, so that a stop does not cancel it upstream.
        self.outlives = False
        self.withdrawn = False  # True if the client has cancelled the task.
        self.ended_upstream = False  # True if a mounted server has cancelled its task.
        self.follows = False  # True if the state of the task is that of a mounted server's task.
        self.asking = 0  # Questions that a legacy client has still to answer.
        self._open: DispatchContext | None = None
        self._opened = anyio.Event()
        self._wanted = anyio.Event()
        self._heard = anyio.Event()

    @property
    def can_send_request(self) -> bool:
        return self._way.can_send_request

    @property
    def reason(self) -> str | None:
        return self._way.reason

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None
    ) -> dict[str, Any]:
        """Ask the client: by its request, or by the request with which it waits for the result (legacy)."""
        if not self.begun:
            return await self._way.send_raw_request(method, params, opts)
        said: Mapping[str, Any] = (params or {}).get("_meta") or {}
        meta = {**said, RELATED: {"taskId": self.id}}
        self.asking += 1
        self.on_change()
        try:
            while self._open is None:
                await self._opened.wait()
            return await self._open.send_raw_request(method, {**(params or {}), "_meta": meta}, opts)
        finally:
            self.asking -= 1
            self.on_change()

    @contextmanager
    def opened(self, way: DispatchContext) -> Generator[None]:
        """For the length of a block, the client can be asked by `way` (legacy)."""
        self._open = way
        self._opened.set()
        try:
            yield
        finally:
            self._open, self._opened = None, anyio.Event()

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:
        """Send a notification while the request is open; then progress is the status message alone."""
        if not self.begun:
            await self._way.notify(method, params, opts)
        elif method == "notifications/progress" and params is not None:
            self._progressed(params["progress"], params.get("total"), params.get("message"))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if not self.begun:
            await self._way.progress(progress, total, message)
        else:
            self._progressed(progress, total, message)

    def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self.message = f"{message} ({share})" if message else share
        self.on_change()

    def begin(self, *, ttl_ms: int | None, poll_ms: int | None = None, message: str | None = None) -> None:
        """Answer the request with a handle, if that is still to be done, and take what is known."""
        self.learn(ttl_ms=ttl_ms, poll_ms=poll_ms, message=message)
        if not self.known:
            self.known = True
            self.begun = self.begun or self.hands_over
            self.on_begin()

    def release(self) -> None:
        """Keep what is known of the task, and nothing of its request; for a client that has its handle."""
        self.on_begin = _nothing
        if self.begun:
            self._way = _Gone()

    def learn(self, *, ttl_ms: int | None, poll_ms: int | None, message: str | None) -> None:
        self.ttl_ms, self.poll_ms = ttl_ms, poll_ms or POLL_MS
        if message is not None and message != self.message:
            self.message = message
            self.on_change()

    async def wait_for_interest(self, seconds: float) -> None:
        """Wait, for so many seconds at most, until the client asks for the state of the task."""
        heard, self._heard = self._heard, anyio.Event()
        heard.set()
        with anyio.move_on_after(seconds):
            await self._wanted.wait()
        self._wanted = anyio.Event()

    @contextmanager
    def following(self) -> Generator[None]:
        """For the length of a block, the state of the task is that of a mounted server's task."""
        self.follows = True
        try:
            yield
        finally:
            self.follows = False
            self._heard.set()

    async def look(self) -> None:
        if self.follows:
            self._wanted.set()
            await self._heard.wait()


class TaskContext(WireContext):
    """A call of a client that takes tasks."""

    __slots__ = ("_is_later", "way")

    is_task = True

    def __init__(self, request: RequestContext, way: TaskWay, replay: Replay | None = None) -> None:
        """Make the call of a request, which reports by `way`; `replay` is `None` for its first run."""
        own = RequestContext(
            request.method, request.params, request.request_id, request.connection, way, request.http
        )
        super().__init__(own)
        self.way = way
        self._is_later = replay is not None
        if replay is not None:
            self._replay = replay
            self._params = replay.with_passed_on(self._params)

    def resume(self, trips: RoundTrips, call: ToolCall) -> bool:
        return not self._is_later and super().resume(trips, call)

    def again(self, replay: Replay) -> TaskContext:
        return TaskContext(self._request, self.way, replay)

    @property
    def is_handed_over(self) -> bool:
        return self.way.begun

    @property
    def follows(self) -> bool:
        return self._is_later and bool(self._replay is not None and self._replay.parked)

    @property
    def carried(self) -> Mapping[str, Any]:
        return with_extensions(super().carried, {TASKS: {}})


def _nothing() -> None:
    return None


def takes_tasks(request: RequestContext) -> bool:
    extensions: object = request.connection.client_capabilities.get("extensions")
    return request.modern and isinstance(extensions, Mapping) and TASKS in extensions


def begin_task(context: WireContext, support: str, *, ttl_ms: int) -> None:
    """Turn a call of one of our own tools into a task, if its client takes tasks."""
    if isinstance(context, TaskContext):
        context.way.begin(ttl_ms=ttl_ms)
    elif support == "required" and context.modern:
        raise ClientCapabilityError(f"extensions.{TASKS}")
