"""Grants in another process: the copy here answers at once, is never too old, and fails closed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, cast

import anyio
import pytest
from tests.catalog.far_desk import ANN, NOBODY, RAN, READ, SESSION, TTL, Desk
from tests.catalog.test_deferred import deferred
from tests.support.calling import tool_table
from tests.support.far_store import FarStore

from mcp_toolset import Rules, ToolCall, ToolContext, ToolResult, ToolView
from mcp_toolset.calls.hook_chain import run_execution_hooks
from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
from mcp_toolset.catalog.grants.store import StoredGrants, key_of
from mcp_toolset.errors import ConfigError, DefinitionError, StateError
from mcp_toolset.grants import GrantLedger
from mcp_toolset.tools.result import InputRequired

pytestmark = pytest.mark.anyio
CACHED = "mcp_toolset.catalog.grants.cached_grants"
ROOT = Path(__file__).parents[2]


async def test_x1_a_grant_of_one_process_is_good_in_another_and_a_warm_call_makes_no_request(
    far: Callable[[], FarStore],
):
    here, there = Desk(far()), Desk(far())
    await there.store.ask("be_slow", 0.05)
    grant = await here.grant()
    there.store.asked.clear()
    for _ in range(3):
        assert await there.read(grant) == RAN
    assert there.store.asked == ["get"]
    here.store.asked.clear()
    assert await here.read(grant) == RAN
    assert here.store.asked == [], "who has granted it knows it"
    assert (await there.dispatch.call(ToolCall("read_invoice", {"n": 1}), ANN)).text == RAN
    assert (await there.dispatch.call(ToolCall("read_invoice", {"n": 1}), ANN)).text == RAN
    assert there.store.asked == ["get"] * 3, "by name it is another reference"


async def functions(run: Awaitable[object]) -> int:
    """The number of Python functions that are called."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        await run
    finally:
        sys.setprofile(None)
    return count


async def test_x1_a_warm_call_runs_no_more_functions_than_with_a_store_in_memory(far: Callable[[], FarStore]):
    desk, near = Desk(far()), Desk(far())
    near.ledger = GrantLedger()
    near.catalog = DeferredCatalog(near.ledger)
    near.catalog.update([READ])
    near.dispatch = tool_table(near.catalog.bindings())
    counts: list[int] = []
    for one in (desk, near):
        grant = await one.grant()
        call = ToolCall("call_tool", {"grant": grant, "arguments": {"n": 1}})
        await one.dispatch.call(call, ANN)
        counts.append(await functions(one.dispatch.call(call, ANN)))
    assert counts[0] <= counts[1] + 1, "the clock of the test is one"


async def test_x1_what_another_process_takes_back_is_refused_here_within_the_age(far: Callable[[], FarStore]):
    here, there = Desk(far()), Desk(far())
    grant = await here.grant()
    assert await there.read(grant) == RAN
    assert await here.ledger.revoke_async(principal="ann") == 1
    assert "was taken back" in await here.read(grant), "at once where it was taken back"
    there.now += TTL - 0.1
    assert await there.read(grant) == RAN
    there.now += 0.1
    assert "was taken back" in await there.read(grant)


async def test_x1_the_second_check_waits_for_the_store_and_refuses(far: Callable[[], FarStore]):
    other, ran = Desk(far()), list[str]()

    async def slow(call: ToolCall, context: ToolContext, next: Any) -> ToolResult:
        await other.ledger.revoke_all_async()
        desk.now += TTL
        ran.append(call.name)
        return await next()

    desk = Desk(far(), Rules(tool_middleware={"read_invoice": [slow]}))
    grant = await desk.grant()
    assert "was taken back" in await desk.read(grant)
    assert ran == ["read_invoice"]


async def test_x1_an_old_answer_revives_nothing(far: Callable[[], FarStore]):
    here, there = Desk(far()), Desk(far())
    grant = await here.grant()
    await here.store.ask("freeze", True)
    assert await here.ledger.revoke_async(grant=grant) == 1
    here.now += TTL
    for _ in range(2):
        here.now += TTL
        assert "was taken back" in await here.read(grant)
    assert await there.read(grant) == RAN, "who asks for the first time has the store's word alone"
    await here.store.ask("freeze", False)
    assert not await StoredGrants(there.store).take(key_of(grant))


async def test_x1_a_new_grant_is_found_by_name_and_listed_at_once(far: Callable[[], FarStore]):
    desk, call = Desk(far()), ToolCall("read_invoice", {"n": 1})
    await desk.grant(SESSION)
    assert (await desk.dispatch.call(call, SESSION)).text == RAN
    await desk.ledger.know_held(SESSION)
    assert await desk.ledger.revoke_async(session="one") == 1
    assert "was taken back" in (await desk.dispatch.call(call, SESSION)).text
    await desk.ledger.know_held(SESSION)
    assert desk.ledger.held(SESSION) == []
    await desk.grant(SESSION)
    assert not desk.ledger.knows_held(SESSION)
    assert (await desk.dispatch.call(call, SESSION)).text == RAN


async def test_x1_a_use_that_came_back_counts_again_after_a_second(far: Callable[[], FarStore]):
    here, there = Desk(far(), bearer_uses=1), Desk(far(), bearer_uses=1)
    grant = await here.grant(NOBODY)
    assert await here.read(grant, NOBODY) == RAN
    assert "is used up" in await there.read(grant, NOBODY)
    assert there.store.asked == ["get"]
    await StoredGrants(here.store).give_back(key_of(grant))
    there.now += 1
    assert await there.read(grant, NOBODY) == RAN


async def test_x1_a_use_of_a_call_that_asks_the_client_is_given_back(far: Callable[[], FarStore]):
    desk = Desk(far(), bearer_uses=1)

    async def asking(call: ToolCall, context: ToolContext) -> ToolResult:
        raise InputRequired({"q": {}})

    desk.catalog.update([replace(READ, execute=asking)])
    desk.dispatch = tool_table(desk.catalog.bindings())
    grant = await desk.grant(NOBODY)
    for _ in range(2):
        with pytest.raises(InputRequired):
            await desk.read(grant, NOBODY)
    assert desk.store.asked[-4:] == ["get", "write"] * 2, "it is taken and given back"


async def test_x1_two_processes_share_the_uses_of_one_grant(far: Callable[[], FarStore]):
    desk = Desk(far(), bearer_uses=20)
    grant = await desk.grant(NOBODY)
    program = f"""
import anyio
from tests.catalog.test_far_grants import Desk, FarStore, spent
print(anyio.run(spent, Desk(FarStore({desk.store.port}, {desk.store.space!r})), {grant!r}))
"""
    with anyio.fail_after(120):
        async with await anyio.open_process([sys.executable, "-c", program], cwd=ROOT, stderr=None) as other:
            mine = await spent(desk, grant)
            assert other.stdout is not None
            theirs = json.loads(b"".join([part async for part in other.stdout]))
    assert mine + theirs == 20
    assert "is used up" in await desk.read(grant, NOBODY)


async def spent(desk: Desk, grant: str) -> int:
    """The number of thirty calls at once that are let through."""
    answers: list[str] = []

    async def read() -> None:
        answers.append(await desk.read(grant, NOBODY))

    async with anyio.create_task_group() as group:
        for _ in range(30):
            group.start_soon(read)
    return answers.count(RAN)


async def test_x1_a_round_and_a_view_wait_for_the_store_as_well(far: Callable[[], FarStore]):
    await Desk(far()).grant(SESSION)
    desk = Desk(far())
    view = ToolView(desk.catalog.gated())
    assert (await view.execute("read_invoice", {"n": 1}, SESSION)).text == RAN
    desk = Desk(far())
    binding = ToolView(desk.catalog.gated())["read_invoice"]
    call = ToolCall("read_invoice", {"n": 1}, "c1")
    assert await run_execution_hooks(call, binding, (), SESSION) == call
    assert desk.store.asked == ["get", "get"]


async def test_x1_what_moved_is_told_by_a_process_that_never_granted_it(far: Callable[[], FarStore]):
    grant, desk = await Desk(far()).grant(), Desk(far())
    desk.catalog.update([deferred("read_invoice", text="Read it and send it on.", read_only=True)])
    desk.dispatch = tool_table(desk.catalog.bindings())
    assert '"Read an invoice." → "Read it and send it on."' in await desk.read(grant)
    assert desk.store.asked == ["get", "get"]


async def test_x1_replays_lists_and_records_come_from_the_store(far: Callable[[], FarStore]):
    here, there = Desk(far()), Desk(far())
    grant = await here.grant(SESSION)
    assert not there.catalog.granted(SESSION) and not there.ledger.knows_held(SESSION)
    await there.ledger.know_held(SESSION)
    assert [one.name for one in there.catalog.granted(SESSION)] == ["read_invoice"]
    assert there.ledger.knows_held(SESSION)
    assert [one.grant.grant for one in await there.ledger.records_async() if one.grant] == [grant]
    assert await there.ledger.records_async(principal="bob") == []


def test_x1_what_does_not_wait_is_refused_with_its_mend(port: int):
    ledger = GrantLedger(FarStore(port, "refused"))
    for ask in (ledger.revoke_all, ledger.records, lambda: ledger.issue(READ, ANN)):
        with pytest.raises(StateError, match="revoke_async"):
            ask()
    with pytest.raises(DefinitionError, match="a cache_ttl of more than 2 s"):
        GrantLedger(FarStore(port, ""), cache_ttl=2)
    with pytest.raises(DefinitionError, match="the path of a file, a URL or a Store"):
        GrantLedger(cast("Any", FarStore))
    with pytest.raises(ConfigError, match="begins with one of redis://"):
        GrantLedger("mysql://localhost")


async def test_x1_the_copy_forgets_the_oldest(far: Callable[[], FarStore], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{CACHED}.MAX_GRANTS", 2)
    ledger = GrantLedger(far())
    grants = [(await ledger.resolve([("read_invoice", READ)], ANN))[0].grant for _ in range(3)]
    assert ledger._copy is not None and len(ledger._copy._kept) == 2
    assert [grant is not None for grant in grants] == [True] * 3


def test_x1_it_works_under_asyncio_run(port: int):
    async def main() -> str:
        desk = Desk(FarStore(port, "asyncio.run"))
        return await Desk(FarStore(port, "asyncio.run")).read(await desk.grant())

    assert asyncio.run(main()) == RAN
