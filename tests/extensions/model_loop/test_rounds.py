import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import anyio
import httpx2
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel
from tests.extensions.model_loop.turns import turn

from mcp_toolset import (
    Complete,
    HookSet,
    Reject,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    ToolView,
    rejection_reason,
)
from mcp_toolset.errors import GrantError, RoundError, UpstreamProtocolError
from mcp_toolset.extensions.model_loop.tool_round import ToolRoundPlan
from mcp_toolset.rounds import CallResult, ToolAvailability, ToolRound

pytestmark = pytest.mark.anyio


class WeatherArgs(BaseModel):
    city: str


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


async def fail() -> str:
    """Fail always."""
    raise ValueError("the disk is full")


async def erp_delete(id: str) -> str:
    """Delete a record."""
    return f"deleted {id}"


TOOLS = Toolset(add, weather, fail, erp_delete).off("erp_delete")
VIEW = TOOLS.view()


def two_calls() -> ToolRound:
    return ToolRound.from_openai(
        turn(("c1", "add", '{"a": 1, "b": 2}'), ("c2", "weather", '{"city": "Oslo"}')), VIEW
    )


async def planned(round: ToolRound, hooks: HookSet | None = None) -> ToolRoundPlan:
    return await round.apply(hooks or HookSet())


def deciding(name: str, decision: Any) -> HookSet:
    hooks = HookSet()

    @hooks.execution(name)
    async def decide(call: ToolCall, input: dict[str, Any]) -> Any:
        return decision

    return hooks


def answers(plan: ToolRoundPlan, results: Sequence[CallResult]) -> dict[str, str]:
    messages = plan.commit(results).to_openai()
    return {message["tool_call_id"]: message["content"] for message in messages[1:]}


class FakeProvider:
    """The provider's end of the wire; the library between it and the test is the real one."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._replies = iter(replies)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(json.loads(request.content))
        choice = {"index": 0, "finish_reason": "tool_calls", "message": next(self._replies)}
        return httpx2.Response(
            200,
            json={"id": "r", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]},
        )


@pytest.fixture
def provider() -> FakeProvider:
    said = turn(("c1", "add", '{"a": 1, "b": 2}'), ("c2", "erp_delete", '{"id": "7"}'))
    nulls = {"refusal": None, "audio": None, "function_call": None, "annotations": []}
    return FakeProvider({**said, **nulls}, {"role": "assistant", "content": "Done."})


@pytest.fixture
def client(provider: FakeProvider) -> Iterator[OpenAI]:
    with (
        httpx2.Client(transport=httpx2.MockTransport(provider)) as http,
        OpenAI(api_key="none", base_url="http://provider.test/v1", http_client=http) as client,
    ):
        yield client


async def test_l1_the_owned_loop_works_as_promised_with_the_real_library(
    client: OpenAI, provider: FakeProvider
):
    hooks = deciding("erp_delete", Reject("ask a person first"))
    messages: list[Any] = [{"role": "user", "content": "Add, then delete."}]
    async with TOOLS as tools:
        view = tools.view(ToolAvailability.default_plus("erp_delete"))
        reply = client.chat.completions.create(model="m", messages=messages, tools=view.to_openai())  # pyright: ignore[reportArgumentType]
        assert isinstance(reply.choices[0].message, ChatCompletionMessage)
        round = ToolRound.from_openai(reply.choices[0].message, view)
        plan = await round.apply(hooks)
        messages += plan.commit(await plan.run_pending()).to_openai()
        client.chat.completions.create(model="m", messages=messages)
    offered = [entry["function"]["name"] for entry in provider.requests[0]["tools"]]
    _, said, first, second = provider.requests[1]["messages"]
    assert offered == ["add", "weather", "fail", "erp_delete"]
    assert said == {
        **turn(("c1", "add", '{"a": 1, "b": 2}'), ("c2", "erp_delete", '{"id": "7"}')),
        "annotations": [],
    }
    assert first == {"role": "tool", "tool_call_id": "c1", "content": "3"}
    assert second == {"role": "tool", "tool_call_id": "c2", "content": "Rejected: ask a person first"}


@pytest.mark.parametrize("form", [dict, ChatCompletionMessage.model_validate])
async def test_l1_library_objects_and_dictionaries_come_to_the_same(form: Any):
    message = turn(("c1", "add", '{"a": 1, "b": 2}'))
    plan = await planned(ToolRound.from_openai(form(message), VIEW))
    committed = plan.commit(await plan.run_pending()).to_openai()
    assert committed == [message, {"role": "tool", "tool_call_id": "c1", "content": "3"}]


async def test_l1_a_turn_without_calls_commits_to_itself():
    plan = await planned(ToolRound.from_openai({"role": "assistant", "content": "Hello."}, VIEW))
    assert plan.commit(await plan.run_pending()).to_openai() == [{"role": "assistant", "content": "Hello."}]


async def test_l1_from_calls_needs_no_provider():
    round = ToolRound.from_calls([ToolCall("add", {"a": 1, "b": 2}, "c1")], VIEW)
    plan = await planned(round)
    said, done = plan.commit(await plan.run_pending()).to_openai()
    assert said == turn(("c1", "add", '{"a":1,"b":2}'))
    assert done["content"] == "3"


async def test_l19_from_calls_runs_an_edited_call_and_commits_the_original():
    edited = ToolCall("add", {"a": 1, "b": 2}, "c1").with_arguments({"a": 5, "b": 5})
    plan = await planned(ToolRound.from_calls([edited], VIEW))
    committed = plan.commit(await plan.run_pending())
    assert committed.results[0].arguments == {"a": 1, "b": 2}
    assert committed.results[0].result.text == "10"


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ({"role": "user", "content": "Hi."}, "found role 'user'"),
        ("Hello.", "assistant message"),
        (turn(("c1", "add", "{}"), ("c1", "add", "{}")), "repeats the id 'c1'"),
        (turn(("", "add", "{}")), "has no id"),
        ({"role": "assistant", "tool_calls": [{"id": "c1"}]}, r"tool_calls\[0\]"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}, r"\[0\]"),
        (turn(("c1", "add", None)), r"tool_calls\[0\]"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_l14_a_message_that_makes_no_round_is_refused(message: object, fault: str):
    with pytest.raises(RoundError, match=fault):
        ToolRound.from_openai(message, VIEW)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("nowhere", "{}", "unknown_tool"),
        ("erp_delete", '{"id": "7"}', "unavailable_tool"),
        ("add", '{"a": 1, "b"', "invalid_json"),
        ("add", "[1, 2]", "invalid_json"),
        ("add", '{"a": NaN, "b": 2}', "invalid_json"),
        ("add", "[" * 100_000, "invalid_json"),
        ("add", '{"a": 1}', "invalid_arguments"),
        ("add", "", "invalid_arguments"),
    ],
)
async def test_l22_a_call_that_cannot_run_is_an_issue_and_gets_a_standard_rejection(
    name: str, arguments: str, reason: str
):
    known = TOOLS.view(ToolAvailability.all())
    round = ToolRound.from_openai(turn(("c1", name, arguments), ("c2", "fail", "")), VIEW, known=known)
    plan = await planned(round)
    assert [(issue.call.id, issue.reason) for issue in plan.issues] == [("c1", reason)]
    assert [call.id for call in plan.pending] == ["c2"]
    assert plan.continue_suggestion is not None
    assert reason in plan.continue_suggestion
    committed = plan.commit(await plan.run_pending())
    assert (found := rejection_reason(committed.results[0].result)) is not None
    assert found.source == "policy"
    assert name in found.reason


async def test_f34_an_unavailable_tool_reads_like_an_unknown_one():
    message = turn(("c1", "erp_delete", "{}"))
    told = [
        ToolRound.from_openai(message, VIEW, known=known).issues[0].message for known in ((), ("erp_delete",))
    ]
    assert told == ["Unknown tool: erp_delete"] * 2


async def test_x1_a_deferred_tool_cannot_be_called_by_its_name():
    hidden = ToolView(replace(binding, deferred=True) for binding in VIEW.values())
    round = ToolRound.from_openai(turn(("c1", "add", '{"a": 1, "b": 2}')), hidden)
    assert round.issues[0].reason == "unavailable_tool"


async def test_l22_the_application_may_answer_an_issue_itself():
    message = turn(("c1", "calculator", "1 + 1"), ("c2", "add", '{"a": 1, "b": 2}'))
    plan = await planned(ToolRound.from_openai(message, VIEW))
    own = CallResult.of(plan.issues[0].call, "2")
    assert answers(plan, [*await plan.run_pending(), own]) == {"c1": "2", "c2": "3"}


async def test_l22_a_custom_tool_call_is_an_issue_that_can_be_answered():
    custom = {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    message = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "tool_calls": [custom]}
    )
    plan = await planned(ToolRound.from_openai(message, VIEW))
    assert plan.issues[0].reason == "unknown_tool"
    said, done = plan.commit([CallResult.of(plan.issues[0].call, "a.txt")]).to_openai()
    assert said["tool_calls"] == [custom]
    assert done == {"role": "tool", "tool_call_id": "c1", "content": "a.txt"}


def mutations(results: Sequence[CallResult]) -> dict[str, list[CallResult]]:
    first, second = results
    return {
        r"call c2 \(weather\) has no result": [first],
        "c1 .* has two results": [first, second, first],
        "c9 .* is not of this turn": [first, second, replace(first, id="c9")],
        "c1 .* is a call of add": [replace(first, name="weather"), second],
        "c1 .* other arguments": [replace(first, arguments={"a": 1, "b": 3}), second],
        "c9 .* is not of this turn.* c1 .* has no result.* c2 .* has no result": [replace(first, id="c9")],
    }


async def test_l14_a_refused_commit_names_the_fault_and_changes_nothing():
    round = two_calls()
    plan = await planned(round)
    results = await plan.run_pending()
    before = repr(plan)
    for fault, wrong in mutations(results).items():
        with pytest.raises(RoundError, match=fault):
            plan.commit(wrong)
        assert (round.state, plan.state, repr(plan)) == ("open", "open", before)
    assert answers(plan, results) == {"c1": "3", "c2": "sunny in Oslo"}


async def test_l14_a_result_for_a_call_that_a_hook_answered_is_refused():
    round = two_calls()
    results = await (await planned(two_calls())).run_pending()
    plan = await planned(round, deciding("add", Complete(3)))
    with pytest.raises(RoundError, match="c1 .* already answered by a hook"):
        plan.commit(results)
    assert answers(plan, results[1:]) == {"c1": "3", "c2": "sunny in Oslo"}


async def test_l14_a_round_is_committed_once():
    round = two_calls()
    plan = await planned(round)
    results = await plan.run_pending()
    plan.commit(results)
    assert round.state == "committed"
    with pytest.raises(RoundError, match="already committed"):
        plan.commit(results)
    with pytest.raises(RoundError, match="already committed"):
        plan.discard()
    with pytest.raises(RoundError, match="already committed"):
        await plan.run_pending()
    with pytest.raises(RoundError, match="already committed"):
        await plan.apply(HookSet())


async def test_l15_a_discarded_round_does_not_go_on():
    round = two_calls()
    round.discard()
    assert round.state == "discarded"
    with pytest.raises(RoundError, match="already discarded"):
        await round.apply(HookSet())
    plan = await planned(two_calls())
    plan.discard()
    with pytest.raises(RoundError, match="already discarded"):
        plan.commit()


def test_l15_expecting_one_call():
    none = ToolRound.from_openai({"role": "assistant", "content": "Hi."}, VIEW)
    one = ToolRound.from_openai(turn(("c1", "fail", "{}")), VIEW)
    unknown = ToolRound.from_openai(turn(("c1", "nowhere", "{}")), VIEW)
    assert none.expect_at_most_one() is None
    assert one.expect_one() is one.expect_at_most_one() is one.calls[0]
    with pytest.raises(RoundError, match="found none"):
        none.expect_one()
    with pytest.raises(RoundError, match="found 2"):
        two_calls().expect_at_most_one()
    with pytest.raises(RoundError, match="Unknown tool: nowhere"):
        unknown.expect_one()


async def test_l18_without_hooks_every_call_is_pending_and_unchanged():
    round = two_calls()
    plan = await planned(round)
    assert plan.pending == round.calls
    assert [call.arguments for call in plan.pending] == [{"a": 1, "b": 2}, {"city": "Oslo"}]
    assert (plan.handled, plan.rejected, plan.issues, plan.continue_suggestion) == ((), (), (), None)


async def test_l17_hooks_hand_edits_on_in_order_and_a_decision_stops_them():
    hooks, asked = HookSet(), list[Any]()

    @hooks.execution("weather")
    async def widen(call: ToolCall, input: WeatherArgs) -> Any:
        asked.append(("widen", input.city))
        return RunNormally(WeatherArgs(city=f"{input.city}, Norway"))

    @hooks.execution("*")
    async def refuse(call: ToolCall, input: dict[str, Any]) -> Any:
        asked.append(("refuse", call.name, input.get("city")))
        return Reject("no", "policy") if call.name == "weather" else RunNormally(input)

    @hooks.execution("weather")
    async def never(call: ToolCall, input: WeatherArgs) -> Any:
        asked.append("never")
        return RunNormally(input)

    plan = await planned(two_calls(), hooks)
    assert asked == [("refuse", "add", None), ("widen", "Oslo"), ("refuse", "weather", "Oslo, Norway")]
    assert [(done.call.id, done.decision.source) for done in plan.rejected] == [("c2", "policy")]
    committed = plan.commit(await plan.run_pending())
    found = rejection_reason(committed.results[1].result)
    assert found is not None
    assert (found.reason, found.source) == ("no", "policy")


async def test_l19_the_last_edit_runs_and_the_commit_matches_the_original():
    plan = await planned(two_calls(), deciding("weather", RunNormally({"city": "Bergen"})))
    plan = await plan.apply(deciding("weather", RunNormally({"city": "Tromsø"})))
    call = plan.pending[1]
    assert (call.arguments, call.original) == ({"city": "Tromsø"}, {"city": "Oslo"})
    results = await plan.run_pending()
    assert results[1].arguments == {"city": "Oslo"}
    with pytest.raises(RoundError, match="other arguments"):
        plan.commit([results[0], replace(results[1], arguments={"city": "Tromsø"})])
    assert answers(plan, [results[0], CallResult.of(call, results[1].result)])["c2"] == "sunny in Tromsø"


async def test_f40_an_edit_that_does_not_fit_is_not_run_even_if_made_in_place():
    hooks = HookSet()

    @hooks.execution("add")
    async def spoil(call: ToolCall, input: dict[str, Any]) -> Any:
        input["a"] = "one"
        return RunNormally(input)

    plan = await planned(two_calls(), hooks)
    assert [done.call.id for done in plan.rejected] == ["c1"]
    assert [call.id for call in plan.pending] == ["c2"]
    told = answers(plan, await plan.run_pending())["c1"]
    assert told.startswith("Rejected: a hook edited the arguments of add")
    assert "one" in told


async def test_l19_a_hook_that_edits_in_place_and_rejects_leaves_the_call_as_it_was():
    hooks = HookSet()

    @hooks.execution("weather")
    async def meddle(call: ToolCall, input: dict[str, Any]) -> Any:
        input["city"] = "nowhere"
        return Reject("no")

    plan = await planned(two_calls(), hooks)
    assert plan.rejected[0].call.arguments == {"city": "Oslo"}


async def test_f38_a_hook_that_raises_means_that_the_call_does_not_run():
    hooks = HookSet()

    @hooks.execution("weather")
    async def broken(call: ToolCall, input: dict[str, Any]) -> Any:
        raise KeyError("secret")

    plan = await planned(two_calls(), hooks)
    assert [call.id for call in plan.pending] == ["c1"]
    assert "secret" not in answers(plan, await plan.run_pending())["c2"]


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (3, "3"),
        ({"result": 3}, '{"result":3}'),
        (ToolResult({"content": [], "structuredContent": {"result": 3}}), '{"result": 3}'),
        ("three", "does not fit its output schema"),
        ({"sum": 3}, "does not fit its output schema"),
        (ToolResult.of_text("three"), "returned no structured content"),
        (ToolResult({"content": [{"type": "image"}]}), "does not follow the protocol"),
    ],
)
async def test_l17_f22_a_hook_answers_in_the_form_that_the_tool_promised_as_in_a_served_call(
    output: Any, told: str
):
    hooks = deciding("add", Complete(output))
    plan = await planned(two_calls(), hooks)
    served = await VIEW.execute("add", {"a": 1, "b": 2}, rules=Rules(hooks))
    (done, *_) = (one.result for one in plan.commit([*(await plan.run_pending())]).results)
    assert told in done.text and done.text.removeprefix("Rejected: ") == served.text
    assert done.structured == served.structured and done.is_error == served.is_error


async def test_l17_a_hook_whose_answer_has_no_json_form_is_a_rejection():
    plan = await planned(two_calls(), deciding("add", Complete(object())))
    assert "no JSON form" in plan.rejected[0].decision.reason


async def test_l21_more_hooks_are_asked_about_the_pending_only():
    asked: list[str] = []
    more = HookSet()

    @more.execution("*")
    async def look(call: ToolCall, input: dict[str, Any]) -> Any:
        asked.append(call.id)
        return RunNormally(input)

    message = turn(
        ("c1", "add", '{"a": 1, "b": 2}'), ("c2", "weather", '{"city": "Oslo"}'), ("c3", "fail", "{}")
    )
    plan = await planned(ToolRound.from_openai(message, VIEW), deciding("add", Complete(7)))
    plan = await plan.apply(deciding("fail", Reject("no")))
    plan = await plan.apply(more)
    assert asked == ["c2"]
    assert [done.call.id for done in plan.handled] == ["c1"]
    assert [done.call.id for done in plan.rejected] == ["c3"]
    told = answers(plan, await plan.run_pending())
    assert list(told.items()) == [("c1", "7"), ("c2", "sunny in Oslo"), ("c3", "Rejected: no")]


async def test_l21_a_plan_that_newer_hooks_replaced_cannot_go_around_them():
    round = two_calls()
    old = await planned(round)
    new = await old.apply(deciding("add", Reject("no")))
    for refused in (old.run_pending, lambda: old.apply(HookSet()), lambda: round.apply(HookSet())):
        with pytest.raises(RoundError, match="newer plan"):
            await refused()
    for close in (old.commit, old.discard, round.discard):
        with pytest.raises(RoundError, match="newer plan"):
            close()
    assert answers(new, await new.run_pending())["c1"] == "Rejected: no"


async def test_l14_cancelled_hooks_leave_the_round_as_it_was():
    hooks, entered = HookSet(), anyio.Event()

    @hooks.execution("weather")
    async def wait(call: ToolCall, input: dict[str, Any]) -> Any:
        entered.set()
        await anyio.sleep_forever()
        raise AssertionError

    round = two_calls()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(round.apply, hooks)
            await entered.wait()
            tasks.cancel_scope.cancel()
    plan = await planned(round)
    assert [call.id for call in plan.pending] == ["c1", "c2"]


async def test_a11_pending_calls_run_concurrently_and_keep_their_order():
    first_may_end = anyio.Event()

    async def first() -> str:
        await first_may_end.wait()
        return "first"

    async def second() -> str:
        first_may_end.set()
        return "second"

    message = turn(("c1", "first", "{}"), ("c2", "second", "{}"))
    plan = await planned(ToolRound.from_openai(message, Toolset(first, second).view()))
    with anyio.fail_after(30):
        results = await plan.run_pending()
    assert [(done.id, done.result.text) for done in results] == [("c1", "first"), ("c2", "second")]


async def test_a11_no_more_calls_run_at_once_than_allowed():
    running, most = 0, 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1

    message = turn(*((f"c{n}", "work", "{}") for n in range(9)))
    plan = await planned(ToolRound.from_openai(message, Toolset(work).view()))
    with anyio.fail_after(30):
        assert len(await plan.run_pending(concurrency=3)) == 9
    assert most == 3


async def test_a11_a_tool_that_outstays_its_time_is_an_error_and_its_siblings_finish():
    stopped = anyio.Event()

    async def stuck() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    tools = Toolset(stuck, weather)
    message = turn(("c1", "stuck", "{}"), ("c2", "weather", '{"city": "Oslo"}'))
    plan = await planned(ToolRound.from_openai(message, tools.view()))
    with anyio.fail_after(30):
        results = await plan.run_pending(timeout=0.05, concurrency=1)
    assert stopped.is_set()
    assert results[0].result.is_error
    assert answers(plan, results) == {
        "c1": "Error: stuck gave no answer within 0.05 s and was stopped",
        "c2": "sunny in Oslo",
    }


async def test_a11_a_tool_that_fails_is_an_error_and_its_siblings_finish():
    message = turn(("c1", "fail", "{}"), ("c2", "weather", '{"city": "Oslo"}'))
    plan = await planned(ToolRound.from_openai(message, VIEW))
    told = answers(plan, await plan.run_pending())
    assert told == {"c1": "Error: fail failed: the disk is full", "c2": "sunny in Oslo"}


async def test_a11_cancellation_stops_the_tools_and_the_round_stays_open():
    started, stopped = anyio.Event(), anyio.Event()

    async def stuck() -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            stopped.set()

    plan = await planned(ToolRound.from_openai(turn(("c1", "stuck", "{}")), Toolset(stuck).view()))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(plan.run_pending)
            await started.wait()
            tasks.cancel_scope.cancel()
    assert stopped.is_set()
    assert answers(plan, [CallResult.of(plan.pending[0], "given up")]) == {"c1": "given up"}


@pytest.mark.parametrize("limits", [{"timeout": 0}, {"timeout": float("nan")}, {"concurrency": 0}])
async def test_a11_limits_that_allow_nothing_are_refused(limits: dict[str, Any]):
    plan = await planned(two_calls())
    with pytest.raises(RoundError, match="positive"):
        await plan.run_pending(**limits)
    assert plan.state == "open"


def executing(execute: Any, **changes: Any) -> ToolView:
    """The tool `weather`, with something else behind it."""
    return ToolView([replace(VIEW["weather"], execute=execute, output=None, **changes)])


WEATHER = turn(("c1", "weather", '{"city": "Oslo"}'))


async def run_weather(execute: Any, **changes: Any) -> str:
    plan = await planned(ToolRound.from_openai(WEATHER, executing(execute, **changes)))
    return answers(plan, await plan.run_pending())["c1"]


async def test_a11_a_protocol_error_of_a_mounted_server_is_that_calls_result():
    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        raise UpstreamProtocolError("met", -32000, "storm at the station")

    assert await run_weather(execute) == "Error: met: storm at the station"


async def test_f22_a_result_that_breaks_the_tools_own_schema_is_an_error():
    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_structured({"result": "three"})

    view = ToolView([replace(VIEW["add"], execute=execute)])
    plan = await planned(ToolRound.from_openai(turn(("c1", "add", '{"a": 1, "b": 2}')), view))
    assert "does not fit its output schema" in answers(plan, await plan.run_pending())["c1"]


async def test_a14_a_tool_that_asks_for_input_that_nobody_can_give_is_an_error():
    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult({"resultType": "inputRequired", "inputRequests": {}})

    assert (await run_weather(execute)).startswith("Error: weather asks for input")


async def test_l14_a_tool_that_changes_its_arguments_changes_nothing_else():
    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        call.arguments.clear()
        return ToolResult.of_text("done")

    plan = await planned(ToolRound.from_openai(WEATHER, executing(execute)))
    results = await plan.run_pending()
    assert plan.pending[0].arguments == {"city": "Oslo"}
    assert answers(plan, results) == {"c1": "done"}


async def test_l14_messages_are_copies_on_the_way_in_and_out():
    message = turn(("c1", "add", '{"a": 1, "b": 2}'))
    plan = await planned(ToolRound.from_openai(message, VIEW))
    message["tool_calls"].clear()
    committed = plan.commit(await plan.run_pending())
    committed.to_openai()[0]["tool_calls"].clear()
    assert committed.to_openai()[0] == turn(("c1", "add", '{"a": 1, "b": 2}'))


async def test_o7_content_that_is_no_text_is_named_and_structured_content_is_json():
    async def mixed(call: ToolCall, context: ToolContext) -> ToolResult:
        resource = {"type": "resource", "resource": {"uri": "x:1", "text": "inside"}}
        link = {"type": "resource_link", "uri": "x:2", "name": "two"}
        return ToolResult.of_content(
            [
                {"type": "text", "text": "see"},
                {"type": "image", "mimeType": "image/png", "data": ""},
                resource,
                link,
            ]
        )

    async def structured(call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult({"content": [], "structuredContent": {"sky": "blå"}})

    assert await run_weather(mixed) == "see\n[image/png: not shown here]\ninside\nx:2"
    assert await run_weather(structured) == '{"sky": "blå"}'


async def test_x1_the_gate_is_asked_before_the_hooks_so_that_no_hook_answers_around_it():
    def gate(call: ToolCall, context: ToolContext) -> None:
        raise GrantError("weather needs a grant")

    round = ToolRound.from_openai(WEATHER, executing(VIEW["weather"].execute, gate=gate))
    plan = await planned(round, deciding("weather", Complete("from the cache")))
    assert plan.handled == ()
    assert answers(plan, await plan.run_pending()) == {"c1": "Rejected: weather needs a grant"}


async def test_x8_a_calling_tool_does_not_go_around_the_hooks_of_the_tool_it_stands_for():
    def redirect(call: ToolCall, context: ToolContext) -> ToolCall:
        return ToolCall("weather", dict(call.arguments), call.id)

    by_grant = replace(VIEW["weather"], name="call_tool", redirect=redirect)
    view = ToolView([by_grant, replace(VIEW["weather"], deferred=True)])
    message = turn(("c1", "call_tool", '{"city": "Oslo"}'))
    asked: list[str] = []
    hooks = deciding("weather", RunNormally({"city": "Bergen"}))

    @hooks.execution("*")
    async def note(call: ToolCall, input: dict[str, Any]) -> Any:
        asked.append(call.name)
        return RunNormally(input)

    plan = await planned(ToolRound.from_openai(message, view), hooks)
    plan = await plan.apply(HookSet())
    assert answers(plan, await plan.run_pending()) == {"c1": "sunny in Bergen"}
    assert asked == ["weather"]


async def test_a11_a_calling_tool_that_stands_for_nothing_is_that_calls_error():
    def redirect(call: ToolCall, context: ToolContext) -> ToolCall:
        return replace(call, name="nowhere")

    told = await run_weather(VIEW["weather"].execute, redirect=redirect)
    assert told == "Error: Unknown tool: nowhere"


async def test_l3_an_output_without_a_json_form_is_refused():
    plan = await planned(two_calls())
    with pytest.raises(RoundError, match="no JSON form"):
        CallResult.of(plan.pending[0], object())
