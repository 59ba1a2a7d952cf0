import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from tests.extensions.model_loop.turns import planned, told, turn

from mcp_toolset import (
    AskUser,
    Complete,
    Halt,
    HookSet,
    InputTool,
    Reject,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolView,
    rejection_reason,
    tool,
    tool_input,
)
from mcp_toolset.errors import DefinitionError, RoundError, ToolMismatchError
from mcp_toolset.rounds import CallResult, ToolAvailability, ToolRound

pytestmark = pytest.mark.anyio


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


@tool(manual=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    raise AssertionError("a manual tool is never run by itself")


@tool
async def book(seat: str) -> str | AskUser:
    """Book a seat."""
    return AskUser(f"Is seat {seat} right?")


@tool
async def choose(among: str) -> str | AskUser:
    """Choose among sizes."""
    schema = {"type": "object", "properties": {"size": {"enum": ["s", "m"]}}, "required": ["size"]}
    return AskUser("Which size?", schema)


@tool
async def finish(why: str) -> str | Halt:
    """End the loop."""
    return Halt(why, "all done")


class DiskFullError(Exception):
    """A fault of the test's own."""


@tool
async def fail() -> str:
    """Fail always."""
    raise DiskFullError("the disk is full")


VIEW = Toolset(look, pay, book, choose, finish, fail).view()
LOOK, PAY = ("c1", "look", '{"at": "sky"}'), ("m1", "pay", '{"amount": 5}')
BOOK, CHOOSE = ("q1", "book", '{"seat": "2A"}'), ("q2", "choose", '{"among": "shirts"}')
FINISH, FAIL = ("h1", "finish", '{"why": "found"}'), ("f1", "fail", "{}")


def halted(one: Any) -> tuple[str, str, str]:
    """Which call has ended the loop, and why."""
    return one.halt.id, one.halt.name, one.halt.reason


async def test_a6_a_manual_call_stays_pending_for_the_application():
    plan = await planned(VIEW, PAY, LOOK)
    assert [call.id for call in plan.pending] == ["m1", "c1"]
    assert plan.status == "idle"
    report = await plan.run_pending()
    assert [call.id for call in report.manual] == [call.id for call in plan.manual] == ["m1"]
    assert (report.manual[0].name, report.manual[0].arguments) == ("pay", {"amount": 5})
    assert plan.status == "awaiting_tools"
    with pytest.raises(RoundError, match=r"call m1 \(pay\) waits for your result; submit\(\) it"):
        plan.commit(report)
    assert plan.submit("m1", "paid").result.text == "paid"
    assert (plan.manual, plan.status) == ((), "idle")
    assert told(plan.commit().to_openai()) == {"m1": "paid", "c1": "saw sky"}


async def test_a6_a_tool_without_a_handler_is_manual():
    bare = replace(look, run=None)
    plan = await planned(Toolset(bare).view(), LOOK)
    assert [call.id for call in (await plan.run_pending()).manual] == ["c1"]


async def test_a6_what_was_submitted_need_not_be_given_to_the_commit_again():
    plan = await planned(VIEW, PAY, LOOK)
    report = await plan.run_pending()
    done = plan.submit("m1", {"paid": 5})
    assert told(plan.commit([*report, done]).to_openai())["m1"] == '{"paid":5}'


async def test_a6_the_application_may_give_manual_results_at_the_commit():
    plan = await planned(VIEW, PAY, LOOK)
    report = await plan.run_pending()
    committed = plan.commit([*report, CallResult.of(report.manual[0], "paid by hand")])
    assert told(committed.to_openai())["m1"] == "paid by hand"


async def test_a6_hooks_decide_about_manual_calls_too():
    hooks = HookSet()

    @hooks.execution("pay")
    async def cap(call: ToolCall, input: dict[str, Any]) -> Any:
        return RunNormally({"amount": 3}) if call.id == "m1" else Reject("too much")

    plan = await planned(VIEW, PAY, ("m2", "pay", '{"amount": 9}'), hooks=hooks)
    assert [(call.id, call.arguments) for call in plan.manual] == [("m1", {"amount": 3})]
    plan.submit("m1", "paid 3")
    committed = plan.commit()
    assert committed.results[0].arguments == {"amount": 5}
    assert told(committed.to_openai()) == {"m1": "paid 3", "m2": "Rejected: too much"}


async def test_a6_a_manual_tool_behind_a_calling_tool_waits_as_well():
    def redirect(call: ToolCall, context: ToolContext) -> ToolCall:
        return ToolCall("pay", dict(call.arguments), call.id)

    by_name = replace(VIEW["pay"], name="call_tool", manual=False, redirect=redirect)
    view = ToolView([by_name, replace(VIEW["pay"], deferred=True)])
    plan = await planned(view, ("m1", "call_tool", '{"amount": 5}'))
    assert plan.manual == ()
    assert [call.id for call in (await plan.run_pending()).manual] == ["m1"]
    plan.submit("m1", "paid")
    assert told(plan.commit().to_openai()) == {"m1": "paid"}


async def test_a8_manual_calls_surface_and_automatic_ones_run_even_when_a_halt_comes_first():
    plan = await planned(VIEW, FINISH, PAY, LOOK, FAIL)
    report = await plan.run_pending(concurrency=1)
    assert halted(report) == halted(plan) == ("h1", "finish", "found")
    assert [call.id for call in report.manual] == ["m1"]
    assert [done.id for done in report] == ["h1", "c1", "f1"]
    plan.submit("m1", "paid")
    committed = plan.commit()
    assert committed.halt == report.halt
    assert [done.result.text for done in committed.results][:3] == ["all done", "paid", "saw sky"]


@pytest.mark.parametrize(
    ("id", "fault"),
    [
        ("nowhere", "no call of this turn has the id 'nowhere'"),
        ("c1", r"call c1 \(look\) is automatic"),
        ("r1", r"call r1 \(look\) was already answered by a hook"),
        ("m2", r"call m2 \(pay\) has a result already"),
    ],
)
async def test_a9_a_result_for_an_unknown_or_automatic_call_is_refused(id: str, fault: str):
    hooks = HookSet()

    @hooks.execution("look")
    async def known(call: ToolCall, input: dict[str, Any]) -> Any:
        return Complete("known") if call.id == "r1" else RunNormally(input)

    calls = (LOOK, PAY, ("m2", "pay", '{"amount": 1}'), ("r1", "look", '{"at": "sea"}'))
    plan = await planned(VIEW, *calls, hooks=hooks)
    plan.submit("m2", "paid")
    before = plan.to_state()
    with pytest.raises(RoundError, match=fault):
        plan.submit(id, "forged")
    assert plan.to_state() == before


async def test_a9_a_result_without_a_json_form_or_an_end_is_refused():
    plan = await planned(VIEW, PAY)
    with pytest.raises(RoundError, match="no JSON form"):
        plan.submit("m1", object())
    with pytest.raises(RoundError, match="not complete"):
        plan.submit("m1", ToolResult({"content": [], "resultType": "inputRequired"}))
    assert [call.id for call in plan.manual] == ["m1"]


async def test_l22_a_call_with_an_issue_can_be_answered_by_submitting():
    plan = await planned(VIEW, ("c1", "calculator", "1 + 1"))
    plan.submit("c1", "2")
    assert told(plan.commit().to_openai()) == {"c1": "2"}


@pytest.mark.parametrize("reason", ["awaiting_tools", "awaiting_user", "completed", "error", "max_rounds"])
def test_a10_reserved_halt_reasons_are_refused(reason: str):
    with pytest.raises(DefinitionError, match="reserved"):
        Halt(reason)


async def test_a10_a_tool_that_halts_for_a_reserved_reason_fails():
    plan = await planned(VIEW, ("h1", "finish", '{"why": "completed"}'))
    report = await plan.run_pending()
    assert report.halt is None
    assert report[0].result.is_error


async def test_a11_a_tools_own_deadline_overrides_that_of_the_run():
    async def stuck() -> None:
        await anyio.sleep_forever()

    view = Toolset(tool(name="short", timeout=0.03)(stuck), tool(name="usual")(stuck)).view()
    plan = await planned(view, ("c1", "short", "{}"), ("c2", "usual", "{}"))
    with anyio.fail_after(30):
        report = await plan.run_pending(timeout=0.06)
    assert [done.result.text for done in report] == [
        "short gave no answer within 0.03 s and was stopped",
        "usual gave no answer within 0.06 s and was stopped",
    ]
    assert [type(failure.exception) for failure in report.failures] == [TimeoutError] * 2


async def test_a12_results_stream_as_they_finish_and_are_committed_in_order():
    first_may_end = anyio.Event()

    async def first() -> str:
        await first_may_end.wait()
        return "first"

    async def second() -> str:
        return "second"

    plan = await planned(Toolset(first, second).view(), ("c1", "first", "{}"), ("c2", "second", "{}"))
    seen: list[str] = []
    with anyio.fail_after(30):
        async with plan.stream_pending() as finished:
            async for done in finished:
                seen.append(done.id)
                first_may_end.set()
    assert seen == ["c2", "c1"]
    assert list(told(plan.commit().to_openai()).values()) == ["first", "second"]


async def test_a12_leaving_a_stream_early_stops_the_rest_and_keeps_what_has_finished():
    stopped = anyio.Event()

    async def stuck() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    plan = await planned(Toolset(look, stuck).view(), LOOK, ("c2", "stuck", "{}"))
    with anyio.fail_after(30):
        with pytest.raises(DiskFullError):
            async with plan.stream_pending() as finished:
                async for done in finished:
                    raise DiskFullError(done.id)
    assert stopped.is_set()
    assert [done.id for done in plan.results] == ["c1"]
    with pytest.raises(RoundError, match=r"call c2 \(stuck\) has no result"):
        plan.commit()


async def test_a12_nothing_comes_between_a_run_and_its_end_but_results_from_outside():
    plan = await planned(VIEW, LOOK, PAY, BOOK)
    async with plan.stream_pending() as finished:
        for step in (plan.run_pending, lambda: plan.apply(HookSet())):
            with pytest.raises(RoundError, match="running calls just now"):
                await step()
        for close in (plan.commit, plan.discard):
            with pytest.raises(RoundError, match="running calls just now"):
                close()
        plan.submit("m1", "paid")
        async for done in finished:
            if done.id == "q1":
                plan.answer("q1", "yes")
    assert told(plan.commit().to_openai()) == {"c1": "saw sky", "m1": "paid", "q1": "yes"}


async def test_a12_a_second_run_does_not_run_finished_calls_again():
    runs: list[str] = []
    may_finish = False

    @tool
    async def count(name: str) -> str:
        runs.append(name)
        if name == "b" and not may_finish:
            await anyio.sleep_forever()
        return f"ran {name}"

    plan = await planned(
        Toolset(count).view(), ("c1", "count", '{"name": "a"}'), ("c2", "count", '{"name": "b"}')
    )
    with anyio.fail_after(30):
        async with plan.stream_pending() as finished:
            async for _ in finished:
                break
        may_finish = True
        report = await plan.run_pending()
        again = await plan.run_pending()
    assert runs == ["a", "b", "b"]
    assert [done.result.text for done in report] == ["ran a", "ran b"]
    assert list(again) == list(report)


async def test_l21_hooks_are_not_asked_about_calls_that_have_a_result():
    asked: list[str] = []
    hooks = HookSet()

    @hooks.execution("*")
    async def note(call: ToolCall, input: dict[str, Any]) -> Any:
        asked.append(call.id)
        return Reject("late")

    plan = await planned(VIEW, LOOK, PAY, BOOK)
    await plan.run_pending()
    plan = await plan.apply(hooks)
    assert asked == ["m1"]
    assert told(plan.commit().to_openai())["c1"] == "saw sky"


async def test_a13_a_failure_continues_and_its_exception_is_reachable(caplog: pytest.LogCaptureFixture):
    plan = await planned(VIEW, FAIL, LOOK)
    with caplog.at_level(logging.ERROR, "mcp_toolset.calls"):
        report = await plan.run_pending()
    (failure,) = report.failures
    assert isinstance(failure.exception, DiskFullError)
    assert (failure.call.id, failure.result.text) == ("f1", "fail failed: the disk is full")
    assert (report.halt, plan.status) == (None, "idle")
    assert "tool fail raised" in caplog.text


async def test_a13_a_failure_may_halt_the_loop_and_its_siblings_finish():
    plan = await planned(VIEW, FAIL, LOOK)
    report = await plan.run_pending(on_tool_error="halt", concurrency=1)
    assert halted(report) == ("f1", "fail", "error")
    assert plan.status == "error"
    assert [done.id for done in report] == ["f1", "c1"]
    assert plan.commit(report).halt == report.halt


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_a13_a_function_decides_with_the_exception_in_hand(form: str):
    def decide(failure: Any) -> Any:
        return "halt" if isinstance(failure.exception, DiskFullError) else "continue"

    async def later(failure: Any) -> Any:
        return decide(failure)

    chosen = decide if form == "sync" else later
    plan = await planned(VIEW, ("f0", "finish", '{"why": "completed"}'), FAIL)
    report = await plan.run_pending(on_tool_error=chosen)
    assert halted(report) == ("f1", "fail", "error")


@pytest.mark.parametrize("answer", [DiskFullError("no"), "perhaps"])
async def test_a13_a_function_that_cannot_decide_halts(answer: Any, caplog: pytest.LogCaptureFixture):
    def decide(failure: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    plan = await planned(VIEW, FAIL, LOOK)
    report = await plan.run_pending(on_tool_error=decide)
    assert halted(report) == ("f1", "fail", "error")
    assert "the loop halts" in caplog.text
    assert [done.id for done in report] == ["f1", "c1"]


async def test_a13_an_error_that_a_tool_reports_itself_has_no_exception():
    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_error("storm")

    plan = await planned(ToolView([replace(VIEW["look"], execute=execute)]), LOOK)
    (failure,) = (await plan.run_pending()).failures
    assert (failure.exception, failure.result.text) == (None, "storm")


async def test_a13_a_policy_that_is_none_is_refused_before_anything_runs():
    plan = await planned(VIEW, LOOK)
    with pytest.raises(RoundError, match="on_tool_error is"):
        await plan.run_pending(on_tool_error="explode")  # pyright: ignore[reportArgumentType]
    assert plan.results == ()


async def test_a14_a_question_surfaces_and_the_answer_becomes_the_result():
    plan = await planned(VIEW, BOOK, LOOK)
    report = await plan.run_pending()
    (asked,) = report.questions
    assert (asked.id, asked.name, asked.question, asked.schema) == ("q1", "book", "Is seat 2A right?", None)
    assert plan.status == "awaiting_user"
    assert report[0].result.text == "The user was asked: Is seat 2A right?\nThere is no answer yet."
    plan.answer("q1", "yes, by the window")
    assert (plan.questions, plan.status) == ((), "idle")
    assert told(plan.commit(report).to_openai())["q1"] == "yes, by the window"


async def test_a14_a_question_may_be_committed_and_stays_readable():
    plan = await planned(VIEW, BOOK, LOOK)
    committed = plan.commit(await plan.run_pending())
    assert [asked.id for asked in committed.questions] == ["q1"]
    assert told(committed.to_openai())["q1"].startswith("The user was asked: Is seat 2A right?")


@pytest.mark.parametrize(
    ("answer", "fault"), [("m", "with an object"), ({"size": "xl"}, "does not fit"), ({}, "does not fit")]
)
async def test_a14_an_answer_must_fit_the_question(answer: str | Mapping[str, Any], fault: str):
    plan = await planned(VIEW, CHOOSE)
    await plan.run_pending()
    with pytest.raises(RoundError, match=fault):
        plan.answer("q2", answer)
    assert plan.status == "awaiting_user"
    plan.answer("q2", {"size": "m"})
    assert plan.commit().results[0].result.structured == {"size": "m"}


async def test_a14_declining_is_an_answer():
    plan = await planned(VIEW, BOOK)
    await plan.run_pending()
    plan.answer("q1", None)
    assert told(plan.commit().to_openai())["q1"] == "Error: The user declined to answer: Is seat 2A right?"


async def test_a14_only_a_question_is_answered_and_once():
    plan = await planned(VIEW, BOOK, LOOK)
    with pytest.raises(RoundError, match="has no open question"):
        plan.answer("q1", "yes")
    await plan.run_pending()
    with pytest.raises(RoundError, match="has no open question"):
        plan.answer("c1", "yes")
    plan.answer("q1", "yes")
    with pytest.raises(RoundError, match="has no open question"):
        plan.answer("q1", "no")


async def test_o9_result_hooks_see_what_ran_and_what_hooks_answered_or_refused():
    hooks = HookSet()

    @hooks.execution("look")
    async def decide(call: ToolCall, input: dict[str, Any]) -> Any:
        decisions: dict[str, Any] = {"c2": Complete("known"), "c3": Reject("no")}
        return decisions.get(call.id, RunNormally(input))

    @hooks.result("look")
    async def sign(call: ToolCall, result: ToolResult) -> ToolResult:
        return ToolResult.of_structured({"result": f"{result.text}!"}, text=f"{result.text}!")

    calls = [(f"c{n}", "look", '{"at": "sky"}') for n in (1, 2, 3)]
    plan = await planned(VIEW, *calls, hooks=hooks)
    assert [done.decision.reason for done in plan.rejected] == ["no"]
    assert told(plan.commit(await plan.run_pending()).to_openai()) == {
        "c1": "saw sky!",
        "c2": "known!",
        "c3": "Rejected: no!",
    }


async def test_l23_a_rejection_is_an_ordinary_result_that_a_program_can_read():
    hooks = HookSet()

    @hooks.execution("*")
    async def refuse(call: ToolCall, input: dict[str, Any]) -> Any:
        return Reject("not today", "policy")

    plan = await planned(VIEW, LOOK, hooks=hooks)
    result = plan.commit().results[0].result
    found = rejection_reason(result)
    assert found is not None
    assert (found.reason, found.source, result.is_error) == ("not today", "policy", True)


@tool_input(output=str)
class Search(BaseModel):
    query: str


@tool_input(output=int)
class Count(BaseModel):
    query: str


async def test_l24_a_typed_tool_completes_its_own_call_and_no_other():
    view = Toolset(Search, Count).view()
    plan = await planned(view, ("c1", "Search", '{"query": "x"}'), ("c2", "Count", '{"query": "y"}'))
    search, count = plan.manual
    with pytest.raises(ToolMismatchError, match="c2"):
        InputTool.of(Search).decode(count)
    with pytest.raises(ToolMismatchError):
        InputTool.of(Count).complete(InputTool.of(Search).decode(search), 1)  # pyright: ignore[reportArgumentType]
    before = plan.to_state()
    mixed = replace(InputTool.of(Search).decode(search).complete("found"), id="c2")
    with pytest.raises(RoundError, match=r"c2 \(Search\) is a call of Count"):
        plan.commit([mixed])
    assert plan.to_state() == before
    done = [
        InputTool.of(Search).decode(search).complete("found"),
        InputTool.of(Count).decode(count).complete(3),
    ]
    assert told(plan.commit(done).to_openai()) == {"c1": "found", "c2": "3"}


async def test_l27_hooks_of_a_nested_toolset_are_asked_and_calls_come_back_under_the_outer_names():
    inner = HookSet()

    @inner.execution("look")
    async def decide(call: ToolCall, input: dict[str, Any]) -> Any:
        return Complete("known") if input["at"] == "sea" else Reject("dark")

    view = Toolset(book, Toolset(look, name="data").prefixed("data")).view()
    calls = [("c1", "data_look", '{"at": "sea"}'), ("c2", "data_look", '{"at": "cave"}'), BOOK]
    plan = await planned(view, *calls, hooks=HookSet().nested("data", inner))
    assert [(done.call.id, done.call.name) for done in plan.handled] == [("c1", "data_look")]
    assert [(done.call.id, done.call.name) for done in plan.rejected] == [("c2", "data_look")]
    assert [call.id for call in plan.pending] == ["q1"]


@pytest.mark.parametrize("availability", ["all", "only", "default_plus"])
async def test_l27_calls_reach_a_nested_group_that_is_off_where_it_was_offered(availability: str):
    tools = Toolset(book, Toolset(look).prefixed("data").off())
    offered = {
        "all": ToolAvailability.all(),
        "only": ToolAvailability.only("data_look"),
        "default_plus": ToolAvailability.default_plus("data_look"),
    }
    message = turn(("c1", "data_look", '{"at": "sky"}'))
    assert ToolRound.from_openai(message, tools.view()).calls == ()
    plan = await planned(tools.view(offered[availability]), ("c1", "data_look", '{"at": "sky"}'))
    assert told(plan.commit(await plan.run_pending()).to_openai()) == {"c1": "saw sky"}
