"""What every journal does, wherever it is: one test for each promise of the protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from tests.support.journal_stores import STORES, Journals

from mcp_toolset.extensions.journal.journal_store import Found, Intent, JournalStore, Outcome

pytestmark = pytest.mark.anyio

DONE = Outcome("done", b"sealed \x00 bytes")


def intent(id: str = "1" * 64, fingerprint: str = "f", nonce: str = "n") -> Intent:
    return Intent(id, fingerprint, "änn", "s", "pay", "pay_charge", '{"amount": 5}', "client", nonce)


@pytest.fixture(params=STORES)
async def journals(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Journals]:
    """Journals in one place, as several processes have them."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(STORES[request.param](tmp_path))


def stood(found: Found | None) -> str:
    return "new" if found is None else found.standing


async def test_j1_a_call_begins_once_and_is_found_with_all_that_was_said(journals: Journals) -> None:
    async with journals(clock=lambda: 100.5) as journal:
        assert await journal.begin(intent()) is None
        found = await journal.begin(intent())
        assert found is not None and found.standing == "running"
        record = found.record
        assert (record.intent, record.attempt, record.state) == (intent(), 1, "begun")
        assert (record.began, record.ended, record.outcome, record.note) == (100.5, 0, None, "")


async def test_j1_an_outcome_is_found_by_others_and_after_the_end(journals: Journals) -> None:
    async with journals() as one, journals() as other:
        assert await one.begin(intent()) is None
        assert stood(await other.begin(intent())) == "running"
        await one.end(intent().id, 1, DONE)
        assert stood(await other.begin(intent())) == "done"
    async with journals() as later:
        found = await later.begin(intent(fingerprint="g"))
        assert found is not None and found.record.outcome == DONE.sealed
        assert found.record.intent.fingerprint == "f" and found.record.ended > 0


async def test_j1_a_call_whose_process_has_ended_is_unknown(journals: Journals) -> None:
    async with journals() as other:
        async with journals() as one:
            assert await one.begin(intent()) is None
        assert stood(await other.begin(intent())) == "unknown"
        await other.end(intent().id, 2, DONE)
        assert stood(await other.begin(intent())) == "unknown"


async def test_j1_one_of_several_takes_a_call_over(journals: Journals) -> None:
    async with journals() as one, journals() as other:
        await one.begin(intent())
        await one.end(intent().id, 1, Outcome("unknown", note="a note"))
        won = [await each.take_over(intent(nonce="m"), 1) for each in (one, other, one)]
        assert won == [True, False, False]
        found = await other.begin(intent())
        assert found is not None and (found.standing, found.record.attempt) == ("running", 2)
        assert found.record.intent == intent(nonce="m")
        await one.end(intent().id, 1, DONE)
        assert stood(await other.begin(intent())) == "running"
        await one.end(intent().id, 2, DONE)
        assert stood(await other.begin(intent())) == "done"


async def test_j1_a_released_call_may_begin_again(journals: Journals) -> None:
    async with journals() as journal:
        await journal.begin(intent())
        await journal.release(intent().id, 2)
        assert stood(await journal.begin(intent())) == "running"
        await journal.release(intent().id, 1)
        assert await journal.begin(intent()) is None


async def test_j1_one_of_many_at_once_begins(journals: Journals) -> None:
    async with journals() as one, journals() as other:
        found: list[str] = []

        async def begin(journal: JournalStore) -> None:
            found.append(stood(await journal.begin(intent())))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(begin, one if number % 2 else other)
        assert sorted(found) == ["new"] + ["running"] * 19


async def test_j1_records_are_listed_the_newest_first_and_by_prefix(journals: Journals) -> None:
    times = iter(range(1000, 2000))
    async with journals(clock=lambda: float(next(times))) as journal:
        ids = [letter * 64 for letter in "abc"]
        for id in ids:
            await journal.begin(intent(id))
        listed = [one.record.intent.id for one in await journal.records()]
        assert listed == ids[::-1]
        assert [one.record.intent.id for one in await journal.records(limit=1)] == ids[2:]
        assert [one.record.intent.id for one in await journal.records(prefix="bb")] == ids[1:2]
        assert await journal.records(prefix="%") == []
        await journal.end(ids[1], 1, Outcome("unknown"))
        await journal.end(ids[2], 1, DONE)
        listed = [one.record.intent.id for one in await journal.records(undone=True)]
        assert listed == ids[1::-1]
        assert [one.record.intent.id for one in await journal.records(undone=True, limit=1)] == ids[1:2]


async def test_j1_a_person_settles_what_does_not_run(journals: Journals) -> None:
    async with journals() as journal:
        assert not await journal.settle(intent().id, "sent")
        await journal.begin(intent())
        assert not await journal.settle(intent().id, "sent")
        await journal.end(intent().id, 1, Outcome("unknown"))
        assert await journal.settle(intent().id, "invoice 17")
        found = await journal.begin(intent())
        assert found is not None
        assert (found.standing, found.record.note, found.record.outcome) == ("done", "invoice 17", None)
        assert await journal.settle(intent().id, None)
        assert await journal.begin(intent()) is None


async def test_j1_a_call_is_forgotten_after_its_lifetime(journals: Journals) -> None:
    now = [1000.0]
    async with journals(ttl=60, clock=lambda: now[0]) as journal:
        await journal.begin(intent())
        await journal.end(intent().id, 1, DONE)
        now[0] += 59
        assert stood(await journal.begin(intent())) == "done"
        now[0] += 2
        assert await journal.records() == []
        assert await journal.begin(intent()) is None


async def test_j1_a_call_that_runs_is_not_forgotten(journals: Journals) -> None:
    now = [1000.0]
    async with journals(ttl=60, clock=lambda: now[0]) as journal:
        async with journals(ttl=60, clock=lambda: now[0]) as one:
            await one.begin(intent())
            now[0] += 61
            assert stood(await journal.begin(intent())) == "running"
        assert await journal.begin(intent()) is None


async def test_u123_a_call_is_found_without_being_recorded(journals: Journals) -> None:
    now = [1000.0]
    async with journals(ttl=60, clock=lambda: now[0]) as one, journals(clock=lambda: now[0]) as other:
        assert await one.find(intent().id) is None
        assert await one.begin(intent()) is None
        now[0] = 2000.0
        for journal in (one, other):
            found = await journal.find(intent().id)
            assert found is not None and (found.standing, found.record.intent) == ("running", intent())
        await one.end(intent().id, 1, DONE)
        assert await one.find(intent().id) is None
        assert (found := await other.find(intent().id)) is not None and found.record.outcome == DONE.sealed
