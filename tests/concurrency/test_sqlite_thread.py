"""`SqliteThread`: jobs that share a transaction do not share the faults of one of them."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from mcp_toolset.stores.sqlite import SqliteThread

pytestmark = pytest.mark.anyio


class Numbers:
    """A table of numbers, whose jobs wait until all were asked for, so that they share a transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._go = threading.Event()
        self.opened = 0
        self.faults: dict[int, Exception] = {}
        self.thread = SqliteThread(self._open, "numbers")

    def _open(self) -> sqlite3.Connection:
        self.opened += 1
        assert self._go.wait(30)
        file = sqlite3.connect(self._path, isolation_level=None)
        file.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER UNIQUE)")
        return file

    async def add(self, number: int) -> None:
        try:
            await self.thread.do(
                lambda file: file.execute("INSERT INTO numbers VALUES (?)", (number,)), synced=True
            )
        except (OverflowError, sqlite3.Error) as fault:
            self.faults[number] = fault

    async def add_together(self, *numbers: int) -> list[int]:
        async with anyio.create_task_group() as tasks:
            for number in numbers:
                tasks.start_soon(self.add, number)
            await anyio.wait_all_tasks_blocked()
            self._go.set()
        await anyio.to_thread.run_sync(self.thread.end)
        with sqlite3.connect(self._path) as file:
            return [row[0] for row in file.execute("SELECT number FROM numbers ORDER BY number")]


async def test_j1_a_job_that_fails_by_its_own_values_fails_alone(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path / "numbers.sqlite3")
    with anyio.fail_after(60):
        assert await numbers.add_together(1, 2**70, 2, 2**71, 3) == [1, 2, 3]
    assert {number: type(fault) for number, fault in numbers.faults.items()} == {
        2**70: OverflowError,
        2**71: OverflowError,
    }
    assert numbers.opened == 1


async def test_j1_a_row_that_exists_fails_alone(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path / "numbers.sqlite3")
    with anyio.fail_after(60):
        assert await numbers.add_together(1, 2, 2, 3) == [1, 2, 3]
    assert [type(fault) for fault in numbers.faults.values()] == [sqlite3.IntegrityError]


async def test_j1_each_job_is_told_that_the_file_failed(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "numbers.sqlite3") as file:
        file.execute("CREATE VIEW numbers AS SELECT 1 AS number")
    numbers = Numbers(tmp_path / "numbers.sqlite3")
    with anyio.fail_after(60):
        assert await numbers.add_together(2, 3) == [1]
    assert sorted(numbers.faults) == [2, 3]
    assert {type(fault) for fault in numbers.faults.values()} == {sqlite3.OperationalError}
