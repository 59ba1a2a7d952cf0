"""Public names that load from their modules on first use, and old names with a `DeprecationWarning`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from importlib import import_module
from typing import Any, Final
from warnings import warn

PACKAGE: Final = "mcp_toolset"


def lazily(
    module: str,
    homes: Mapping[str, str],
    *,
    namespaces: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """What a module with public names has as `__getattr__` and `__dir__` (PEP 562).

    Args:
        module: The module's own name.
        homes: By public name the module that defines it, below `mcp_toolset`.
        namespaces: The modules below this one that are public too.
        renamed: By old name the public name in use now, below `mcp_toolset`.
    """
    old = renamed or {}

    def attribute(name: str) -> Any:
        if home := homes.get(name):
            value = getattr(import_module(f"{PACKAGE}.{home}"), name)
            setattr(sys.modules[module], name, value)
            return value
        if name in namespaces:
            return import_module(f"{module}.{name}")
        if name in old:
            told = f"{module}.{name} is deprecated: use {PACKAGE}.{old[name]}"
            warn(told, DeprecationWarning, stacklevel=2)
            return reduce(getattr, old[name].split("."), sys.modules[PACKAGE])
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def names() -> list[str]:
        own = {name for name in vars(sys.modules[module]) if name.startswith("__")}
        return sorted({*homes, *namespaces, *own})

    return attribute, names
