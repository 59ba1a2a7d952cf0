"""`Questions`: requests of an upstream to clients: checks the capability, and finds the client of each.

A server may ask only for what the client declared (basic/lifecycle, "Capability negotiation";
2026-07-28: error -32021), and only the client whose call caused it. What cannot be brought to
exactly that client is refused, with the reason, and is never put to another one.

`ServerMessages` takes what a server sends on one session: these requests, pings and notifications.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, cast

import anyio

from mcp_toolset._records import dataclass
from mcp_toolset.concurrency.task_set import given_up
from mcp_toolset.context.client import ServedClient
from mcp_toolset.context.request import ASK_DEADLINE, WireContext
from mcp_toolset.errors import UpstreamError, UpstreamProtocolError
from mcp_toolset.protocol.dispatch import DispatchContext
from mcp_toolset.protocol.json_rpc import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    MCPError,
)
from mcp_toolset.tools.core.call import ToolContext
from mcp_toolset.tools.core.result import ELICITATION, ROOTS, SAMPLING
from mcp_toolset.tools.text.hidden_text import in_log
from mcp_toolset.upstream.secrets import LEFT_OUT
from mcp_toolset.upstream.sessions.call_in_flight import CallInFlight
from mcp_toolset.upstream.sessions.health import Health
from mcp_toolset.upstream.sessions.in_flight import CallsInFlight
from mcp_toolset.upstream.sessions.question_shapes import (
    mapping_of,
    marked,
    pages_of,
    question_fault,
    shown_question,
    undeclared,
    unshowable,
)
from mcp_toolset.upstream.sessions.stand_in import StandIn
from mcp_toolset.upstream.target import Link

MAX_ASKED: Final = 64
"""Requests that an upstream may put to the client in the course of one call."""

MAX_PAGES: Final = 256
"""Pages shown to users (URL elicitation) whose completion an upstream may still announce."""

PAGE_PATIENCE: Final = 30.0
"""Seconds after a page was opened in which its server may say that it is done with, which it need not."""

_log = logging.getLogger("mcp_toolset.ask")


@dataclass(slots=True)
class _Page:
    """A page that a user was shown, or is to be shown."""

    client: ServedClient
    done: anyio.Event = field(default_factory=anyio.Event)


class Questions:
    """What one upstream session asks, and the clients that it belongs to.

    Attributes:
        declares: What the session has declared that can be asked for.
        client: The one client that the session is for, if it is for one alone.
    """

    def __init__(
        self,
        link: Link,
        calls: CallsInFlight,
        declares: Mapping[str, Any],
        client: ServedClient | None = None,
        stand_in: StandIn | None = None,
    ) -> None:
        """Speak for the upstream that `link` leads to."""
        self.declares = declares
        self.client = client
        self._link = link
        self._stand_in = stand_in
        self._calls = calls
        self._pages: OrderedDict[str, _Page] = OrderedDict()

    async def put(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Put a legacy upstream's request to its client, and return the client's answer."""
        params = params or {}
        missing = undeclared(method, params, self.declares)
        if missing:
            raise self._refused(method, f"the client has not declared {missing}")
        malformed = question_fault(method, params)
        if malformed is not None:
            raise self._refused(method, f"it does not follow the protocol: {malformed}")
        if method == ELICITATION and (fault := unshowable(self._link, params)):
            raise self._refused(method, fault)
        current = self._calls.current()
        call = current or self._calls.sole()
        if call is None or call.ended:
            return await self._outside(method, params, call)
        if call.asked >= MAX_ASKED:
            raise self._refused(method, f"one call may ask {MAX_ASKED} times")
        self._note_page(params, call)
        with call.asking(exact=current is not None):
            other = self._stand_in
            if other is not None and method == other.method and other.serves(call.context):
                return await other.relay(call, params)
            shown = shown_question if method == ELICITATION else marked
            return await call.ask(method, shown(self._link, params))
        raise self._refused(method, "the call that it belongs to has ended")

    async def _outside(
        self, method: str, params: Mapping[str, Any], call: CallInFlight | None
    ) -> dict[str, Any]:
        """Roots belong to a client and not to a call; all else is asked in the course of a call."""
        if method == ROOTS and self.client is not None:
            # A client on HTTP that holds no stream open would leave this waiting for ever.
            with anyio.move_on_after(ASK_DEADLINE):
                answer = await self.client.ask(method, params)
                if answer is not None:
                    return answer
        if call is not None:
            raise self._refused(method, "the call that it belongs to has ended")
        if len(self._calls):
            raise self._refused(
                method,
                "calls of several clients are in flight and nothing says which of them it belongs to; "
                "mount the server with sessions='client'",
            )
        raise self._refused(method, "no call is in flight that it could belong to")

    def _refused(self, method: str, reason: str) -> MCPError:
        _log.warning("%s asks for %s and is refused: %s", self._link.name, in_log(method), in_log(reason))
        return MCPError(INVALID_REQUEST, f"{method} is refused: {reason}")

    def _note_page(self, params: Mapping[str, Any], call: CallInFlight) -> None:
        if isinstance(call.context, WireContext):
            self.note_pages([params], call.context.client)

    def note_pages(self, pages: object, client: ServedClient) -> None:
        """Remember whom pages were shown to (`elicitationId`), also those of error -32042."""
        for page in cast("list[object]", pages) if isinstance(pages, list) else ():
            name = mapping_of(page).get("elicitationId")
            if isinstance(name, str):
                shown = self._pages.get(name)
                if shown is None or shown.done.is_set():
                    shown = self._pages[name] = _Page(client)
                shown.client = client
                if len(self._pages) > MAX_PAGES:
                    self._pages.popitem(last=False)

    def note_refusal(self, fault: UpstreamError, context: ToolContext) -> None:
        """Remember the pages for which a call was refused (error -32042): its client shows them."""
        if (
            isinstance(fault, UpstreamProtocolError)
            and fault.code == URL_ELICITATION_REQUIRED
            and isinstance(context, WireContext)
        ):
            self.note_pages(pages_of(fault.data), context.client)

    async def page_done(self, params: Mapping[str, Any] | None) -> None:
        """Tell the client that was shown a page, and no other, that it is done with."""
        page = self._pages.get(str((params or {}).get("elicitationId")))
        if page is not None and not page.done.is_set():
            page.done.set()
            await page.client.notify("notifications/elicitation/complete", params)

    async def show(self, pages: Sequence[Mapping[str, Any]]) -> str:
        """Have a client of 2026-07-28 open what an older server wants opened first (error -32042).

        Returns:
            Why it is no use to repeat the call; empty if it is: all were opened, and are done with as
            far as the server has said so in a while.
        """
        for page in pages:
            try:
                answer = await self.put(ELICITATION, {**page, "mode": "url"})
            except MCPError as fault:
                return fault.message
            if answer.get("action") != "accept":
                return "the user did not open the page that the server needs to be opened first"
        with anyio.move_on_after(PAGE_PATIENCE):
            for page in pages:
                known = self._pages.get(str(page.get("elicitationId")))
                if known is not None:
                    await known.done.wait()
        return ""


_ASKS_CLIENTS: Final = frozenset({ELICITATION, ROOTS, SAMPLING})

Notified = Callable[[str, Mapping[str, Any] | None], Awaitable[bool]]
"""Takes a notification of the server first; `True` says that it is dealt with."""


async def _not_dealt_with(method: str, params: Mapping[str, Any] | None) -> bool:
    return False


@dataclass(eq=False)
class ServerMessages:
    """The way of a server's own messages to those whom they are for.

    Attributes:
        link: How the server is reached.
        calls: The calls in flight in the session.
        questions: The way of what the server asks in them.
        health: Is told that the server has sent something.
        notified: Takes notifications that are of no call.
        answers_pings: Whether the revision has pings.
    """

    link: Link
    calls: CallsInFlight
    questions: Questions
    health: Health
    notified: Notified = field(default=_not_dealt_with, init=False)
    answers_pings: bool = field(default=True, init=False)

    async def answer(
        self, context: DispatchContext, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Answer a request of the server: by its client if it is a question."""
        if method in _ASKS_CLIENTS:
            given_up.set(lambda: getattr(context, "reason", None))
            return await self.questions.put(method, params)
        if method == "ping" and self.answers_pings:
            return {}
        raise MCPError(METHOD_NOT_FOUND, "Method not found", method)

    def take_of_call(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Have a notification of a call sent on to its client in the order of arrival; `False` for others."""
        self.health.heard()
        if any(method in one.hears for one in self.link.declared.values()):
            return False
        return self.calls.take(method, self._cleaned(params))

    async def take(self, _: DispatchContext, method: str, params: Mapping[str, Any] | None) -> None:
        self.health.heard()
        if self.link.declared:
            await self.link.hear(method, params)
        if method == "notifications/elicitation/complete":
            await self.questions.page_done(params)
        elif not await self.notified(method, params) and method != "notifications/progress":
            await self.calls.notify(method, self._cleaned(params))

    def _cleaned(self, params: Mapping[str, Any] | None) -> Any:
        """The parameters of a notification without secrets; one that is too big says so in its place."""
        takes = self.link.secrets.takes
        if not takes(params):
            known = {key: (params or {}).get(key) for key in ("level", "logger", "uri")}
            params = {key: value for key, value in known.items() if isinstance(value, str) and takes(value)}
            params["data"] = LEFT_OUT
        return self.link.cleaned(params)
