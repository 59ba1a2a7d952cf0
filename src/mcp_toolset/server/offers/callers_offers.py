"""`found_by_caller`: looks for a resource or prompt on servers that have listed nothing to the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from mcp_toolset.server.offers.offering import Offering
from mcp_toolset.tools.core.call import ToolContext

_T = TypeVar("_T")


async def found_by_caller(offering: Offering, context: ToolContext, find: Callable[[], Awaitable[_T]]) -> _T:
    """What `find` finds; else once the caller was listed what there is; else once the caller has logged in.

    A server that lists nothing to a caller without a login gives all such callers the same answer, whatever
    it lists to others.
    """
    try:
        return await find()
    except LookupError as fault:
        missing = fault
    for log_in in (False, True):
        sources = offering.seen(context.identity).values()
        if any([await offers.learned(context, log_in=log_in) for offers in sources]):
            with suppress(LookupError):
                return await find()
    # The words of a server that was asked say more.
    raise missing.__cause__ or missing
