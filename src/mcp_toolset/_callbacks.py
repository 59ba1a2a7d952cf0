"""`Callbacks`: the functions that are called when something has happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Callbacks(dict[object, Callable[..., object]]):
    """Functions to call, in the order in which they were added; one function may be there twice."""

    __slots__ = ()

    def add(self, callback: Callable[..., object]) -> Callable[[], None]:
        """Call a function from now on; return a function that stops this, once or again."""
        key = object()
        self[key] = callback

        def stop() -> None:
            self.pop(key, None)

        return stop

    def tell(self, *facts: Any, **named: Any) -> None:
        """Call all of them; they may add and stop others."""
        for callback in list(self.values()):
            callback(*facts, **named)
