"""`answer_of`: ask a store that has to be waited for, once and with a deadline; errors name the store."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Final, TypeVar

import anyio

from mcp_toolset.errors import StoreError

STORE_TIMEOUT: Final = 2.0
"""Seconds that a store has for one answer unless told otherwise."""

_T = TypeVar("_T")
_log = logging.getLogger("mcp_toolset.stores")


async def answer_of(
    name: str, asked: Awaitable[_T], *, within: float, to: str, error: type[StoreError] = StoreError
) -> _T:
    """The answer of a store.

    Args:
        name: What the store is called in errors.
        asked: The request.
        within: Seconds that it may take.
        to: What it was asked to do, for the error and the log.
        error: The kind of error.

    Raises:
        StoreError: it failed or gave no answer in time. The message names the store, and may reach a
            model; the log has the cause.
    """
    try:
        with anyio.fail_after(within):
            return await asked
    except TimeoutError:
        reason = f"it gave no answer within {within:g} s"
        _log.error("%s: %s (%s)", name, reason, to)
    # A store is the application's code and may raise anything; its words may have credentials in them.
    except Exception as fault:
        if isinstance(fault, error):
            raise
        reason = "it cannot be used now"
        _log.error("%s: %s failed: %r", name, to, fault)
    raise error(f"{name}: {reason}, so it could not {to}; try again later")
