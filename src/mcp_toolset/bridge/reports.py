"""`CallsInFlight`: whom an upstream's messages belong to, and how they reach that caller (P5).

Over streamable HTTP a message comes on the stream of its call, in whose context it is handled. Over
stdio and SSE nothing says which call it belongs to; there it can be told only while all calls in
flight are of one client. A message for nobody is dropped, and so is the oldest report when more come
than a slow client takes (F10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

import anyio
import mcp_types as types

from mcp_toolset.bridge.deadline import WorkingTime
from mcp_toolset.bridge.forward import WireContext
from mcp_toolset.bridge.sdk import MCPError
from mcp_toolset.tools.call import ToolContext

MAX_WAITING: Final = 256
"""Reports of one upstream that may wait for clients."""


WITHDRAWING: Final = 2.0
"""Seconds in which clients are told that a question is withdrawn, before the call that caused it ends."""


class _Asking:
    """One question that a client has."""

    __slots__ = ("answered", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.answered = anyio.Event()


class CallInFlight:
    """One call that an upstream is working on, and the client that it is for now.

    Attributes:
        context: The request of the client that waits for the call; the newest, if it was repeated.
        client: What tells its client from all others; `None` if nothing does.
        time: The time that it may take; it does not run while the client is asked.
        asked: How many requests the upstream has put to the client in this call.
        ended: Whether the upstream has answered it, or nobody waits for it any more.
        home: Where it is counted as under way.
        outer: The call within which it was made, where a server of this process is mounted.
    """

    __slots__ = ("_asking", "asked", "client", "context", "ended", "home", "outer", "time")

    def __init__(self, context: ToolContext, *, client: str | None = None) -> None:
        """Begin a call for a caller."""
        self.context = context
        self.client = client
        self.time: WorkingTime | None = None
        self.asked = 0
        self.ended = False
        self.home: CallsInFlight | None = None
        self.outer: CallInFlight | None = None
        self._asking: set[_Asking] = set()

    @contextmanager
    def asking(self, *, exact: bool) -> Generator[None]:
        """Ask the client for the length of a block; it is cut short if the call ends before.

        Args:
            exact: Whether it is sure that this very call has asked, and not another of its client's;
                if it is not, the question lasts as long as any call from which it may come.
        """
        self.asked += 1
        if self.time is not None:
            self.time.pause()
        asking = _Asking()
        among = self._asking if exact or self.home is None else self.home.asking
        try:
            with asking.scope:
                among.add(asking)
                yield
        finally:
            among.discard(asking)
            asking.answered.set()
            if self.time is not None:
                self.time.resume()

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Put a request of the upstream to the client of this call.

        Raises:
            MCPError: it refused, gave no answer, or cannot be asked.
        """
        if not isinstance(self.context, WireContext):
            raise MCPError(types.INVALID_REQUEST, f"{method} is refused: this call has no client to ask")
        return await self.context.relay(method, params)

    def end(self) -> None:
        """Nobody is asked on behalf of this call from now on."""
        self.ended = True
        for asking in self._orphaned():
            asking.scope.cancel()

    async def withdrawn(self) -> None:
        """Wait, for a little while at most, until the client has been told what is asked no more.

        Over streamable HTTP that goes with the stream of the call, which the end of the call closes.
        """
        with anyio.move_on_after(WITHDRAWING, shield=True):
            for asking in self._orphaned():
                await asking.answered.wait()

    def _orphaned(self) -> list[_Asking]:
        """The questions that nobody under way can have asked, once this call has ended."""
        if self.home is None or self.home.busy:
            return list(self._asking)
        return [*self._asking, *self.home.asking]


_calling: ContextVar[CallInFlight | None] = ContextVar("mcp_toolset_calling", default=None)


class _UnderWay:
    """A block in which a call is counted; a generator would cost each call twice as much."""

    __slots__ = ("_call", "_calls", "_token")

    def __init__(self, home: CallsInFlight, calls: dict[int, CallInFlight], call: CallInFlight) -> None:
        self._calls = calls
        self._call = call
        call.home, call.outer = home, _calling.get()

    def __enter__(self) -> None:
        self._calls[id(self._call)] = self._call
        self._token = _calling.set(self._call)

    def __exit__(self, *_: object) -> None:
        _calling.reset(self._token)
        self._call.end()
        del self._calls[id(self._call)]


class CallsInFlight:
    """The calls that one upstream session is working on.

    Attributes:
        asking: Questions of which it cannot be told which of its client's calls has caused them.
    """

    def __init__(self) -> None:
        """Start without any."""
        self.asking: set[_Asking] = set()
        self._calls: dict[int, CallInFlight] = {}
        self._waiting: deque[anyio.CancelScope] = deque()

    def of(self, call: CallInFlight) -> AbstractContextManager[None]:
        """Count one call as under way for the length of a block."""
        return _UnderWay(self, self._calls, call)

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def busy(self) -> bool:
        """Whether any call has not ended yet."""
        return any(not call.ended for call in self._calls.values())

    def current(self) -> CallInFlight | None:
        """The call whose own stream the message at hand came on, if it came on one; it may have ended."""
        call = _calling.get()
        while call is not None and call.home is not self:
            call = call.outer
        return call

    def sole(self) -> CallInFlight | None:
        """The newest call, if all in flight are of one client; nobody when that cannot be told."""
        calls = [call for call in self._calls.values() if not call.ended]
        if not calls:
            return None
        newest = calls[-1]
        if len(calls) == 1:
            return newest
        alike = newest.client is not None and all(call.client == newest.client for call in calls)
        return newest if alike else None

    async def progress(
        self, call: CallInFlight, progress: float, total: float | None, message: str | None
    ) -> None:
        """Pass progress on to the caller that it is for."""
        await self._forward(call.context.progress, progress, total, message)

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass a notification on to its caller, if it has one."""
        owner = self.current() or self.sole()
        if owner is not None and not owner.ended:
            await self._forward(owner.context.notify, method, params)

    async def _forward(self, send: Callable[..., Awaitable[None]], *what: Any) -> None:
        with anyio.CancelScope() as scope:
            self._waiting.append(scope)
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popleft().cancel()
            try:
                await send(*what)
            finally:
                with suppress(ValueError):
                    self._waiting.remove(scope)
