"""`ViewDoors`: the doors of views of a server, at addresses such as `/p/NAME/mcp` and `/p/NAME/sse`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc
from starlette.types import Receive, Scope, Send

from mcp_toolset._records import dataclass
from mcp_toolset.context.connection import Answers, identity_of
from mcp_toolset.errors import ToolsetError
from mcp_toolset.tools.hidden_text import in_log
from mcp_toolset.transports.http.endpoint import HttpEndpoint
from mcp_toolset.transports.http.messages import Head, reply
from mcp_toolset.transports.http.sse import EventDoor

if TYPE_CHECKING:
    from mcp_toolset.extending.host import FindView, ServedView

_log = logging.getLogger("mcp_toolset.http")

_MCP: Final = "mcp"
_SSE: Final = "sse"
_MESSAGES: Final = ("messages", "messages/")
_KNOWN: Final = 1024  # paths that are remembered
_FAULTY: Final = b"this address cannot be served; the log of the server says why"


_Place = tuple["FindView", str, str, str]
"""The finder of the view of a path, the name of the view, the door, and the path without them."""


@dataclass(eq=False, slots=True)
class _Doors:
    """The doors of one view, with its sessions."""

    view: ServedView
    endpoint: HttpEndpoint
    events: EventDoor
    opening: anyio.Event | None = field(default_factory=anyio.Event)  # `None` once they are open

    def end_streams(self) -> None:
        self.endpoint.end_streams()
        self.events.end_streams()


class ViewDoors:
    """The doors of all views, each made when it is first asked for."""

    def __init__(
        self, views: Mapping[str, FindView], make: Callable[[Answers], tuple[HttpEndpoint, EventDoor]]
    ) -> None:
        """Find views by the beginning of an address; `make` makes the doors of one."""
        self._views = views
        self._starts = tuple(views)
        self._make = make
        self._doors: dict[ServedView, _Doors] = {}
        self._places: dict[str, _Place] = {}
        self._group: anyio.abc.TaskGroup | None = None

    def takes(self, path: str) -> bool:
        """True if a path is below the addresses of views."""
        return path.startswith(self._starts)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Own the sessions of all views for the length of a block."""
        async with anyio.create_task_group() as self._group:
            try:
                yield
            finally:
                group, self._group = self._group, None
                group.cancel_scope.cancel()

    def end_streams(self) -> None:
        """End the streams of all clients."""
        for doors in self._doors.values():
            doors.end_streams()

    async def answer(self, path: str, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        """Answer a request whose caller is known; a view that is not for the caller is not there."""
        place = self._places.get(path) or self._placed(path)
        if place is None:
            return await reply(send, 404)
        find, name, door, root = place
        try:
            view = await find(name, identity_of(scope))
        except ToolsetError as fault:
            _log.error("%s cannot be served: %s", in_log(path), in_log(fault))
            return await reply(send, 500, _FAULTY)
        if view is None or self._group is None:
            return await reply(send, 404)
        doors = self._doors.get(view)
        if doors is None:
            doors = self._doors[view] = _Doors(view, *self._make(view.answers))
            self._group.start_soon(self._serve, doors)
        if doors.opening is not None:
            await doors.opening.wait()
        if door == _MCP:
            return await doors.endpoint.take(scope, head, receive, send)
        # The address that a client posts to is below the view's.
        below = {**scope, "root_path": f"{scope.get('root_path', '').rstrip('/')}{root}"}
        await (doors.events.open if door == _SSE else doors.events.post)(below, receive, send)

    def _placed(self, path: str) -> _Place | None:
        """The parts of a path, which are remembered; `None` if there is no door at it."""
        start = next(view for view in self._views if path.startswith(view))
        name, _, door = path.removeprefix(start).partition("/")
        if door not in (_MCP, _SSE, *_MESSAGES):
            return None
        if len(self._places) >= _KNOWN:
            self._places.clear()
        placed = self._places[path] = (self._views[start], name, door, f"{start}{name}")
        return placed

    async def _serve(self, doors: _Doors) -> None:
        """Keep the sessions of a view until it is closed."""
        try:
            async with doors.endpoint.sessions.running(), doors.events.sessions.running():
                if doors.opening is not None:
                    doors.opening.set()
                    doors.opening = None
                await doors.view.leaving.wait()
                doors.end_streams()
                await doors.view.closed.wait()
        finally:
            del self._doors[doors.view]
