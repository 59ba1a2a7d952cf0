"""Whether a hook can outstay a deadline: one that awaits nothing runs to its end in one step."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

_SUSPENDING: Final = frozenset({"SEND", "YIELD_VALUE", "YIELD_FROM", "GET_AWAITABLE"})


def awaits(function: Callable[..., Any]) -> bool:
    """Whether an async function may give up its turn, as far as its own code tells; if in doubt, it may.

    No deadline can end what never gives up its turn, so such a function needs none.
    """
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType) or not code.co_flags & inspect.CO_COROUTINE:
        return True
    return any(instruction.opname in _SUSPENDING for instruction in dis.get_instructions(code))
