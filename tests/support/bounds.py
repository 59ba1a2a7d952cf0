"""Bounds and waits of the package that tests make smaller: the one place that knows where each of them is.

bounds(monkeypatch, ping_interval=0.02)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pytest

PLACES: Final = {
    "first_retry": "concurrency.backoff.FIRST",
    "longest_retry": "concurrency.backoff.LAST",
    "stable_after": "concurrency.backoff.STABLE_AFTER",
    "turn": "concurrency.backoff.TURN",
    "opening": "tools.opening.TIMEOUT",
    # Limits of clients.
    "report_timeout": "context.request.TIMEOUT",
    "reports_waiting": "context.request.MAX_WAITING",
    "ask_timeout": "context.request.ASK_TIMEOUT",
    "used_states": "context.request_state.MAX_USED",
    "tasks_per_caller": "extensions.tasks.tasks.OWN_TASKS",
    "callers_connected": "extensions.upstream_access.caller_connections.MAX_CALLERS",
    # Connections.
    "garbage_lines": "transports.requests.MAX_GARBAGE",
    "flood_burst": "transports.allowance.BURST",
    "flood_per_second": "transports.allowance.PER_SECOND",
    "report_grace": "transports.requests.REPORT_GRACE",
    "notifications": "transports.requests.MAX_NOTIFICATIONS",
    "unread_bytes": "transports.pacing.MAX_UNREAD",
    "unread_timeout": "transports.pacing.TIMEOUT",
    "unread_later": "transports.requests._LATER",
    "big_answer": "transports.pacing.BIG",
    "requests_at_once": "transports.line_dispatcher.MAX_REQUESTS",
    "high_water": "transports.line_dispatcher.HIGH_WATER",
    "child_grace": "transports.stdio_client.GRACE",
    "stdio_message": "transports.stdio_client.MAX_MESSAGE",
    "http_message": "transports.http_client.MAX_MESSAGE",
    "http_retry": "transports.http_client.RETRY",
    "http_intake": "transports.pacing.MAX_INTAKE",
    "http_answers": "transports.client_dispatcher.MAX_ANSWERS",
    "idle_connection": "transports.plain_http.KEPT_OPEN",
    "sse_message": "transports.sse_client.MAX_MESSAGE",
    "sse_acknowledged": "transports.sse_client.ACKNOWLEDGED",
    # Serving over HTTP.
    "drain": "transports.http.app.DRAIN",
    "arriving_bytes": "transports.http.arrival.MAX_ARRIVING",
    "body_bytes": "transports.http.messages.MAX_BODY",
    "begun_at_once": "transports.http.budgets.BEGUN",
    "held_per_caller": "transports.http.budgets.OWN_HELD",
    "ping_interval": "transports.http.post.PING_INTERVAL",
    "kept_events": "transports.http.post.KEPT_TTL",
    "come_back_after": "transports.http.post.RETRY",
    "coming_back": "transports.http.sessions.COMING_BACK",
    "sse_answers": "transports.http.sse.MANY",
    # Mounted servers.
    "probe": "upstream.negotiation.PROBE_TIMEOUT",
    "listed_tools": "upstream.session.MAX_TOOLS",
    "listed_pages": "upstream.session.MAX_PAGES",
    "idle_session": "upstream.session.IDLE",
    "sessions": "upstream.session.MAX_SESSIONS",
    "sessions_per_caller": "upstream.session.OWN_SESSIONS",
    "listen_acknowledged": "upstream.lists.ACKNOWLEDGING",
    "resting_after": "upstream.resting.SETTLING",
    "resting_linger": "upstream.resting.LINGER",
    "resting_quiet": "upstream.resting.QUIET",
    "silence": "upstream.in_flight.SILENCE",
    "silence_told": "upstream.in_flight.TELL",
    "silence_timeout": "upstream.in_flight.TIMEOUT",
    "given_up_after": "upstream.in_flight.GIVEN_UP_AFTER",
    "questions_per_call": "upstream.questions.MAX_ASKED",
    "rounds_of_questions": "upstream.forwarding.MAX_ROUNDS",
    "suspended": "upstream.forwarding.MAX_SUSPENDED",
    "suspended_per_caller": "upstream.forwarding.OWN_SUSPENDED",
    "suspended_timeout": "upstream.forwarding.ASK_TIMEOUT",
    "instructions": "upstream.mount_state.MAX_INSTRUCTIONS",
}


def place(name: str) -> tuple[Any, str]:
    """The module that has a bound, and its name there."""
    module, _, constant = PLACES[name].rpartition(".")
    return import_module(f"mcp_toolset.{module}"), constant


def bounds(monkeypatch: pytest.MonkeyPatch, **values: float) -> None:
    """Give bounds these values for the length of a test."""
    for name, value in values.items():
        monkeypatch.setattr(*place(name), value)


def bound(name: str) -> Any:
    """The present value of a bound."""
    return getattr(*place(name))
