"""A server that records calls: both eras, mounted and deferred tools, questions, code runs, owned rounds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server
from tests.extensions.model_loop.turns import turn
from tests.support.asking import ERAS, Person, connected, text_of
from tests.support.callers import client_of
from tests.support.code_client import code_client
from tests.support.journaled import UUID_KEY
from tests.support.office import Office
from tests.support.served import served
from tests.support.warm import Warm

from mcp_toolset import (
    HookSet,
    RemoteToolset,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.journal import JournalGuard
from mcp_toolset.policy import Approvals, Limits, Policy, PolicyGuard
from mcp_toolset.rounds import RoundContext, ToolRound

pytestmark = pytest.mark.anyio

PAID: list[int] = []
KEY: Any = {"mcp-toolset/replay-key": UUID_KEY}


@pytest.fixture(autouse=True)
def paid() -> list[int]:
    PAID.clear()
    return PAID


@tool(destructive=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return _paid(amount)


def _paid(amount: int) -> str:
    PAID.append(amount)
    return f"paid {amount}, receipt {len(PAID)}"


@tool(destructive=True)
async def pay_if_allowed(context: ToolContext, amount: int) -> str:
    """Pay an amount that the user allows."""
    answer = await context.elicit(f"Pay {amount}?")
    return _paid(amount) if answer.accepted else "not paid"


def state(result: Any) -> str:
    meta: Mapping[str, Any] = result.meta or {}
    return meta.get("mcp-toolset/journal", {}).get("state", "")


@pytest.mark.parametrize("era", ERAS)
async def test_j1_a_client_repeats_a_call_and_gets_its_result(era: str, tmp_path: Path) -> None:
    server = ToolsetServer(Toolset(pay), journal=tmp_path / "j")
    async with connected(server, era) as client:
        for expected in ("", "replayed"):
            result = await client.call_tool("pay", {"amount": 5}, meta=KEY)
            assert (text_of(result), state(result)) == ("paid 5, receipt 1", expected)
        assert state(await client.call_tool("pay", {"amount": 6}, meta=KEY)) == "done"
        await client.call_tool("pay", {"amount": 5})
    assert PAID == [5, 5]


async def test_j1_a_short_key_counts_in_every_session_where_all_callers_are_one_user(tmp_path: Path) -> None:
    server = ToolsetServer(Toolset(pay), journal=tmp_path / "j")
    server.extensions.alone()
    async with served(server) as url:
        for expected in ("", "replayed"):
            async with client_of(url, "ann") as client:
                result = await client.call_tool("pay", {"amount": 5}, meta={"mcp-toolset/replay-key": "k1"})
                assert (text_of(result), state(result)) == ("paid 5, receipt 1", expected)
    assert PAID == [5]


@pytest.mark.parametrize("era", ERAS)
async def test_j1_a_question_comes_before_the_effect_and_the_answer_leads_to_one(
    era: str, tmp_path: Path
) -> None:
    person = Person({"answer": "yes"}, {"answer": "yes"})
    server = ToolsetServer(Toolset(pay_if_allowed), journal=tmp_path / "j", capabilities=["ask"])
    async with connected(server, era, elicitation_callback=person) as client:
        for expected in ("", "replayed"):
            result = await client.call_tool("pay_if_allowed", {"amount": 5}, meta=KEY)
            assert (text_of(result), state(result)) == ("paid 5, receipt 1", expected)
    assert PAID == [5] and len(person.asked) == 1


ASKING = '''
import sys
from mcp_toolset import ToolContext, Toolset, ToolsetServer, serve, tool

@tool(destructive=True)
async def pay(context: ToolContext, amount: int) -> str:
    """Pay an amount that the user allows."""
    answer = await context.elicit(f"Pay {amount}?")
    with open(sys.argv[1], "a") as effects:
        effects.write("paid\\n")
    return f"paid {amount}, {answer.action}"

if __name__ == "__main__":
    serve(ToolsetServer(Toolset(pay), capabilities=["ask"]))
'''


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("upstream", ["legacy", "modern"])
async def test_j1_a_mounted_tool_that_asks_has_one_effect(
    era: str, upstream: Any, tmp_path: Path, warm: Warm
) -> None:
    person = Person({"answer": "yes"}, {"answer": "yes"})
    program, effects = tmp_path / "desk.py", tmp_path / "effects"
    program.write_text(ASKING)
    command = [*warm.command(str(program)), str(effects)]
    server = ToolsetServer(RemoteToolset(command, name="desk", protocol=upstream), journal=tmp_path / "j")
    async with connected(server, era, elicitation_callback=person) as client:
        for expected in ("", "replayed"):
            result = await client.call_tool("pay", {"amount": 5}, meta=KEY)
            assert (text_of(result), state(result)) == ("paid 5, accept", expected)
    assert effects.read_text() == "paid\n" and len(person.asked) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_j1_a_mounted_and_deferred_tool_is_recorded(era: str, tmp_path: Path) -> None:
    office = Office("desk", "pay")
    server = ToolsetServer(office.mounted().deferred(), journal=tmp_path / "j")
    async with connected(server, era) as client:
        found = await client.call_tool("resolve_tools", {"ids": ["desk_pay"]})
        grant = (found.structured_content or {})["tools"][0]["grant"]
        for expected in ("", "replayed"):
            result = await client.call_tool("call_tool", {"grant": grant, "arguments": {}}, meta=KEY)
            assert state(result) == expected
        await client.call_tool("call_tool", {"grant": grant, "arguments": {}})
    assert office.called == ["pay", "pay"]


async def test_j1_an_error_of_a_mounted_server_is_answered_again(tmp_path: Path) -> None:
    calls: list[str] = []

    async def refuse(ctx: Any, params: Any) -> Any:
        calls.append(params.name)
        raise MCPError(-32000, "the till is closed", {"till": 4})

    office = Office("desk", "pay")
    server: Server[Any] = Server("desk", on_list_tools=office._tools, on_call_tool=refuse)
    served = ToolsetServer(RemoteToolset(server, name="desk"), journal=tmp_path / "j")
    async with connected(served, ERAS[0]) as client:
        for _ in range(2):
            with pytest.raises(MCPError, match="the till is closed") as fault:
                await client.call_tool("pay", {}, meta=KEY)
            assert (fault.value.error.code, fault.value.error.data) == (-32000, {"till": 4})
    assert calls == ["pay"]


async def test_j1_a_call_that_was_certainly_not_sent_may_be_made_again(tmp_path: Path) -> None:
    office = Office("desk", "pay")
    mounted = RemoteToolset(office.server, name="desk")
    server = ToolsetServer(mounted, journal=tmp_path / "j")
    async with connected(server, ERAS[0]) as client:
        state_of = mounted.connection._state
        state_of.set("offline", "")
        lost = await client.call_tool("pay", {}, meta=KEY)
        assert lost.is_error and "the server is offline" in text_of(lost)
        state_of.set("ready", "")
        assert not (await client.call_tool("pay", {}, meta=KEY)).is_error
    assert office.called == ["pay"]


async def test_j1_the_calls_of_a_code_run_are_repeated_from_the_record(tmp_path: Path) -> None:
    code = "a = await pay(amount=1)\nb = await pay(amount=2)\n[a, b]"
    async with code_client(Toolset(pay), "pay", journal=tmp_path / "j") as (one, _):
        call = {"code": code, "grants": one.grants}
        with anyio.fail_after(60):
            first = await one.client.call_tool("run_code", call, meta=KEY)
            again = await one.client.call_tool("run_code", call, meta=KEY)
            await one.client.call_tool("run_code", call)
    assert (first.structured_content or {})["value"] == ["paid 1, receipt 1", "paid 2, receipt 2"]
    assert (again.structured_content or {})["value"] == ["paid 1, receipt 1", "paid 2, receipt 2"]
    assert PAID == [1, 2, 1, 2]


async def test_j1_a_round_that_is_made_again_has_no_second_effect(tmp_path: Path) -> None:
    view = Toolset(pay).view()
    message = turn(("call_1", "pay", '{"amount": 5}'), ("call_2", "pay", '{"amount": 5}'))
    async with JournalGuard(tmp_path / "j", served="a loop") as guard:
        for session in ("a", "a", "b"):
            plan = await ToolRound.from_openai(message, view).plan.apply(Rules(guards=[guard]))
            report = await plan.run_pending(context=RoundContext(session=session))
            assert len(report.results) == 2
    assert PAID == [5] * 4


async def test_j1_a_tool_that_its_round_has_stopped_has_an_unknown_outcome(tmp_path: Path) -> None:
    entered: list[int] = []

    @tool
    async def hang() -> str:
        """Never end."""
        entered.append(1)
        await anyio.sleep_forever()
        return ""

    async with JournalGuard(tmp_path / "j") as guard:
        rules = Rules(guards=[guard])
        for _ in range(2):
            plan = await ToolRound.from_openai(turn(("c1", "hang", "{}")), Toolset(hang).view()).plan.apply(
                rules
            )
            await plan.run_pending(timeout=0.01)
        assert [one.standing for one in await guard.journal.records()] == ["unknown"]
    assert entered == [1]


async def test_j1_a_server_without_a_journal_has_nothing_around_its_tools() -> None:
    async with ToolsetServer(Toolset(pay)) as server, Client(server.lowlevel) as client:
        for _ in range(2):
            await client.call_tool("pay", {"amount": 5}, meta=KEY)
    assert PAID == [5, 5]


class Stamped:
    """A hook that adds a value to the arguments that no other run has."""

    def __init__(self, name: str = "stamp", start: int = 0) -> None:
        self.name, self.made = name, start

    async def __call__(self, call: ToolCall) -> RunNormally:
        self.made += 1
        value = self.made if self.name == "amount" else f"stamp {self.made}"
        return RunNormally({**call.arguments, self.name: value})


@tool(destructive=True)
def pay_stamped(amount: int, stamp: str = "") -> str:
    """Pay an amount."""
    return _paid(amount)


def stamped() -> Rules:
    rules = Rules(hooks=HookSet())
    rules.hooks.execution("pay_stamped")(Stamped())
    return rules


@pytest.mark.parametrize("era", ERAS)
async def test_u122_a_repeat_is_the_same_call_whatever_hooks_add_to_it(era: str, tmp_path: Path) -> None:
    server = ToolsetServer(Toolset(pay_stamped), rules=stamped(), journal=tmp_path / "j")
    async with connected(server, era) as client:
        for expected in ("", "replayed"):
            result = await client.call_tool("pay_stamped", {"amount": 5}, meta=KEY)
            assert (text_of(result), state(result)) == ("paid 5, receipt 1", expected)
        other = await client.call_tool("pay_stamped", {"amount": 6}, meta=KEY)
        assert "stands for another call" in text_of(other)
    assert PAID == [5]


async def test_u122_a_repeat_of_a_round_is_the_same_call_whatever_hooks_add_to_it(tmp_path: Path) -> None:
    rules = stamped()
    for _ in range(2):
        async with JournalGuard(tmp_path / "j") as guard:
            message = turn(("call_1", "pay_stamped", '{"amount": 5}'))
            round = ToolRound.from_openai(message, Toolset(pay_stamped).view())
            guards = Rules(hooks=rules.hooks, guards=[guard])
            report = await (await round.plan.apply(guards)).run_pending(context=RoundContext(session="s"))
            assert report.results[0].result.text == "paid 5, receipt 1"
    assert PAID == [5]


@pytest.mark.parametrize("era", ERAS)
async def test_u123_repeats_and_wrong_repeats_use_up_no_limit_and_need_no_approval(
    era: str, tmp_path: Path
) -> None:
    approvals = Approvals()
    server = ToolsetServer(
        Toolset(pay),
        journal=tmp_path / "j",
        limits={"pay": Limits(calls="2/day", rate="2/day")},
        policy=Policy(ask=["pay"]),
        approvals=approvals,
    )
    async with connected(server, era) as client:

        async def granted(amount: int, meta: Any) -> Any:
            assert (await client.call_tool("pay", {"amount": amount}, meta=meta)).is_error
            (waits,) = approvals.waiting()
            approvals.decide(waits.id, "granted")
            return await client.call_tool("pay", {"amount": amount}, meta=meta)

        assert text_of(await granted(5, KEY)) == "paid 5, receipt 1"
        for _ in range(4):
            again = await client.call_tool("pay", {"amount": 5}, meta=KEY)
            assert (text_of(again), state(again)) == ("paid 5, receipt 1", "replayed")
            wrong = await client.call_tool("pay", {"amount": 6}, meta=KEY)
            assert "stands for another call" in text_of(wrong)
        assert not approvals.waiting()
        assert text_of(await granted(7, None)) == "paid 7, receipt 2"
        assert "limited to 2 calls" in text_of(await granted(8, None))
        again = await client.call_tool("pay", {"amount": 5}, meta=KEY)
        assert (text_of(again), state(again)) == ("paid 5, receipt 1", "replayed")
    assert PAID == [5, 7]


async def test_u123_the_result_of_a_repeat_is_cut_as_that_of_the_call_was(tmp_path: Path) -> None:
    limits = {"pay": Limits(result_bytes=10, calls="1/day")}
    server = ToolsetServer(Toolset(pay), journal=tmp_path / "j", limits=limits)
    async with connected(server, "legacy") as client:
        told = [text_of(await client.call_tool("pay", {"amount": 5}, meta=KEY)) for _ in range(2)]
    assert "the rest is cut off" in told[0] and "receipt" not in told[1] and "cut off" in told[1]
    assert PAID == [5]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("upstream", ["legacy", "modern"])
async def test_u122_a_mounted_tool_that_asks_gets_the_same_arguments_after_the_answer(
    era: str, upstream: Any, tmp_path: Path, warm: Warm
) -> None:
    person = Person({"answer": "yes"}, {"answer": "yes"}, {"answer": "yes"})
    program, effects, stamps = tmp_path / "desk.py", tmp_path / "effects", Stamped("amount", 100)
    program.write_text(ASKING)
    command = [*warm.command(str(program)), str(effects)]
    rules = Rules(hooks=HookSet())
    rules.hooks.execution("pay")(stamps)
    server = ToolsetServer(RemoteToolset(command, name="desk", protocol=upstream), rules=rules)
    async with connected(server, era, elicitation_callback=person) as client:
        told = text_of(await client.call_tool("pay", {"amount": 5}))
    assert told == "paid 101, accept" and person.questions == ["desk asks: Pay 101?"]
    assert effects.read_text() == "paid\n"


async def test_u122_a_round_asks_once_about_a_call_to_which_a_hook_adds_a_fresh_value() -> None:
    guards, view = [PolicyGuard(Policy(ask=["pay_stamped"]))], Toolset(pay_stamped).view()
    message = turn(("call_1", "pay_stamped", '{"amount": 5}'))
    plan = await ToolRound.from_openai(message, view).apply(Rules(hooks=stamped().hooks, guards=guards))
    (question,) = (await plan.run_pending(context=RoundContext())).questions
    assert '"stamp": "stamp 1"' in question.question
    plan.answer(question.id, {"decision": "allow once"})
    report = await plan.run_pending(context=RoundContext())
    assert not report.questions and report.results[0].result.text == "paid 5, receipt 1"


async def test_u122_a_call_whose_outcome_is_unknown_does_not_run_again_with_other_arguments(
    tmp_path: Path,
) -> None:
    entered = anyio.Event()

    @tool(idempotent=True)
    async def pay_slowly(amount: int, stamp: str = "") -> str:
        """Pay an amount."""
        entered.set()
        PAID.append(amount)
        await anyio.sleep_forever()
        return ""

    rules = Rules(hooks=HookSet())
    rules.hooks.execution("pay_slowly")(Stamped())
    async with connected(
        ToolsetServer(Toolset(pay_slowly), rules=rules, journal=tmp_path / "j"), "auto"
    ) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(client.call_tool, "pay_slowly", {"amount": 5}, meta=KEY))
            await entered.wait()
            group.cancel_scope.cancel()
        again = text_of(await client.call_tool("pay_slowly", {"amount": 5}, meta=KEY))
    assert "its outcome is not known" in again and "other arguments" in again
    assert PAID == [5]
