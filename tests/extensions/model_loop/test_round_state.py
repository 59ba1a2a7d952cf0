"""Rounds stored after any step and gone on with elsewhere (A16)."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.extensions.model_loop.turns import planned, told, turn

from mcp_toolset import (
    AskUser,
    Complete,
    Halt,
    HookSet,
    Reject,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolView,
    tool,
)
from mcp_toolset.errors import RoundError
from mcp_toolset.extensions.model_loop.tool_round import ToolRoundPlan
from mcp_toolset.rounds import ToolRound

pytestmark = pytest.mark.anyio

ran: list[str] = []


@tool
async def look(at: str) -> str:
    """Look at something."""
    ran.append(at)
    return f"saw {at}"


@tool(manual=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    raise AssertionError


@tool
async def book(seat: str) -> str | AskUser:
    """Book a seat."""
    schema = {"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]}
    return AskUser(f"Is seat {seat} right?", schema)


@tool
async def finish() -> str | Halt:
    """End the loop."""
    return Halt("found", "all done")


VIEW = Toolset(look, pay, book, finish).view()
CALLS = [
    ("c1", "look", '{"at": "sky"}'),
    ("m1", "pay", '{"amount": 5}'),
    ("q1", "book", '{"seat": "2A"}'),
    ("h1", "finish", "{}"),
    ("d1", "look", '{"at": "done"}'),
    ("r1", "look", '{"at": "refused"}'),
    ("i1", "nowhere", "{}"),
    ("i2", "look", "[]"),
]


def deciding() -> HookSet:
    hooks = HookSet()

    @hooks.execution("look")
    async def decide(call: ToolCall, input: dict[str, Any]) -> Any:
        made: dict[str, Any] = {"d1": Complete("known"), "r1": Reject("no", "policy")}
        return made.get(call.id, RunNormally({"at": f"{input['at']} above"}))

    return hooks


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    ran.clear()


def moved(plan: ToolRound | ToolRoundPlan, view: ToolView = VIEW, **options: Any) -> ToolRoundPlan:
    """The plan as another process would have it."""
    state = json.loads(json.dumps(plan.to_state(), allow_nan=False))
    restored = ToolRound.from_state(state, view, **options)
    assert restored.to_state() == state
    return restored.plan


async def test_a16_a_round_goes_on_from_every_step_as_if_it_had_never_been_stored():
    round = ToolRound.from_openai(turn(*CALLS), VIEW)
    assert round.to_state()["status"] == round.status == "idle"
    plan = moved(round)
    plan = moved(await plan.apply(deciding()))
    assert [call.arguments for call in plan.pending][0] == {"at": "sky above"}
    assert [done.result.text for done in plan.handled] == ["known"]
    assert [(done.decision.reason, done.decision.source) for done in plan.rejected] == [("no", "policy")]
    assert [issue.reason for issue in plan.issues] == ["unknown_tool", "invalid_json"]
    async with plan.stream_pending(concurrency=1) as finished:
        async for _ in finished:
            break
    plan = moved(plan)
    assert (plan.results[0].id, ran) == ("c1", ["sky above"])
    report = await plan.run_pending()
    assert ran == ["sky above"]
    plan = moved(plan)
    assert plan.status == "awaiting_user"
    assert (plan.halt, plan.questions, plan.results) == (report.halt, report.questions, report.results)
    plan.answer("q1", {"seat": "3B"})
    plan = moved(plan)
    assert plan.status == "awaiting_tools"
    plan.submit("m1", "paid")
    plan = moved(plan)
    assert plan.status == "idle"
    committed = plan.commit()
    assert told(committed.to_openai()) == {
        "c1": "saw sky above",
        "m1": "paid",
        "q1": '{"seat":"3B"}',
        "h1": "all done",
        "d1": "known",
        "r1": "Rejected: no",
        "i1": "Rejected: Unknown tool: nowhere",
        "i2": "Rejected: Invalid arguments for look: they are not the JSON of an object",
    }


@pytest.mark.parametrize("end", [ToolRoundPlan.commit, ToolRoundPlan.discard])
async def test_a16_a_closed_round_stays_closed(end: Callable[[ToolRoundPlan], object]):
    plan = await planned(VIEW, *CALLS[2:4])
    await plan.run_pending()
    end(plan)
    again = moved(plan)
    assert (again.state, again.status) == (plan.state, "completed")
    with pytest.raises(RoundError, match=f"already {plan.state}"):
        again.commit()


async def test_a16_a_committed_round_still_has_its_messages():
    plan = await planned(VIEW, *CALLS)
    await plan.run_pending()
    plan.submit("m1", "paid")
    committed = plan.commit()
    restored = ToolRound.from_state(plan.to_state(), ToolView([]))
    assert restored.committed is not None
    assert restored.committed.to_openai() == committed.to_openai()
    assert restored.committed.questions == committed.questions
    assert restored.committed.halt == committed.halt
    assert committed.questions and committed.halt


async def test_a16_a_failure_that_halted_the_loop_is_a_state_of_its_own():
    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        raise OSError("the disk is full")

    view = ToolView([replace(VIEW["look"], execute=execute)])
    plan = await planned(view, CALLS[0])
    await plan.run_pending(on_tool_error="halt")
    assert moved(plan, view).status == "error"


def described(name: str) -> ToolView:
    return ToolView(
        replace(binding, definition=binding.definition.described("Look, and report it."))
        if binding.name == name
        else binding
        for binding in VIEW.values()
    )


async def test_a16_a_changed_definition_is_an_issue_and_does_not_run():
    plan = await planned(VIEW, CALLS[0], CALLS[1])
    plan = ToolRound.from_state(plan.to_state(), described("look")).plan
    (issue,) = plan.issues
    assert (issue.call.id, issue.reason) == ("c1", "changed_tool")
    assert plan.continue_suggestion is not None
    assert (await plan.run_pending()).results == ()
    assert ran == []
    plan.submit("m1", "paid")
    assert told(plan.commit().to_openai())["c1"].startswith("Rejected: look has changed")


async def test_a16_a_tool_that_came_from_elsewhere_is_a_changed_one():
    plan = await planned(VIEW, CALLS[0])
    other = ToolView([replace(VIEW["look"], source="impostor")])
    assert ToolRound.from_state(plan.to_state(), other).issues[0].reason == "changed_tool"


@pytest.mark.parametrize(("known", "reason"), [((), "unknown_tool"), (("look",), "unavailable_tool")])
async def test_a16_a_tool_that_is_gone_is_an_issue(known: tuple[str, ...], reason: str):
    plan = await planned(VIEW, CALLS[0])
    round = ToolRound.from_state(plan.to_state(), ToolView([]), known=known)
    assert [issue.reason for issue in round.issues] == [reason]


async def test_a16_what_has_a_result_does_not_depend_on_its_tool_any_more():
    plan = await planned(VIEW, *CALLS, hooks=deciding())
    await plan.run_pending()
    plan.submit("m1", "paid")
    bare = ToolRound.from_state(plan.to_state(), ToolView([])).plan
    assert moved(bare, ToolView([])).commit().to_openai() == plan.commit().to_openai()


async def test_a16_a_manual_call_whose_tool_changed_can_still_be_answered():
    plan = await planned(VIEW, CALLS[1])
    plan = ToolRound.from_state(plan.to_state(), described("pay")).plan
    assert plan.manual == ()
    plan.submit("m1", "paid all the same")
    assert told(plan.commit().to_openai()) == {"m1": "paid all the same"}


@pytest.mark.parametrize(
    ("hint", "runs_again"), [({}, False), ({"read_only": True}, True), ({"idempotent": True}, True)]
)
async def test_a16_a_call_that_was_running_is_repeated_only_where_that_does_no_harm(
    hint: dict[str, Any], runs_again: bool
):
    entered, may_end = anyio.Event(), anyio.Event()

    @tool(**hint)
    async def act() -> str:
        entered.set()
        await may_end.wait()
        return "acted"

    view = Toolset(act).view()
    plan = await planned(view, ("c1", "act", "{}"))
    with anyio.fail_after(30):
        async with plan.stream_pending():
            await entered.wait()
            state = plan.to_state()
    restored = ToolRound.from_state(state, view)
    if runs_again:
        assert [call.id for call in restored.plan.pending] == ["c1"]
        return
    assert [issue.reason for issue in restored.issues] == ["interrupted"]
    assert "may have taken effect or not" in restored.plan.commit().results[0].result.text


async def test_a16_a_call_that_was_stopped_is_pending_again():
    plan = await planned(VIEW, CALLS[0])
    async with plan.stream_pending():
        pass
    assert [call.id for call in moved(plan).pending] == ["c1"]


async def test_x8_hooks_that_have_still_to_see_something_are_asked_for():
    hooks = HookSet()

    @hooks.result("look")
    async def hide(call: ToolCall, result: ToolResult) -> ToolResult:
        return ToolResult.of_structured({"result": "hidden"}, text="hidden")

    state = (await planned(VIEW, CALLS[0], hooks=hooks)).to_state()
    with pytest.raises(RoundError, match="hooks=…"):
        ToolRound.from_state(state, VIEW)
    plan = ToolRound.from_state(state, VIEW, hooks=hooks).plan
    assert told(plan.commit(await plan.run_pending()).to_openai()) == {"c1": "hidden"}
    assert ToolRound.from_state(plan.to_state(), VIEW).status == "completed"


async def test_x8_hooks_of_the_tool_behind_a_calling_tool_are_asked_for():
    def redirect(call: ToolCall, context: ToolContext) -> ToolCall:
        return ToolCall("look", dict(call.arguments), call.id)

    view = ToolView(
        [replace(VIEW["look"], name="call_tool", redirect=redirect), replace(VIEW["look"], deferred=True)]
    )
    hooks = HookSet()

    @hooks.execution("look")
    async def refuse(call: ToolCall, input: dict[str, Any]) -> Any:
        return Reject("no")

    state = (await planned(view, ("c1", "call_tool", '{"at": "sky"}'), hooks=hooks)).to_state()
    with pytest.raises(RoundError, match="hooks=…"):
        ToolRound.from_state(state, view)
    plan = ToolRound.from_state(state, view, hooks=hooks).plan
    assert told(plan.commit(await plan.run_pending()).to_openai()) == {"c1": "Rejected: no"}


async def test_a16_a_plan_that_was_replaced_is_not_stored():
    old = await planned(VIEW, CALLS[0])
    await old.apply(HookSet())
    with pytest.raises(RoundError, match="newer plan"):
        old.to_state()


def damaged(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "format is None": {},
        "format is 'else'": {**state, "format": "else"},
        "version 2, and this release reads version 1": {**state, "version": 2},
        "damaged at calls": {**state, "calls": 7},
        "damaged at calls.0.standing.pending.effective": {
            **state,
            "calls": [{**state["calls"][0], "standing": {"kind": "pending"}}],
        },
        "damaged at surplus": {**state, "surplus": 1},
        "repeats the id 'c1'": {**state, "calls": [state["calls"][0]] * 2},
    }


async def test_a16_what_is_no_state_is_refused_with_its_place():
    state = (await planned(VIEW, CALLS[0])).to_state()
    for fault, wrong in damaged(state).items():
        with pytest.raises(RoundError, match=fault):
            ToolRound.from_state(wrong, VIEW)


async def test_a16_a_result_without_a_json_form_cannot_be_stored():
    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult({"content": [], "structuredContent": object()})

    view = ToolView([replace(VIEW["look"], execute=execute, output=None)])
    plan = await planned(view, CALLS[0])
    await plan.run_pending()
    with pytest.raises(RoundError, match="no JSON form"):
        plan.to_state()


async def test_a16_the_state_is_a_copy():
    plan = await planned(VIEW, CALLS[0])
    state = plan.to_state()
    state["message"]["tool_calls"].clear()
    state["calls"][0]["standing"]["effective"]["at"] = "hell"
    assert plan.to_state() != state
    assert plan.pending[0].arguments == {"at": "sky"}
