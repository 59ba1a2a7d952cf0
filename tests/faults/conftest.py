"""Every fault test: nothing of it is left afterwards, and nobody waits long for a second attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.faults.harness import children, until

from mcp_toolset.concurrency import backoff
from mcp_toolset.tools import source as opening


@pytest.fixture(autouse=True)
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST", 0.02)
    monkeypatch.setattr(backoff, "LAST", 0.1)


@pytest.fixture(autouse=True)
def patient_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is open when its mounts have answered, however busy the machine is."""
    monkeypatch.setattr(opening, "TIMEOUT", 60)


@pytest.fixture(autouse=True)
async def no_child_is_left(anyio_backend: str) -> AsyncIterator[None]:
    before = children()
    yield
    await until(lambda: children() <= before)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "received.jsonl"
