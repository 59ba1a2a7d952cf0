"""Processes: work with a record that outlives its call and its program (J4)."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.support.contexts import OnWire

from mcp_toolset import Processes, RunningProcess
from mcp_toolset.errors import CallError, DefinitionError, StateError, StoreError
from mcp_toolset.extensions.processes.extension import Owner, ProcessRecords
from mcp_toolset.rounds import RoundContext
from mcp_toolset.tools.result import InputRequired
from mcp_toolset.tools.services import Process

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncGenerator[Processes]:
    with anyio.fail_after(60):
        async with Processes(path / "p.sqlite3", **options) as processes:
            yield processes


def table(file: sqlite3.Connection) -> str:
    ((name,),) = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return name


def of(processes: Processes, user: str = "ada") -> Any:
    return processes.owned_by(RoundContext(principal=user))


async def double(process: RunningProcess, value: int) -> dict[str, Any]:
    await process.emit("read", {"value": value})
    await process.emit("doubled")
    return {"value": 2 * value}


async def hang(process: RunningProcess) -> None:
    await anyio.sleep_forever()


async def test_j4_a_process_is_found_with_its_state_events_and_result(tmp_path: Path) -> None:
    async with opened(tmp_path) as processes:
        started = await of(processes).start("double", double, 21)
        assert (started.name, started.state, started.ended) == ("double", "running", 0)
        assert await of(processes).result(started.id) == {"value": 42}
        found = await of(processes).get(started.id)
        assert found.state == "done" and found.ended >= found.began == started.began
        events = await of(processes).events(started.id)
        assert [(each.number, each.kind, each.data) for each in events] == [
            (1, "read", {"value": 21}),
            (2, "doubled", None),
        ]
        assert await of(processes).events(started.id, after=1) == events[1:]


async def test_j4_a_process_is_found_again_by_the_next_program(tmp_path: Path) -> None:
    async with opened(tmp_path) as processes:
        done = await of(processes).start("double", double, 4)
        await of(processes).result(done.id)
        cut = await of(processes).start("hang", hang)
    async with opened(tmp_path) as processes:
        shown = await of(processes).list()
        assert [(each.id, each.state) for each in shown] == [(cut.id, "lost"), (done.id, "done")]
        assert await of(processes).result(done.id) == {"value": 8}
        assert len(await of(processes).events(done.id)) == 2
        with pytest.raises(CallError, match="is lost: the program that ran it was closed"):
            await of(processes).result(cut.id)


async def test_j4_another_user_finds_and_cancels_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as processes:
        started = await of(processes).start("hang", hang)
        other = of(processes, "bob")
        assert await other.list() == []
        for asked in (other.get, other.result, other.cancel, other.events):
            with pytest.raises(CallError, match="no process .* is known to this caller"):
                await asked(started.id)
        assert (await of(processes).get(started.id)).state == "running"


async def test_j4_a_client_without_a_login_lists_those_of_its_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as processes:
        first, second, modern = (
            processes.owned_by(OnWire(each, version="2025-11-25" if each else "2026-07-28"))
            for each in ("one", "two", None)
        )
        mine = await first.start("double", double, 1)
        await modern.start("double", double, 2)
        assert [each.id for each in await first.list()] == [mine.id]
        assert await second.list() == await modern.list() == []
        assert await modern.result(mine.id) == {"value": 2}
        processes.serves_one = True
        assert len(await processes.owned_by(OnWire("three")).list()) == 2


async def test_j4_a_cancelled_process_ends_and_says_so(tmp_path: Path) -> None:
    began, ended = anyio.Event(), anyio.Event()

    async def work(process: RunningProcess) -> None:
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with opened(tmp_path) as processes:
        started = await of(processes).start("work", work)
        await began.wait()
        assert (await of(processes).cancel(started.id)).state == "cancelled"
        assert ended.is_set()
        assert (await of(processes).cancel(started.id)).state == "cancelled"
        with pytest.raises(CallError, match="was cancelled"):
            await of(processes).result(started.id)


async def test_j4_another_program_lists_awaits_and_cancels_it(tmp_path: Path) -> None:
    go_on = anyio.Event()

    async def work(process: RunningProcess) -> str:
        await go_on.wait()
        return "done there"

    async with opened(tmp_path) as one, opened(tmp_path) as two:
        first, second = await of(one).start("work", work), await of(one).start("hang", hang)
        assert {each.state for each in await of(two).list()} == {"running"}
        with pytest.raises(CallError, match="has not ended within 0"):
            await of(two).result(first.id, timeout=0)
        go_on.set()
        assert await of(two).result(first.id) == "done there"
        await of(two).cancel(second.id)
        with pytest.raises(CallError, match="was cancelled"):
            await of(two).result(second.id)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (KeyError("row"), "failed: 'row'"),
        (SystemExit(3), "failed: 3"),
        (TimeoutError(), "failed: TimeoutError"),
        (InputRequired({}), "failed: input is required"),
    ],
)
async def test_j4_a_failure_is_that_of_the_process_alone(
    tmp_path: Path, fault: BaseException, told: str
) -> None:
    async def fail(process: RunningProcess) -> None:
        raise fault

    async with opened(tmp_path) as processes:
        failed = await of(processes).start("fail", fail)
        fine = await of(processes).start("double", double, 1)
        with pytest.raises(CallError, match=told):
            await of(processes).result(failed.id)
        assert await of(processes).result(fine.id) == {"value": 2}


async def test_j4_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    async def give(process: RunningProcess, value: Any) -> Any:
        return value

    async with opened(tmp_path) as processes:
        odd = await of(processes).start("odd", give, object())
        with pytest.raises(CallError, match="has no JSON form"):
            await of(processes).result(odd.id)
        large = await of(processes).start("large", give, "x" * 1_000_001)
        with pytest.raises(CallError, match="is done: its result of 1000003 bytes was not kept"):
            await of(processes).result(large.id)
        loud = await of(processes).start("loud", lambda process: process.emit("all", "x" * 64_001))
        with pytest.raises(CallError, match="an event of 64003 bytes"):
            await of(processes).result(loud.id)
        with pytest.raises(CallError, match="the name of a process is a text"):
            await of(processes).start("", double, 1)
        wrong = await of(processes).start("wrong", double)
        with pytest.raises(CallError, match="missing 1 required positional argument"):
            await of(processes).result(wrong.id)


async def test_j4_text_that_no_file_can_hold_harms_no_other_process(tmp_path: Path) -> None:
    async def odd(process: RunningProcess) -> None:
        await process.emit("\ud800")

    async with opened(tmp_path) as processes:
        started = await of(processes).start("odd \ud800", odd)
        with pytest.raises(CallError, match="no process"):
            await of(processes).get("\ud800")
        assert await of(processes).result(started.id) is None
        assert len(await of(processes).events(started.id)) == 1


async def test_j4_a_process_has_a_deadline_and_a_program_a_limit(tmp_path: Path) -> None:
    async with opened(tmp_path, timeout=0.01, max_running=1) as processes:
        slow = await of(processes).start("hang", hang)
        with pytest.raises(CallError, match=r"failed: it took more than 0\.01 s"):
            await of(processes).result(slow.id)
    async with opened(tmp_path, max_running=1) as processes:
        await of(processes).start("hang", hang)
        with pytest.raises(CallError, match="1 processes run already"):
            await of(processes).start("hang", hang)
    with pytest.raises(DefinitionError):
        Processes(tmp_path, max_running=0)


async def test_j4_a_call_within_a_process_notes_its_events(tmp_path: Path) -> None:
    async def work(process: RunningProcess, own: Any) -> None:
        await own.current.emit("from a call", 1)

    async with opened(tmp_path) as processes:
        own = of(processes)
        started = await own.start("work", work, own)
        await own.result(started.id)
        assert [each.data for each in await own.events(started.id)] == [1]
        with pytest.raises(CallError, match="does not run in a process"):
            _ = own.current


async def test_j4_an_ended_process_notes_nothing_more(tmp_path: Path) -> None:
    kept: list[RunningProcess] = []

    async def work(process: RunningProcess) -> None:
        kept.append(process)

    async with opened(tmp_path) as processes:
        await of(processes).result((await of(processes).start("work", work)).id)
        with pytest.raises(CallError, match="has ended"):
            await kept[0].emit("late")


async def test_j4_old_records_are_forgotten_and_the_newest_events_are_kept(tmp_path: Path) -> None:
    async def noisy(process: RunningProcess) -> None:
        for number in range(1_003):
            await process.emit("step", number)

    async with opened(tmp_path) as processes:
        started = await of(processes).start("noisy", noisy)
        await of(processes).result(started.id)
        events = await of(processes).events(started.id)
        assert len(events) == 1_000 and events[0].number == 4 and events[-1].data == 1_002
        other = await of(processes).start("hang", hang)
    with sqlite3.connect(tmp_path / "p.sqlite3") as file:
        file.execute(f"UPDATE {table(file)} SET until = 1 WHERE name = ?", (started.id,))
    file.close()
    async with opened(tmp_path) as processes:
        assert [each.id for each in await of(processes).list()] == [other.id]


async def test_j4_without_its_file_nothing_starts(tmp_path: Path) -> None:
    ran: list[str] = []

    async def work(process: RunningProcess) -> None:
        ran.append(process.id)

    closed = Processes(tmp_path / "p.sqlite3")
    with pytest.raises(StateError, match="async with"):
        await of(closed).start("work", work)
    async with opened(tmp_path) as processes:
        with pytest.raises(StateError, match="open already"):
            await processes.__aenter__()
        with sqlite3.connect(tmp_path / "p.sqlite3") as file:
            file.execute(f"DROP TABLE {table(file)}")
        file.close()
        with pytest.raises(StoreError, match="the record of processes"):
            await of(processes).start("work", work)
    with sqlite3.connect(tmp_path / "other.sqlite3") as file:
        file.execute("CREATE TABLE theirs (id)")
    file.close()
    with pytest.raises(StoreError):
        await Processes(tmp_path / "other.sqlite3").__aenter__()
    assert not ran
    assert os.name != "posix" or (tmp_path / "p.sqlite3").stat().st_mode & 0o077 == 0


async def fail_badly(process: RunningProcess) -> None:
    raise ValueError("a \udcff name" + "." * 100_000)


async def note_too_deep(process: RunningProcess) -> None:
    nested: list[Any] = []
    for _ in range(230):
        nested = [nested]
    await process.emit("read", 1)
    await process.emit("deep", nested)


async def give_too_many_digits(process: RunningProcess) -> int:
    return 10**5000


async def test_j4_an_error_that_is_long_and_no_unicode_is_recorded(tmp_path: Path) -> None:
    async with opened(tmp_path) as processes:
        started = await of(processes).start("fail", fail_badly)
        with pytest.raises(CallError, match=r"failed: a \? name"):
            await of(processes).result(started.id)
        found = await of(processes).get(started.id)
        assert found.state == "failed" and found.ended and len(found.note) == 4_000


@pytest.mark.parametrize("work", [note_too_deep, give_too_many_digits])
async def test_j4_values_that_could_not_be_read_again_are_refused(tmp_path: Path, work: Any) -> None:
    async with opened(tmp_path) as processes:
        started = await of(processes).start("odd", work)
        with pytest.raises(CallError, match="has no JSON form"):
            await of(processes).result(started.id)
        expected = [1] if work is note_too_deep else []
        assert [each.data for each in await of(processes).events(started.id)] == expected


async def test_j4_huge_and_negative_numbers_of_a_caller_are_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path) as processes:
        started = await of(processes).start("double", double, 4)
        await of(processes).result(started.id)
        assert len(await of(processes).list(limit=2**70)) == 1
        assert await of(processes).list(limit=-1) == []
        assert await of(processes).events(started.id, after=2**70) == []
        assert len(await of(processes).events(started.id, after=-(2**70))) == 2


async def test_j4_a_program_that_runs_for_long_forgets_old_records_too(tmp_path: Path) -> None:
    now, ada = 1_000.0, Owner("ada")
    file = ProcessRecords(tmp_path / "p.sqlite3", ttl=100, timeout=1_000, clock=lambda: now)
    with anyio.fail_after(60):
        async with file:
            for id in ("old", "runs"):
                await file.add(Process(id, "work", "running", "", now), ada)
            await file.end(Process("old", "work", "done", "", now), b"1", ada)
            now += 99
            await file.add(Process("young", "work", "running", "", now), ada)
            assert [each.process.id for each in await file.listed(ada, 10)] == ["young", "runs", "old"]
            now += 2
            await file.add(Process("new", "work", "running", "", now), ada)
            assert [each.process.id for each in await file.listed(ada, 10)] == ["new", "young", "runs"]


async def test_j4_a_process_that_awaits_what_was_cancelled_fails_alone(tmp_path: Path) -> None:
    async def own(process: RunningProcess) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with opened(tmp_path) as processes:
        started = await of(processes).start("own", own)
        with pytest.raises(CallError, match="it awaited something that was cancelled"):
            await of(processes).result(started.id)
        assert (await of(processes).get(started.id)).state == "failed"
        after = await of(processes).start("double", double, 21)
        assert await of(processes).result(after.id) == {"value": 42}
