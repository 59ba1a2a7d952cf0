"""Cases of a product that each run has; `scripts/doors` runs the others too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest


def in_every_run(chosen: Collection[str], key: Callable[[Mapping[str, Any]], str]) -> pytest.MarkDecorator:
    """Mark tests with many cases, of which each run has those with these keys; `key` is of the parameters."""

    def row(params: Mapping[str, Any]) -> tuple[object, ...]:
        # `pairwise` takes whatever has a pair of values that nothing else has, and nothing without a pair.
        found = key(params)
        return (found, True) if found in chosen else (found,)

    return pytest.mark.pairwise(of=row)
