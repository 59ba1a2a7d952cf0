"""Calls while the journal fails: none runs that is not recorded, and none is stuck once it works again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.support.journaled import UUID_KEY, Caller, noted

from mcp_toolset import HookSet, Rules, RunNormally, ToolCall, ToolContext, Toolset, ToolsetServer, tool
from mcp_toolset.errors import StoreError, UpstreamUnavailableError
from mcp_toolset.extensions.journal import guard
from mcp_toolset.extensions.journal.journal_store import Found, Intent, JournalStore, Outcome
from mcp_toolset.journal import JournalGuard
from mcp_toolset.stores.sqlite import FileStore

pytestmark = pytest.mark.anyio


class Unheard(JournalStore):
    """A journal that does what it is asked to do, and whose answers are lost as often as is said.

    Attributes:
        lost: Of each step, how many answers are still to be lost.
        failed: How many ends fail, with nothing recorded.
    """

    def __init__(self, path: Path, *, failed: int = 0, **lost: int) -> None:
        super().__init__(path)
        self.lost, self.failed = lost, failed

    def _answer(self, step: str) -> None:
        if self.lost.get(step, 0):
            self.lost[step] -= 1
            raise StoreError("no answer")

    async def begin(self, intent: Intent) -> Found | None:
        found = await super().begin(intent)
        self._answer("begin")
        return found

    async def take_over(self, intent: Intent, attempt: int) -> bool:
        taken = await super().take_over(intent, attempt)
        self._answer("take_over")
        return taken

    async def end(self, id: str, attempt: int, outcome: Outcome) -> None:
        if self.failed:
            self.failed -= 1
            raise StoreError("it is full")
        await super().end(id, attempt, outcome)


class Slow(JournalStore):
    """A journal that says that a call was recorded when it may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.recorded, self.may_answer = anyio.Event(), anyio.Event()

    async def begin(self, intent: Intent) -> Found | None:
        found = await super().begin(intent)
        self.recorded.set()
        await self.may_answer.wait()
        return found


class Till:
    """A tool that counts its effects, and is cut off as often as is said."""

    def __init__(self, cut_off: int = 0) -> None:
        self.effects: list[int] = []
        self.cut_off = cut_off
        self.entered = anyio.Event()

    def served(
        self, journal: JournalStore, idempotent: bool = False, hooks: HookSet | None = None
    ) -> ToolsetServer:
        @tool(idempotent=idempotent)
        async def charge(context: ToolContext, amount: int) -> str:
            """Charge an amount."""
            self.effects.append(amount)
            self.entered.set()
            if self.cut_off:
                self.cut_off -= 1
                await anyio.sleep_forever()
            return f"charged {amount}, receipt {len(self.effects)}"

        guard = JournalGuard(journal.store, timeout=0)
        guard.journal = journal
        rules = Rules(guards=[guard], hooks=hooks or HookSet())
        return ToolsetServer(Toolset(charge), rules=rules)


async def test_j1_a_begin_whose_answer_was_lost_does_not_block_the_call(tmp_path: Path) -> None:
    till = Till()
    async with Unheard(tmp_path / "j", begin=2) as journal, till.served(journal) as server:
        call = partial(server.call_tool, "charge", {"amount": 5}, context=Caller(UUID_KEY))
        told = [await call() for _ in range(4)]
    assert till.effects == [5]
    assert "did not run" in told[0].text and "did not run" in told[1].text
    assert [one.text for one in told[2:]] == ["charged 5, receipt 1"] * 2
    assert noted(told[3])["state"] == "replayed"


async def test_j1_one_of_many_runs_after_a_begin_whose_answer_was_lost(tmp_path: Path) -> None:
    till = Till()
    async with Unheard(tmp_path / "j", begin=1) as journal, till.served(journal) as server:
        call = partial(server.call_tool, "charge", {"amount": 5}, context=Caller(UUID_KEY))
        assert (await call()).is_error
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(call)
    assert till.effects == [5]


@pytest.mark.parametrize("idempotent, effects", [(True, 2), (False, 1)])
async def test_j1_a_lost_answer_to_another_attempt_changes_nothing(
    tmp_path: Path, idempotent: bool, effects: int
) -> None:
    till = Till(cut_off=1)
    async with Unheard(tmp_path / "j", take_over=1) as journal:
        async with till.served(journal, idempotent=idempotent) as server:
            call = partial(server.call_tool, "charge", {"amount": 5}, context=Caller(UUID_KEY))
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                with anyio.fail_after(30):
                    await till.entered.wait()
                group.cancel_scope.cancel()
            told = [await call() for _ in range(3)]
    assert len(till.effects) == effects
    assert [one.is_error for one in told] == ([True, False, False] if idempotent else [True] * 3)


async def test_j1_a_call_that_is_cancelled_while_it_is_recorded_does_not_run_and_may_be_made_again(
    tmp_path: Path,
) -> None:
    till = Till()
    async with Slow(tmp_path / "j") as journal, till.served(journal) as server:
        call = partial(server.call_tool, "charge", {"amount": 5}, context=Caller(UUID_KEY))
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await journal.recorded.wait()
                group.cancel_scope.cancel()
                journal.may_answer.set()
        assert till.effects == []
        assert (await call()).text == "charged 5, receipt 1"


async def test_j1_an_outcome_that_could_not_be_recorded_is_recorded_later(tmp_path: Path) -> None:
    till = Till()
    async with Unheard(tmp_path / "j", failed=2) as journal, till.served(journal) as server:
        for _ in range(2):
            result = await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
            assert "still running" in result.text or result.text == "charged 5, receipt 1"
        again = await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
        assert (again.text, noted(again)["state"]) == ("charged 5, receipt 1", "replayed")
    assert till.effects == [5]


async def test_j1_an_outcome_that_could_not_be_recorded_is_recorded_with_the_next_call(
    tmp_path: Path,
) -> None:
    till = Till()
    async with Unheard(tmp_path / "j", failed=1) as journal, till.served(journal) as server:
        for key in (UUID_KEY, f"{UUID_KEY}-2"):
            await server.call_tool("charge", {"amount": 5}, context=Caller(key))
    async with JournalStore(tmp_path / "j") as journal, till.served(journal) as server:
        again = await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
    assert (again.text, noted(again)["state"]) == ("charged 5, receipt 1", "replayed")
    assert till.effects == [5, 5]


async def test_u115_of_too_many_outcomes_that_are_owed_the_newest_ones_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MOST_OWED", 2)
    till = Till()
    async with Unheard(tmp_path / "j", failed=1000) as journal, till.served(journal) as server:
        for number in range(5):
            await server.call_tool("charge", {"amount": number}, context=Caller(f"{UUID_KEY} {number}"))
        journal.failed = 0
        told = [
            await server.call_tool("charge", {"amount": number}, context=Caller(f"{UUID_KEY} {number}"))
            for number in range(5)
        ]
    assert till.effects == list(range(5))
    assert ["still running" in one.text for one in told] == [True] * 3 + [False] * 2
    assert [noted(one)["state"] for one in told[3:]] == ["replayed"] * 2


async def test_u115_an_attempt_that_did_not_happen_leaves_the_earlier_one_unknown(tmp_path: Path) -> None:
    entered = anyio.Event()

    @tool(idempotent=True)
    async def charge(amount: int) -> str:
        """Charge an amount."""
        if entered.is_set():
            raise UpstreamUnavailableError("bank", "it is closed", sent=False)
        entered.set()
        return await anyio.sleep_forever() or ""

    async with JournalStore(tmp_path / "j") as journal:
        rules = Rules(guards=[JournalGuard(journal.store, timeout=0)])
        async with ToolsetServer(Toolset(charge), rules=rules) as server:
            call = partial(server.call_tool, "charge", {"amount": 5}, context=Caller(UUID_KEY))
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                with anyio.fail_after(30):
                    await entered.wait()
                group.cancel_scope.cancel()
            assert "it is closed" in (await call()).text
            (found,) = await journal.records()
    assert found.standing == "unknown"


async def test_u115_a_later_attempt_that_did_not_run_says_nothing_of_the_first_one(tmp_path: Path) -> None:
    amounts = iter((5, 5, 500, 500))

    async def added(call: ToolCall) -> RunNormally:
        return RunNormally({"amount": next(amounts)})

    till, hooks = Till(cut_off=1), HookSet()
    hooks.execution("charge")(added)
    async with Unheard(tmp_path / "j", take_over=1) as journal:
        async with till.served(journal, idempotent=True, hooks=hooks) as server:
            call = partial(server.call_tool, "charge", {"amount": 1}, context=Caller(UUID_KEY))
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                with anyio.fail_after(30):
                    await till.entered.wait()
                group.cancel_scope.cancel()
            told = [await call() for _ in range(3)]
    assert "did not run" in told[0].text
    assert all("its outcome is not known" in one.text for one in told[1:])
    assert till.effects == [5]


async def test_j1_a_full_disk_lets_no_call_run_and_is_no_harm_afterwards(tmp_path: Path) -> None:
    till = Till()
    async with JournalStore(tmp_path / "j") as journal, till.served(journal) as server:

        async def limit(pages: int) -> None:
            store = journal.store
            assert isinstance(store, FileStore)
            await store.step(lambda file: file.execute(f"PRAGMA max_page_count = {pages}").fetchone())

        await limit(1)
        told = [
            await server.call_tool("charge", {"amount": number}, context=Caller(f"{UUID_KEY} {number}"))
            for number in range(60)
        ]
        refused = [number for number, one in enumerate(told) if one.is_error]
        assert refused and all("did not run" in told[number].text for number in refused)
        assert not set(till.effects) & set(refused)
        await limit(100_000)
        for number in range(60):
            result = await server.call_tool(
                "charge", {"amount": number}, context=Caller(f"{UUID_KEY} {number}")
            )
            assert result.text.startswith(f"charged {number}, receipt")
    assert sorted(till.effects) == list(range(60))


async def test_j1_a_file_that_was_replaced_is_opened_again(tmp_path: Path) -> None:
    till, path = Till(), tmp_path / "j"
    async with JournalStore(path) as journal, till.served(journal) as server:
        await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
        for end in ("", "-wal", "-shm"):
            path.with_name(f"j{end}").unlink(missing_ok=True)
        told = await server.call_tool("charge", {"amount": 6}, context=Caller(UUID_KEY + "6"))
        assert "did not run" in told.text and till.effects == [5]
        await server.call_tool("charge", {"amount": 6}, context=Caller(UUID_KEY + "6"))
        async with JournalStore(path) as other:
            assert [one.record.intent.arguments for one in await other.records()] == ['{"amount": 6}']
    assert till.effects == [5, 6]
