"""Every fault test: nothing of it is left afterwards, and nobody waits long for a second attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.faults.harness import children, until
from tests.support.bounds import bounds


@pytest.fixture(autouse=True)
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds(monkeypatch, first_retry=0.02, longest_retry=0.1)


@pytest.fixture(autouse=True)
def patient_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is open when its mounts have answered, however busy the machine is."""
    bounds(monkeypatch, opening=60)


@pytest.fixture(autouse=True)
async def no_child_is_left(anyio_backend: str) -> AsyncIterator[None]:
    before = children()
    yield
    await until(lambda: children() <= before)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "received.jsonl"
