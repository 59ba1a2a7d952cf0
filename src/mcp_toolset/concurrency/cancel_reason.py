"""Why a request is given up: what the peer that wanted it has said, so that it can be told on."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

Reason = Callable[[], str | None]

given_up: Final[ContextVar[Reason | None]] = ContextVar("mcp_toolset_given_up", default=None)
"""Tells why what the task at hand has asked for is cancelled, if somebody has said so."""


def reason_in(params: object) -> str | None:
    """The reason that `notifications/cancelled` gives."""
    reason: Any = params.get("reason") if isinstance(params, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return reason if isinstance(reason, str) else None


def reason_or(otherwise: str) -> str:
    """Why the request at hand is given up; `otherwise` if nobody has said."""
    ask = given_up.get()
    return (ask() if ask is not None else None) or otherwise
