"""Helpers of the tests of grants in another process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.far_store import FarStore


@pytest.fixture
def far(port: int, space: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], FarStore]:
    """Makes clients of one store of this test, which has time to answer."""
    monkeypatch.setattr("mcp_toolset.catalog.grants.cached_grants.STORE_TIMEOUT", 60)
    return lambda: FarStore(port, space)
