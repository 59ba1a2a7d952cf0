"""A file of suspended calls: what is put aside is there after a restart, is taken once, and expires."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from mcp_toolset.calls.suspended import SuspendedStore
from mcp_toolset.errors import StateError, StoreError
from mcp_toolset.shared import KeyRing

pytestmark = pytest.mark.anyio


async def test_j6_what_is_put_aside_survives_a_restart_and_is_taken_once(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "suspended.sqlite3"
    file = SuspendedStore(path)
    async with file.running():
        await file.kept("run").put("a", b"state", ttl=60)
        sealed = file.keys.seal("run", b"secret")
    again = SuspendedStore(path)
    async with again.running():
        assert again.keys.open("run", sealed) == b"secret"
        runs = again.kept("run")
        assert await runs.get("a") == b"state"
        assert await again.kept("other").get("a") is None
        taken: list[bytes | None] = []

        async def take() -> None:
            taken.append(await runs.take("a"))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(take)
        assert sorted(taken, key=bool) == [None, None, None, b"state"]
    assert path.stat().st_mode & 0o077 == 0


async def test_j6_names_are_used_once_and_all_ends_with_its_time(tmp_path: Path) -> None:
    now = [0.0]
    file = SuspendedStore(tmp_path / "s", keys=KeyRing([b"k" * 32]), clock=lambda: now[0])
    async with file.running():
        used, kept = file.used("state"), file.kept("state")
        assert [await used.use("a", ttl=10) for _ in range(2)] == [True, False]
        assert await used.was_used("a") and not await used.was_used("b")
        await used.free("a")
        assert [await used.use("a", ttl=10) for _ in range(2)] == [True, False]
        await kept.put("a", b"1", ttl=10)
        now[0] = 10.0
        assert await kept.take("a") is None and not await used.was_used("a")
        assert await used.use("a", ttl=10)
    file = SuspendedStore(tmp_path / "s", keys=KeyRing([b"k" * 32]), clock=lambda: now[0])
    async with file.running():
        await file.used("other").use("b", ttl=10)
    with closing(sqlite3.connect(tmp_path / "s")) as file:
        ((table,),) = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        rows = file.execute(f"SELECT shelf FROM {table}").fetchall()
    told = "what has ended is removed, and a key that was given is not written"
    assert sorted(rows) == [("used other",), ("used state",)], told


async def test_j6_a_file_of_another_program_is_left_alone_and_one_that_is_closed_says_so(
    tmp_path: Path,
) -> None:
    path = tmp_path / "theirs"
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE t (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"theirs, cannot be read or written: .*; name another file"):
        async with SuspendedStore(path).running():
            raise AssertionError("it was opened")
    assert path.read_bytes()[100:] == before[100:]
    with pytest.raises(StateError, match="is not open"):
        await SuspendedStore(tmp_path / "s").kept("run").get("a")
