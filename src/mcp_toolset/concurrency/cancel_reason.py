"""Cancellation reasons: why the peer cancelled a request, passed on when its own requests are cancelled."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

Reason = Callable[[], str | None]

given_up: Final[ContextVar[Reason | None]] = ContextVar("mcp_toolset_given_up", default=None)
"""Returns why the requests of the current task are cancelled, if the peer gave a reason."""


def reason_in(params: object) -> str | None:
    """The reason in the parameters of a `notifications/cancelled`."""
    reason: Any = params.get("reason") if isinstance(params, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return reason if isinstance(reason, str) else None


def reason_or(otherwise: str) -> str:
    """Why the current request is cancelled; `otherwise` if the peer gave no reason."""
    ask = given_up.get()
    return (ask() if ask is not None else None) or otherwise
