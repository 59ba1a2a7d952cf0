"""`require_positive`: the check of numbers that a program gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from mcp_toolset.errors import DefinitionError


def require_positive(
    owner: str, optional: Mapping[str, float | None] | None = None, /, **numbers: float
) -> None:
    """Raise `DefinitionError` for a number that is not above 0; only an `optional` one may be `None`."""
    given = ((name, number) for name, number in (optional or {}).items() if number is not None)
    for name, number in (*numbers.items(), *given):
        value = cast("object", number)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise DefinitionError(f"{owner}: {name} is a positive number, not {value!r}")
