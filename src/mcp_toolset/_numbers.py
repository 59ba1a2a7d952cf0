"""`require_positive`: the check of numbers that a program gives."""

from __future__ import annotations

from typing import cast

from mcp_toolset.errors import DefinitionError


def require_positive(owner: str, /, **numbers: float | None) -> None:
    """Raise `DefinitionError` for a number that is not above 0; one that is left out (`None`) is none."""
    for name, number in numbers.items():
        value = cast("object", number)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise DefinitionError(f"{owner}: {name} is a positive number, not {value!r}")
