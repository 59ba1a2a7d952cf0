"""`ServerMessages`: takes what a server sends on one session: notifications of calls, questions, pings.

`UpstreamSession` gives its methods to the dispatcher of its connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcp_toolset.concurrency.cancel_reason import given_up
from mcp_toolset.protocol.dispatch import DispatchContext
from mcp_toolset.protocol.json_rpc import METHOD_NOT_FOUND, MCPError
from mcp_toolset.tools.core.asking import ELICITATION, ROOTS, SAMPLING
from mcp_toolset.upstream.sessions.client_questions import Questions
from mcp_toolset.upstream.sessions.health import Health
from mcp_toolset.upstream.sessions.in_flight import CallsInFlight
from mcp_toolset.upstream.target import Link

_ASKS_CLIENTS: Final = frozenset({ELICITATION, ROOTS, SAMPLING})

Notified = Callable[[str, Mapping[str, Any] | None], Awaitable[bool]]
"""Takes a notification of the server first; `True` says that it is dealt with."""


class ServerMessages:
    """The way of a server's own messages to those whom they are for.

    Attributes:
        notified: Takes notifications that are of no call.
        answers_pings: Whether the revision has pings.
    """

    def __init__(self, link: Link, calls: CallsInFlight, questions: Questions, health: Health) -> None:
        """Take the messages of one session.

        Args:
            link: How the server is reached.
            calls: The calls in flight in the session.
            questions: The way of what the server asks in them.
            health: Is told that the server has sent something.
        """
        self._link = link
        self._calls = calls
        self._questions = questions
        self._health = health
        self.notified: Notified = _not_dealt_with
        self.answers_pings = True

    async def answer(
        self, context: DispatchContext, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Answer a request of the server: by its client if it is a question.

        Raises:
            MCPError: its client refused, or cannot be asked; or there is no such request.
        """
        if method in _ASKS_CLIENTS:
            given_up.set(lambda: getattr(context, "reason", None))
            return await self._questions.put(method, params)
        if method == "ping" and self.answers_pings:
            return {}
        raise MCPError(METHOD_NOT_FOUND, "Method not found", method)

    def take_of_call(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Have a notification of a call sent on to its client in the order of arrival; `False` for others."""
        self._health.heard()
        return self._calls.take(method, self._link.cleaned(params))

    async def take(self, _: DispatchContext, method: str, params: Mapping[str, Any] | None) -> None:
        """Take a notification that is of no call."""
        self._health.heard()
        if method == "notifications/elicitation/complete":
            await self._questions.page_done(params)
        elif not await self.notified(method, params) and method != "notifications/progress":
            await self._calls.notify(method, self._link.cleaned(params))


async def _not_dealt_with(method: str, params: Mapping[str, Any] | None) -> bool:
    return False
