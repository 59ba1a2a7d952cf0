"""What callers get whose calls are recorded: one effect, and an honest answer to each repeat."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.journaled import UUID_KEY, Caller, journaled, noted

from mcp_toolset import Rules, ToolResult, Toolset, ToolsetServer, tool
from mcp_toolset.errors import DefinitionError, RetrySuggestedError
from mcp_toolset.extensions.journal.journal_store import Outcome
from mcp_toolset.journal import JournalGuard
from mcp_toolset.policy import Approvals, Policy, PolicyGuard

pytestmark = pytest.mark.anyio


class Shop:
    """Tools with effects that are counted."""

    def __init__(self) -> None:
        self.effects: list[int] = []
        self.entered, self.may_end = anyio.Event(), anyio.Event()
        self.may_end.set()

    def charge(self, **hints: Any) -> Any:
        @tool(name="charge", timeout=hints.pop("timeout", None) and 0.01, **hints)
        async def charge(amount: int, password: str = "") -> ToolResult:
            self.effects.append(amount)
            self.entered.set()
            await self.may_end.wait()
            if amount == 13:
                raise ValueError("declined")
            if amount == 14:
                raise RetrySuggestedError("busy", after=1)
            return ToolResult.of_text(f"charged {amount}, receipt {len(self.effects)}")

        return charge


async def test_j1_a_repeat_under_the_clients_key_gets_the_recorded_result(tmp_path: Path) -> None:
    shop, ann = Shop(), Caller(UUID_KEY, session="one")
    async with journaled(tmp_path / "j", shop.charge()) as server:
        first = await server.call_tool("charge", {"amount": 5}, context=ann)
        again = await server.call_tool("charge", {"amount": 5}, context=ann)
    assert shop.effects == [5]
    assert (first.text, noted(first)) == ("charged 5, receipt 1", {})
    assert again.text == first.text
    assert noted(again)["state"] == "replayed"


async def test_j1_a_repeat_in_a_new_process_and_session_gets_the_recorded_result(tmp_path: Path) -> None:
    shop = Shop()
    for session in ("one", "two"):
        async with journaled(tmp_path / "j", shop.charge()) as server:
            result = await server.call_tool(
                "charge", {"amount": 5}, context=Caller(UUID_KEY, session=session)
            )
            assert result.text == "charged 5, receipt 1"


async def test_j1_a_key_with_other_arguments_is_refused(tmp_path: Path) -> None:
    shop, ann = Shop(), Caller(UUID_KEY)
    async with journaled(tmp_path / "j", shop.charge()) as server:
        await server.call_tool("charge", {"amount": 5}, context=ann)
        other = await server.call_tool("charge", {"amount": 6}, context=ann)
    assert shop.effects == [5]
    assert other.is_error and "stands for another call" in other.text and "receipt" not in other.text


async def test_j1_no_record_of_another_principal_is_answered(tmp_path: Path) -> None:
    shop = Shop()
    async with journaled(tmp_path / "j", shop.charge()) as server:
        for name in ("ann", "bob"):
            result = await server.call_tool("charge", {"amount": 5}, context=Caller("k", principal=name))
            assert noted(result) == {}
    assert shop.effects == [5, 5]


async def test_j1_a_key_that_can_be_guessed_counts_in_its_session_alone(tmp_path: Path) -> None:
    shop = Shop()
    async with journaled(tmp_path / "j", shop.charge()) as server:
        await server.call_tool("charge", {"amount": 5}, context=Caller("k1", session="one"))
        other = await server.call_tool("charge", {"amount": 5}, context=Caller("k1", session="two"))
        own = await server.call_tool("charge", {"amount": 5}, context=Caller("k1", session="one"))
    assert shop.effects == [5]
    assert "another session" in other.text and "UUID" in other.text and "receipt" not in other.text
    assert own.text == "charged 5, receipt 1"


@pytest.mark.parametrize("key", ["", "k" * 401, 7, ["k"]])
async def test_j1_a_key_that_is_none_is_refused(tmp_path: Path, key: object) -> None:
    shop = Shop()
    async with journaled(tmp_path / "j", shop.charge()) as server:
        result = await server.call_tool("charge", {"amount": 5}, context=Caller(key))
    assert result.is_error and "1 to 400 characters" in result.text
    assert shop.effects == []


async def test_j1_calls_without_a_key_all_run_and_leave_no_record(tmp_path: Path) -> None:
    shop = Shop()
    async with journaled(tmp_path / "j", shop.charge()) as server, JournalGuard(tmp_path / "j") as seen:
        for _ in range(2):
            await server.call_tool("charge", {"amount": 5}, context=Caller())
        assert shop.effects == [5, 5]
        assert await seen.journal.records() == []


async def test_j1_a_repeat_waits_for_the_call_that_runs(tmp_path: Path) -> None:
    shop, ann = Shop(), Caller(UUID_KEY)
    shop.may_end = anyio.Event()
    async with journaled(tmp_path / "j", shop.charge()) as server:
        results: list[ToolResult] = []

        async def call() -> None:
            results.append(await server.call_tool("charge", {"amount": 5}, context=ann))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                await shop.entered.wait()
                group.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                shop.may_end.set()
    assert shop.effects == [5]
    assert [one.text for one in results] == ["charged 5, receipt 1"] * 2


async def test_j1_a_repeat_is_told_that_the_call_runs_still(tmp_path: Path) -> None:
    shop, ann = Shop(), Caller(UUID_KEY)
    shop.may_end = anyio.Event()
    async with (
        journaled(tmp_path / "j", shop.charge(), timeout=0) as server,
        anyio.create_task_group() as group,
    ):
        group.start_soon(partial(server.call_tool, "charge", {"amount": 5}, context=ann))
        with anyio.fail_after(30):
            await shop.entered.wait()
            told = await server.call_tool("charge", {"amount": 5}, context=ann)
        shop.may_end.set()
    assert "still running" in told.text and noted(told)["state"] == "running"


async def test_j1_a_call_that_was_cut_off_is_never_run_again(tmp_path: Path) -> None:
    shop, ann = Shop(), Caller(UUID_KEY)
    shop.may_end = anyio.Event()
    async with journaled(tmp_path / "j", shop.charge()) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(server.call_tool, "charge", {"amount": 5}, context=ann))
            with anyio.fail_after(30):
                await shop.entered.wait()
            group.cancel_scope.cancel()
        told = await server.call_tool("charge", {"amount": 5}, context=ann)
    assert shop.effects == [5]
    assert told.is_error and noted(told)["state"] == "unknown"
    assert "outcome is not known" in told.text and "mcp-toolset journal settle" in told.text


async def test_j1_a_tool_that_was_stopped_has_an_unknown_outcome(tmp_path: Path) -> None:
    shop, ann = Shop(), Caller(UUID_KEY)
    shop.may_end = anyio.Event()
    async with journaled(tmp_path / "j", shop.charge(timeout=True)) as server:
        stopped = await server.call_tool("charge", {"amount": 5}, context=ann)
        assert "was stopped" in stopped.text and noted(stopped)["state"] == "unknown"
        told = await server.call_tool("charge", {"amount": 5}, context=ann)
    assert shop.effects == [5]
    assert noted(told)["state"] == "unknown"


async def test_j1_an_idempotent_tool_runs_again_after_an_unknown_outcome(tmp_path: Path) -> None:
    for number, rules in enumerate(({}, {"tools": {"charge": "once"}})):
        shop, ann = Shop(), Caller(UUID_KEY)
        shop.may_end = anyio.Event()
        async with journaled(tmp_path / str(number), shop.charge(idempotent=True), **rules) as server:
            async with anyio.create_task_group() as group:
                group.start_soon(partial(server.call_tool, "charge", {"amount": 5}, context=ann))
                with anyio.fail_after(30):
                    await shop.entered.wait()
                group.cancel_scope.cancel()
            shop.may_end.set()
            again = await server.call_tool("charge", {"amount": 5}, context=ann)
            assert shop.effects == ([5] if rules else [5, 5])
            assert again.is_error is bool(rules)
            last = await server.call_tool("charge", {"amount": 5}, context=ann)
            assert noted(last)["state"] == ("unknown" if rules else "replayed")


async def test_j1_a_failure_is_an_outcome_and_a_refusal_to_do_it_now_is_none(tmp_path: Path) -> None:
    shop = Shop()
    async with journaled(tmp_path / "j", shop.charge()) as server:
        for _ in range(2):
            failed = await server.call_tool("charge", {"amount": 13}, context=Caller(UUID_KEY))
            assert failed.is_error and failed.text == "charge failed: declined"
            await server.call_tool("charge", {"amount": 14}, context=Caller(UUID_KEY + "2"))
    assert shop.effects == [13, 14, 14]


async def test_j1_tools_that_only_read_are_not_recorded_unless_it_is_said(tmp_path: Path) -> None:
    for number, rules in enumerate(({}, {"read_only": True}, {"tools": {"readOnly:*": "once"}})):
        shop = Shop()
        async with journaled(tmp_path / str(number), shop.charge(read_only=True), **rules) as server:
            for _ in range(2):
                await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
        assert shop.effects == ([5] if rules else [5, 5])


async def test_j1_a_long_result_is_not_kept_and_the_call_not_run_again(tmp_path: Path) -> None:
    shop = Shop()
    async with journaled(tmp_path / "j", shop.charge(), max_result_bytes=100) as server:
        await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
        again = await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
    assert shop.effects == [5]
    assert "is done" in again.text and "100 are kept" in again.text


async def test_j1_the_file_has_neither_keys_nor_results_nor_passwords(tmp_path: Path) -> None:
    shop, path = Shop(), tmp_path / "folder" / "j"
    async with journaled(path, shop.charge()) as server:
        call = {"amount": 5, "password": "hunter2"}
        await server.call_tool("charge", call, context=Caller(UUID_KEY, session="session-of-ann"))
        held = b"".join(one.read_bytes() for one in path.parent.iterdir() if one.is_file())
        modes = {one.stat().st_mode & 0o077 for one in path.parent.iterdir()}
    assert b"charge" in held
    assert not any(one in held for one in (UUID_KEY.encode(), b"receipt", b"hunter2", b"session-of-ann"))
    assert modes == {0}


async def test_j1_nothing_runs_if_the_journal_cannot_be_written(tmp_path: Path) -> None:
    shop = Shop()
    async with journaled(tmp_path / "j", shop.charge()) as server:
        await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
        with closing(sqlite3.connect(tmp_path / "j", isolation_level=None)) as other:
            ((table,),) = other.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            other.execute(f"DROP TABLE {table}")
        told = await server.call_tool("charge", {"amount": 6}, context=Caller(UUID_KEY + "2"))
    assert shop.effects == [5]
    assert told.is_error and "could not record the call, which did not run" in told.text
    assert str(tmp_path) not in told.text


def test_j1_wrong_rules_are_refused() -> None:
    with pytest.raises(DefinitionError, match="off, once, repeat"):
        JournalGuard("j", {"charge": "twice"})  # pyright: ignore[reportArgumentType]
    with pytest.raises(DefinitionError, match="did you mean"):
        JournalGuard("j", {"readonly:*": "once"})


async def test_u115_a_short_key_of_a_logged_in_caller_counts_in_every_session(tmp_path: Path) -> None:
    shop = Shop()
    async with journaled(tmp_path / "j", shop.charge()) as server:
        for session in ("one", "two"):
            ann = Caller("k1", principal="ann", session=session)
            result = await server.call_tool("charge", {"amount": 5}, context=ann)
            assert result.text == "charged 5, receipt 1"
    assert shop.effects == [5]


@pytest.mark.parametrize("length", [15, 16])
async def test_u115_a_key_of_sixteen_characters_counts_in_every_session(tmp_path: Path, length: int) -> None:
    shop = Shop()
    async with journaled(tmp_path / "j", shop.charge()) as server:
        told = [
            await server.call_tool("charge", {"amount": 5}, context=Caller("k" * length, session=session))
            for session in ("one", "two")
        ]
    assert told[1].is_error == (length < 16)
    assert ("another session" in told[1].text) == (length < 16)
    assert shop.effects == [5]


async def test_u115_a_call_that_has_asked_goes_on_with_an_answer_alone(tmp_path: Path) -> None:
    shop = Shop()
    async with journaled(tmp_path / "j", shop.charge()) as server:
        await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
    async with JournalGuard(tmp_path / "j") as guard:
        [found] = await guard.journal.records()
        await guard.journal.end(found.record.intent.id, 1, Outcome("asked"))
    async with journaled(tmp_path / "j", shop.charge()) as server:
        refused = await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY))
        assert refused.is_error and "asked the client a question" in refused.text
        assert shop.effects == [5]
        await server.call_tool("charge", {"amount": 5}, context=Caller(UUID_KEY, resumed=True))
    assert shop.effects == [5, 5]


class Together:
    """A guard whose calls wait for each other, so that all of them have been approved."""

    def __init__(self, calls: int) -> None:
        self.left, self.there = calls, anyio.Event()

    def gate(self, binding: Any) -> None:
        return None

    def layers(self, binding: Any) -> list[Any]:
        return [self.layer]

    async def layer(self, call: Any, context: Any, next: Any) -> ToolResult:
        self.left -= 1
        if self.left <= 0:
            self.there.set()
        await self.there.wait()
        return await next()


@pytest.mark.parametrize("carried", [True, False])
async def test_u123_a_refusal_by_a_policy_that_a_toolset_carries_is_no_result_to_repeat(
    tmp_path: Path, carried: bool
) -> None:
    shop, approvals = Shop(), Approvals(tmp_path / "approvals.sqlite")
    policy = Rules(guards=[PolicyGuard(Policy(ask=["charge"]), approvals=approvals), Together(2)])
    tools: Toolset[Any] = Toolset(shop.charge())
    async with JournalGuard(tmp_path / "j") as guard:
        rules = Rules(guards=[guard])
        tools, rules = (tools.carrying(policy), rules) if carried else (tools, rules.merged(policy))
        async with ToolsetServer(tools, rules=rules) as server:
            results = list[ToolResult]()

            async def pay(key: str) -> None:
                context = Caller(key, principal="ann")
                results.append(await server.call_tool("charge", {"amount": 5}, context=context))

            def grant() -> None:
                (waiting,) = approvals.waiting()
                approvals.decide(waiting.id, "granted")

            await pay("0" * 16)
            grant()
            keys = [UUID_KEY, UUID_KEY[::-1]]
            async with anyio.create_task_group() as group:
                for key in keys:
                    group.start_soon(pay, key)
            # One approval stands for one call; the other one is refused, and waits for another approval.
            assert sorted(one.is_error for one in results) == [False, True, True] and shop.effects == [5]
            grant()
            for key in keys:
                await pay(key)
    assert shop.effects == [5, 5]
    assert [one.is_error for one in results[-2:]] == [False, False]
