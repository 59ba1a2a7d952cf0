"""What the tests of grants in another process share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.far_store import FarStore


@pytest.fixture
def far(port: int, space: str) -> Callable[[], FarStore]:
    """Makes clients of one store of this test."""
    return lambda: FarStore(port, space)
