"""`CallInFlight`: one call that an upstream is working on, its client, and the questions to that client."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import Context
from typing import Any, Final, Protocol

import anyio

from mcp_toolset.calls.pipeline.observers import note_usage
from mcp_toolset.concurrency.deadlines import WorkingTime
from mcp_toolset.context.delivery import Delivery
from mcp_toolset.context.request import WireContext
from mcp_toolset.protocol.json_rpc import INVALID_REQUEST, MCPError
from mcp_toolset.tools.core.call import ToolContext

_NOTHING: Final[Mapping[str, Any]] = {}
WITHDRAWING: Final = 2.0
"""Seconds in which clients are told that a question is withdrawn, before the call that caused it ends."""


class Asking:
    """One question that a client has."""

    __slots__ = ("answered", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.answered = anyio.Event()


class Home(Protocol):
    """Where calls are counted as in flight; `CallsInFlight` is it."""

    asking: set[Asking]

    @property
    def busy(self) -> bool:
        """Whether any call has not ended yet."""
        ...

    def go_on(self, call: CallInFlight) -> None:
        """Have sent what was kept while no request of the client waited for the call."""
        ...


class CallInFlight:
    """One call that an upstream is working on, and the client that it is for now.

    Attributes:
        context: The request of the client that waits for the call; the newest, if it was repeated.
        client: What tells its client from all others; `None` if nothing does.
        time: The time that it may take; it does not run while the client is asked.
        asked: How many requests the upstream has put to the client in this call.
        answered: Whether the upstream has answered the request at hand, so that it says nothing more in it.
        ended: Whether the upstream has answered it, or its client has given it up.
        home: Where it is counted as in flight.
        outer: The call within which it was made, where a server of this process is mounted.
        around: The variables of the task that made it.
        about: The parameters of the request.
        tokens: What the program's own model took for the upstream, by kind, and no call was billed for yet.
    """

    __slots__ = (
        "_asking",
        "_before",
        "_delivery",
        "about",
        "answered",
        "around",
        "asked",
        "client",
        "context",
        "ended",
        "home",
        "outer",
        "time",
        "tokens",
    )

    def __init__(
        self, context: ToolContext, *, client: str | None = None, about: Mapping[str, Any] = _NOTHING
    ) -> None:
        self.context = context
        self.client = client
        self.time: WorkingTime | None = None
        self.asked = 0
        self.answered = False
        self.ended = False
        self.home: Home | None = None
        self.outer: CallInFlight | None = None
        self.around: Context | None = None
        self.about = about
        self.tokens: tuple[Mapping[str, int], ...] = ()
        self._asking: set[Asking] = set()
        self._delivery: Delivery | None = None
        self._before: dict[Delivery, int] | None = None

    @property
    def delivery(self) -> Delivery:
        if self._delivery is None:
            self._delivery = Delivery()
        return self._delivery

    def comes_after(self, delivery: Delivery, number: int) -> None:
        """Have the result wait for what was sent in another call's name and may be of this one."""
        if self._before is None:
            self._before = {}
        self._before[delivery] = number

    @property
    def has_notifications(self) -> bool:
        """Whether there is anything that comes before the result."""
        return self._delivery is not None or self._before is not None

    @property
    def is_over(self) -> bool:
        """Whether its client has the result by now, or does not wait for it any more."""
        return self.ended

    async def told(self) -> None:
        """Wait until the client has what was said before this moment, if it takes it at all."""
        if self._delivery is not None:
            await self._delivery.all_left()
        if self._before is not None:
            for delivery, number in list(self._before.items()):
                await delivery.read(number)

    def tell_nothing(self) -> None:
        """Drop what is on its way: its connection has ended."""
        if self._delivery is not None:
            self._delivery.stop()

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
        asking = Asking()
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

    def reason(self) -> str | None:
        """Why its client has cancelled it, if it has, and has said so."""
        return self.context.cancelled_because if isinstance(self.context, WireContext) else None

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Put a request of the upstream to the client of this call."""
        if not isinstance(self.context, WireContext):
            raise MCPError(INVALID_REQUEST, f"{method} is refused: this call has no client to ask")
        return await self.context.relay(method, params)

    def bill(self) -> None:
        """Add the tokens to the report of the call that is made in this task."""
        tokens, self.tokens = self.tokens, ()
        for usage in tokens:
            note_usage(usage)

    @property
    def is_asking(self) -> bool:
        """Whether its client has a question that this very call has asked."""
        return bool(self._asking)

    async def settled(self) -> None:
        """End it, and wait until its client has been told that what was asked has no use any more."""
        self.end()
        await self.withdrawn()

    def end(self) -> None:
        """Ask no client on behalf of this call from now on."""
        self.ended = True
        if self._asking or (self.home is not None and self.home.asking):
            for asking in self._orphaned():
                asking.scope.cancel()

    async def withdrawn(self) -> None:
        """Wait, for a little while at most, until the client has been told what is asked no more.

        Over streamable HTTP that goes with the stream of the call, which the end of the call closes.
        """
        with anyio.move_on_after(WITHDRAWING, shield=True):
            for asking in self._orphaned():
                await asking.answered.wait()

    def _orphaned(self) -> list[Asking]:
        """The questions that no call in flight can have asked, once this call has ended."""
        if self.home is None or self.home.busy:
            return list(self._asking)
        return [*self._asking, *self.home.asking]
