"""Cancellation: why a peer cancelled a request, and whether a cancellation means the task that sees it."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

__all__ = ["OWN_CANCEL", "CancelledError", "Reason", "from_outside", "given_up", "reason_in", "reason_or"]

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


OWN_CANCEL: Final = "it awaited something that was cancelled"
"""Why work has failed that raised a `CancelledError` though nobody cancelled it."""


def from_outside(fault: BaseException) -> bool:
    """Whether a `CancelledError` means that the current task is cancelled, so that it must propagate.

    A tool that awaits a task of its own also gets one if that task was cancelled. Then the call was not
    cancelled: it has failed like any other call.
    """
    task = asyncio.current_task() if isinstance(fault, CancelledError) else None
    return task is not None and task.cancelling() > 0
