"""Grants in another process: dead, silent and slow stores, old answers, many callers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from tests.catalog.far_desk import RAN, SESSION, TTL, Desk
from tests.catalog.test_deferred import deferred
from tests.catalog.test_gate import Awaited
from tests.support.calling import tool_table
from tests.support.far_store import FarStore

from mcp_toolset.errors import GrantStoreError, UnknownToolError
from mcp_toolset.shared import Entry, Put

pytestmark = pytest.mark.anyio
CACHED = "mcp_toolset.catalog.grants.cached_grants"


class Paused(Awaited):
    """A store that does what it is asked and then holds its answer back, while `holds` names the method."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = self.fails = ""
        self.asked_for: list[str] = []
        self.done, self.go = anyio.Event(), anyio.Event()

    async def get(self, *places: Any) -> Sequence[Entry | None]:
        return await self.held_back("get", await super().get(*places))

    async def write(self, *puts: Put, **how: Any) -> Sequence[Entry | None] | None:
        return await self.held_back("write", await super().write(*puts, **how))

    async def held_back(self, method: str, answer: Any) -> Any:
        self.asked_for.append(method)
        if self.holds == method:
            self.done.set()
            await self.go.wait()
        if self.fails == method:
            raise ConnectionError("gone")
        return answer


async def test_x1_an_answer_that_was_read_before_a_revocation_is_asked_for_again():
    store = Paused()
    desk, said = Desk(store), list[str]()
    grant = await Desk(store).grant()
    store.holds = "get"

    async def read() -> None:
        said.append(await desk.read(grant))

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await store.done.wait()
        store.holds = ""
        assert await desk.ledger.revoke_async(source="erp") == 1
        store.go.set()
    assert "was taken back" in said[0]


async def test_x1_while_the_store_takes_a_grant_back_it_is_refused_here_already():
    store = Paused()
    desk = Desk(store)
    grant = await desk.grant()
    store.holds = "write"
    async with anyio.create_task_group() as group:
        group.start_soon(desk.ledger.revoke_all_async)
        await store.done.wait()
        assert "was taken back" in await desk.read(grant)
        store.go.set()


async def test_x1_many_calls_that_lack_the_same_grant_make_one_request(far: Callable[[], FarStore]):
    grant, desk = await Desk(far()).grant(), Desk(far())
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(desk.read, grant)
    assert desk.store.asked == ["get"]


async def test_x1_many_calls_that_lack_the_same_grant_share_the_failure_of_one_request():
    store = Paused()
    desk, said = Desk(store), list[str]()
    grant = await Desk(store).grant()
    store.holds, store.fails, before = "get", "get", store.asked_for.count("get")

    async def read() -> None:
        said.append(await desk.read(grant))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        store.holds = ""
        store.go.set()
    assert ["could not look up a grant" in one for one in said] == [True] * 3
    assert store.asked_for.count("get") == before + 1


async def test_x1_if_the_call_that_asks_is_cancelled_the_others_go_on(far: Callable[[], FarStore]):
    grant, desk = await Desk(far()).grant(), Desk(far())
    answers: list[str] = []

    async def late() -> None:
        answers.append(await desk.read(grant))

    async with anyio.create_task_group() as group:
        first = anyio.CancelScope()

        async def early() -> None:
            with first:
                await desk.read(grant)

        group.start_soon(early)
        await anyio.lowlevel.checkpoint()
        group.start_soon(late)
        await anyio.lowlevel.checkpoint()
        first.cancel()
    assert answers == [RAN]


async def test_x1_a_store_that_cannot_be_reached_lets_nothing_through_and_is_named(
    far: Callable[[], FarStore],
    unreachable: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    grant, desk = await Desk(far()).grant(), Desk(far())
    assert await desk.read(grant) == RAN
    desk.store.port = unreachable
    monkeypatch.setattr(f"{CACHED}.STORE_TIMEOUT", 0.05)
    assert await desk.read(grant) == RAN, "the copy is good for its age"
    desk.now += TTL
    refused = await desk.read(grant)
    assert refused.startswith(f"{desk.store.name}: ") and "could not look up a grant" in refused
    with pytest.raises(UnknownToolError):
        await desk.call("read_invoice", n=1)
    assert (await desk.call("resolve_tools", ids=["read_invoice"])).is_error
    found = await desk.call("search_tools", query="read an invoice")
    assert len(found.structured["hits"]) == 1
    with pytest.raises(GrantStoreError, match=desk.store.name.replace("[", ".").replace("]", ".")):
        await desk.ledger.revoke_all_async()
    assert desk.store.name in caplog.text


async def test_x1_what_is_taken_back_here_is_refused_here_even_if_the_store_is_dead(
    far: Callable[[], FarStore], unreachable: int, monkeypatch: pytest.MonkeyPatch
):
    desk = Desk(far())
    grant = await desk.grant()
    desk.store.port = unreachable
    monkeypatch.setattr(f"{CACHED}.STORE_TIMEOUT", 0.05)
    with pytest.raises(GrantStoreError):
        await desk.ledger.revoke_async(name="read_invoice")
    assert "was taken back" in await desk.read(grant)


async def test_x1_a_search_answers_without_what_the_store_knows_of_a_change(
    far: Callable[[], FarStore], unreachable: int, monkeypatch: pytest.MonkeyPatch
):
    await Desk(far()).grant(SESSION)
    desk = Desk(far())
    await desk.ledger.know_held(SESSION)
    desk.catalog.update([deferred("read_invoice", text="Read an invoice and send it on.")])
    desk.dispatch = tool_table(desk.catalog.bindings())
    found = await desk.call("search_tools", SESSION, query="read an invoice")
    assert found.structured["hits"][0]["state"] == "changed"
    desk.copy._definitions.clear()
    desk.store.port = unreachable
    monkeypatch.setattr(f"{CACHED}.STORE_TIMEOUT", 0.05)
    found = await desk.call("search_tools", SESSION, query="read an invoice")
    assert "state" not in found.structured["hits"][0]
