"""Old import paths: a name documented there is found in its new module, with a `DeprecationWarning`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any
from warnings import warn


def moved(old: str, new: str, *names: str) -> Callable[[str], Any]:
    """What a module at an old path has as `__getattr__`.

    Args:
        old: The old path.
        new: The module that holds the names now.
        names: What was documented at the old path.
    """

    def attribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        warn(f"{old} has moved: import {name} from {new}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(new), name)

    return attribute
