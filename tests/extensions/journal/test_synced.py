"""What the journal has the disk do: a call that begins survives a power cut, all else does not wait."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from mcp_toolset.extensions.journal.journal_store import Intent, JournalStore, Outcome
from mcp_toolset.stores.sqlite import SqliteThread

pytestmark = pytest.mark.anyio
FULL, NORMAL = 2, 1
INTENT = Intent("1" * 64, "f", "ann", "", "", "pay", "{}", "client", "n")


async def test_u115_a_job_is_synced_as_it_asks(tmp_path: Path) -> None:
    thread = SqliteThread(lambda: sqlite3.connect(tmp_path / "f", isolation_level=None), "synced")
    try:
        for synced, expected in ((True, FULL), (False, NORMAL), (True, FULL)):
            told = await thread.do(
                lambda file: file.execute("PRAGMA synchronous").fetchone()[0], synced=synced
            )
            assert told == expected
    finally:
        thread.end()


async def test_u115_a_call_that_begins_is_on_disk_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    class Told(sqlite3.Connection):
        def execute(self, *words: Any) -> sqlite3.Cursor:
            if words[0].startswith(("INSERT", "UPDATE", "DELETE")):
                level = super().execute("PRAGMA synchronous").fetchone()[0]
                said.append(f"{words[0].split()[0]} {level}")
            return super().execute(*words)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *words, **named: connect(*words, **named, factory=Told))
    async with JournalStore(tmp_path / "j") as journal:
        await journal.begin(INTENT)
        begun, said[:] = [*said], []
        await journal.end(INTENT.id, 1, Outcome("unknown"))
        ended, said[:] = [*said], []
        assert await journal.take_over(INTENT, 1)
    assert f"INSERT {FULL}" in begun and f"INSERT {NORMAL}" not in begun
    assert ended == [f"UPDATE {NORMAL}"]
    assert f"UPDATE {FULL}" in said
