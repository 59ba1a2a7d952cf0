"""`CallsInFlight`: finds the call in flight to which a message of an upstream belongs.

Progress has the token of its call. Over streamable HTTP every other message comes on the stream of its
call, in whose context it is read. Over stdio and SSE nothing says which call it belongs to; there it can be
told only while all calls in flight are of one client, and it goes before the results of all of them, on the
stream of the newest. What comes while no call is in flight is for the session's only client, see `Outside`.
A message that belongs to no client is dropped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import count
from typing import Any, Final

from mcp_toolset.context.client import ServedClient
from mcp_toolset.context.delivery import Delivery
from mcp_toolset.context.request import WireContext
from mcp_toolset.protocol.eras import forwarded_meta, meta_of, wants_log
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.upstream.sessions.call_in_flight import Asking, CallInFlight

Start = Callable[[Callable[[], Awaitable[None]]], object]


class Outside:
    """The client that has used a session, as long as it is the only one.

    Up to 2025-11-25 a server may send log messages, and notifications of its own, at any time. They are for
    the client of the session; where several clients have used it, nothing says for which of them, and they
    are dropped.

    Attributes:
        key: What tells the client of the latest request from others.
    """

    __slots__ = ("_client", "_delivery", "_ends", "_shared", "key")

    def __init__(self) -> None:
        self.key: str | None = ""
        self._client: ServedClient | None = None
        self._shared = False
        self._ends: Callable[[], None] | None = None
        self._delivery = Delivery()

    def used_by(self, key: str | None, context: ToolContext) -> None:
        """Take note of a request of another client than that of the request before."""
        first, self.key = self.key == "", key
        self._forget()
        self._shared = self._shared or not first
        if not self._shared and isinstance(context, WireContext) and not context.modern:
            self.client_is(context.client)

    def meet(self, context: ToolContext) -> None:
        """Take note of a request that is no call."""
        key = context.client_key if isinstance(context, WireContext) else None
        if key != self.key:
            self.used_by(key, context)

    def client_is(self, client: ServedClient) -> None:
        """Belong to a client alone."""
        self.key, self._client = client.key, client
        self._ends = client.when_gone(self._forget)

    def take(self, method: str, params: Mapping[str, Any] | None, start: Start) -> None:
        """Send a notification on, on no request's stream, if it is sure whom it is for."""
        client = self._client
        if client is None:
            return
        if method == "notifications/message" and not wants_log(client.log_level, (params or {}).get("level")):
            return
        if params is not None and "_meta" in params:
            params = {**params, "_meta": forwarded_meta(meta_of(params))}
        self._delivery.add(partial(client.notify, method), params)
        if not self._delivery.running:
            self._delivery.running = True
            start(self._delivery.run)

    def _forget(self) -> None:
        self._client = None
        if self._ends is not None:
            self._ends()
            self._ends = None


_OF_NO_CALL: Final = frozenset(
    (
        "notifications/cancelled",
        "notifications/elicitation/complete",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    )
)
"""Notifications of servers that are not for the client of one call."""


_calling: ContextVar[CallInFlight | None] = ContextVar("mcp_toolset_calling", default=None)


class _UnderWay:
    """A block in which a call is counted; a generator would cost each call twice as much."""

    __slots__ = ("_call", "_calls", "_token")

    def __init__(self, home: CallsInFlight, calls: dict[int, CallInFlight], call: CallInFlight) -> None:
        if call.client != home.outside.key:
            home.outside.used_by(call.client, call.context)
        self._calls = calls
        self._call = call
        call.home, call.outer = home, _calling.get()
        call.ended = False

    def __enter__(self) -> None:
        self._calls[id(self._call)] = self._call
        self._token = _calling.set(self._call)
        self._call.around = copy_context()

    def __exit__(self, *_: object) -> None:
        _calling.reset(self._token)
        self._call.end()
        if self._call.tokens:
            self._call.bill()
        # The variables hold the call, so that the two would wait for the garbage collector.
        self._call.around = None
        del self._calls[id(self._call)]


class CallsInFlight:
    """The calls that one upstream session is working on.

    Attributes:
        asking: Questions of which it cannot be told which of its client's calls has caused them.
        outside: Where messages go that come while no call is in flight.
    """

    def __init__(self) -> None:
        self.outside = Outside()
        self.asking: set[Asking] = set()
        self._calls: dict[int, CallInFlight] = {}
        self._start: Callable[..., object] | None = None
        self._tokens: dict[str, CallInFlight] = {}
        self._numbers = count(1)

    @contextmanager
    def told_by(self, start: Callable[..., object]) -> Generator[None]:
        """Have notifications sent on in tasks that `start` starts, for the length of a block."""
        self._start = start
        try:
            yield
        finally:
            self._start = None
            for call in self._calls.values():
                call.tell_nothing()

    def token(self, call: CallInFlight) -> str:
        """A token for the progress of a call, good until it is given back."""
        token = f"call-{next(self._numbers)}"
        self._tokens[token] = call
        return token

    def give_back(self, token: str) -> None:
        del self._tokens[token]

    def of(self, call: CallInFlight) -> AbstractContextManager[None]:
        """Count one call as in flight for the length of a block."""
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
        """The newest call, if all in flight are of one client; else `None`."""
        return _newest(self._open())

    def _open(self) -> list[CallInFlight]:
        """The calls that the upstream has not answered yet."""
        return [call for call in self._calls.values() if not (call.ended or call.answered)]

    def take(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Take a notification in the moment in which it is read; `False` if it is of no call's business."""
        if method == "notifications/progress":
            return self._take_progress(params or {})
        if method in _OF_NO_CALL:
            return False
        current = self.current()
        if current is None:
            self._take_of_any(method, params)
        elif not current.ended:
            self._send(current, partial(self._notify, current, method), params)
        return True

    def _take_of_any(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Take what may be of any call in flight: it comes before the results of all."""
        calls = self._open()
        if not calls and self._start is not None:
            return self.outside.take(method, params, self._start)
        owner = _newest(calls)
        if owner is None:
            return
        if len(calls) > 1 and isinstance(owner.context, WireContext) and owner.context.has_own_stream:
            owner.delivery.confirm = owner.context.confirm
        number = self._send(owner, partial(self._notify, owner, method), params)
        for call in calls:
            call.comes_after(owner.delivery, number)

    def _take_progress(self, params: Mapping[str, Any]) -> bool:
        token = params.get("progressToken")
        call = self._tokens.get(token) if isinstance(token, str) else None
        if call is None or type(params.get("progress")) not in (int, float):
            return False
        self._send(call, partial(self._report, call), params)
        return True

    def _send(self, call: CallInFlight, send: Callable[[Any], Awaitable[None]], params: object) -> int:
        number = call.delivery.add(send, params)
        self._have_sent(call)
        return number

    def _have_sent(self, call: CallInFlight) -> None:
        delivery, idle = call.delivery, not (call.delivery.running or call.delivery.held)
        if idle and self._start is not None and call.around is not None:
            delivery.running = True
            call.around.run(self._start, delivery.run)

    def go_on(self, call: CallInFlight) -> None:
        """Have sent what was kept while no request of the client waited for the call."""
        call.delivery.held = False
        if self._start is None:
            call.tell_nothing()
        self._have_sent(call)

    async def _notify(self, call: CallInFlight, method: str, params: Mapping[str, Any] | None) -> None:
        if not call.is_over:
            await call.context.notify(method, params)

    async def _report(self, call: CallInFlight, params: Mapping[str, Any]) -> None:
        if call.is_over:
            return
        if isinstance(call.context, WireContext):
            return await call.context.pass_progress(params)
        message = params.get("message")
        total = params.get("total")
        await call.context.progress(
            params["progress"],
            total if type(total) in (int, float) else None,
            message if isinstance(message, str) else None,
        )

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Pass on a notification of a server of this process, which waits until its client has it."""
        owner = self.current() or self.sole()
        if owner is not None and method not in _OF_NO_CALL:
            await self._notify(owner, method, params)


def _newest(calls: list[CallInFlight]) -> CallInFlight | None:
    if not calls:
        return None
    newest = calls[-1]
    if len(calls) == 1:
        return newest
    alike = newest.client is not None and all(call.client == newest.client for call in calls)
    return newest if alike else None
