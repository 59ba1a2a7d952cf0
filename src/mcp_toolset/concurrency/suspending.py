"""`awaits`: tell async functions that may suspend from those that never do and need no deadline."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

_SUSPENDING: Final = frozenset({"SEND", "YIELD_VALUE", "YIELD_FROM", "GET_AWAITABLE"})


def awaits(function: Callable[..., Any]) -> bool:
    """Whether an async function may suspend, judging by its bytecode; if in doubt, it may.

    A deadline cannot end a function that never suspends, so such a function gets none.
    """
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType) or not code.co_flags & inspect.CO_COROUTINE:
        return True
    return any(instruction.opname in _SUSPENDING for instruction in dis.get_instructions(code))
