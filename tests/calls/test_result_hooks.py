from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.calling import listed, tool_table

from mcp_toolset import (
    Complete,
    HookSet,
    Reject,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolResult,
    rejection_reason,
)
from mcp_toolset.errors import (
    CallError,
    DefinitionError,
    RetrySuggestedError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
)
from mcp_toolset.middleware import CallNext

pytestmark = pytest.mark.anyio

OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CONTEXT = ToolContext()
SECRET = "the password is 1234"


class Probe:
    """A tool that answers or raises what it is told to."""

    def __init__(self, answer: Any = None, *, output: Any = None) -> None:
        self.answer = ToolResult.of_text(SECRET) if answer is None else answer
        self.ran: list[dict[str, Any]] = []
        self.definition = ToolDefinition("probe", output_schema=output)

    async def _execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        self.ran.append(call.arguments)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def call(self, hooks: HookSet, *middleware: Any, context: ToolContext = CONTEXT) -> ToolResult:
        bound = listed(self.definition, self._execute)
        dispatch = tool_table([bound], hooks=hooks, middleware=middleware)
        with anyio.fail_after(30):
            return await dispatch.call(ToolCall("probe", {"a": 1}, "c1"), context)


class Seen:
    """A hook set that notes the results it is shown, and answers with what it is told to."""

    def __init__(self, answer: Any = None, **options: Any) -> None:
        self.results: list[ToolResult] = []
        self.calls: list[ToolCall] = []
        self.hooks = HookSet(**options)

        @self.hooks.result("probe")
        async def look(call: ToolCall, result: ToolResult) -> ToolResult | None:
            self.calls.append(call)
            self.results.append(result)
            if isinstance(answer, BaseException):
                raise answer
            return answer

    def deciding(self, decision: Any) -> HookSet:
        @self.hooks.execution("probe")
        async def decide(call: ToolCall, input: dict[str, Any]) -> Any:
            return decision

        return self.hooks


async def test_o9_none_keeps_the_result_and_another_takes_its_place():
    probe = Probe()
    assert await probe.call(Seen().hooks) is probe.answer
    other = ToolResult.of_text("[redacted]")
    assert await probe.call(Seen(other).hooks) is other


@given(st.lists(st.sampled_from(["keep", "add"]), max_size=6))
async def test_o9_hooks_are_asked_in_the_order_of_registration(steps: list[str]):
    hooks, expected = HookSet(), SECRET

    def register(number: int, step: str) -> None:
        @hooks.result("*" if number % 2 else "probe")
        async def hook(call: ToolCall, result: ToolResult) -> ToolResult | None:
            return None if step == "keep" else ToolResult.of_text(f"{result.text} {number}")

    for number, step in enumerate(steps):
        register(number, step)
        expected += "" if step == "keep" else f" {number}"
    assert (await Probe().call(hooks)).text == expected


async def test_o9_a_handled_call_is_seen_too():
    seen, probe = Seen(ToolResult.of_text("changed")), Probe()
    assert (await probe.call(seen.deciding(Complete("cached")))).text == "changed"
    assert [result.text for result in seen.results] == ["cached"] and probe.ran == []


async def test_o9_a_rejected_call_is_seen_too_and_stays_rejected():
    seen, probe = Seen(), Probe()
    result = await probe.call(seen.deciding(Reject("not today")))
    reason = rejection_reason(result)
    assert reason is not None and reason.reason == "not today"
    assert seen.results == [result] and probe.ran == []


@pytest.mark.parametrize("failure", [CallError("no"), RuntimeError("no"), UpstreamTimeoutError("up", "no")])
async def test_o9_a_failed_call_is_seen_as_its_error_result(failure: Exception):
    seen = Seen()
    result = await Probe(failure).call(seen.hooks)
    assert [shown.wire for shown in seen.results] == [result.wire]
    assert result.is_error and result.text.endswith("no")
    replaced = await Probe(failure).call(Seen(ToolResult.of_text("try elsewhere")).hooks)
    assert not replaced.is_error and replaced.text == "try elsewhere"


async def test_o9_an_error_that_no_hook_has_changed_reaches_the_middleware_as_it_was():
    fault, caught = RetrySuggestedError("busy", after=3), list[Exception]()

    async def catch(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        try:
            return await next()
        except CallError as raised:
            caught.append(raised)
            raise

    seen = Seen()
    result = await Probe(fault).call(seen.hooks, catch)
    assert caught == [fault] and result.wire["_meta"]["mcp-toolset/retry"] == {"after": 3}
    assert seen.results[0].wire == result.wire


async def test_o9_an_edit_that_does_not_fit_is_seen_as_its_error():
    seen, probe = Seen(), Probe()
    probe.definition = ToolDefinition(
        "probe", input_schema={"type": "object", "properties": {"a": {"type": "integer"}}}
    )
    result = await probe.call(seen.deciding(RunNormally({"a": "x"})))
    assert "Invalid arguments" in seen.results[0].text == result.text and probe.ran == []


async def test_o9_the_call_has_the_arguments_that_ran_and_those_that_were_sent():
    seen, probe = Seen(), Probe()
    await probe.call(seen.deciding(RunNormally({"a": 2})))
    (call,) = seen.calls
    assert (call.arguments, call.original, call.id) == ({"a": 2}, {"a": 1}, "c1")
    call.arguments["a"] = 3
    assert probe.ran == [{"a": 2}]


@pytest.mark.parametrize("fault", [ValueError(SECRET), SystemExit(1), ExceptionGroup(SECRET, [OSError()])])
async def test_o9_a_hook_that_raises_withholds_the_result(fault: BaseException):
    result = await Probe().call(Seen(fault).hooks)
    assert result.wire == ToolResult.of_error("the result of probe is withheld: its check failed").wire


@pytest.mark.parametrize("answer", [True, "fine", {"content": []}, ToolResult, Complete("x")])
async def test_o9_a_hook_that_returns_no_result_withholds_it(answer: Any):
    result = await Probe().call(Seen(answer).hooks)
    assert result.is_error and SECRET not in result.text


async def test_o9_a_hook_that_hangs_is_ended_at_its_deadline_and_withholds_the_result():
    hooks, ended = HookSet(timeout=0.01), anyio.Event()

    @hooks.result("probe")
    async def hang(call: ToolCall, result: ToolResult) -> ToolResult | None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    result = await Probe().call(hooks)
    assert result.text == "the result of probe is withheld: its check gave no answer in 0.01 s"
    assert result.is_error and ended.is_set()


async def test_o9_later_hooks_see_only_that_the_result_is_withheld():
    later = Seen()
    await Probe().call(Seen(ValueError()).hooks.merged(later.hooks))
    assert "withheld" in later.results[0].text and SECRET not in str(later.results[0].wire)


async def test_o9_middleware_is_outside():
    inside: list[str] = []

    async def look(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        result = await next()
        inside.append(result.text)
        return result

    await Probe().call(Seen(ToolResult.of_text("[redacted]")).hooks, look)
    assert inside == ["[redacted]"]


async def test_f22_a_changed_result_must_keep_the_promise_of_the_output_schema():
    promised = ToolResult.of_structured({"n": 1})
    assert await Probe(promised, output=OUTPUT).call(Seen().hooks) is promised
    good = ToolResult.of_structured({"n": 2})
    assert await Probe(promised, output=OUTPUT).call(Seen(good).hooks) is good
    refused = ToolResult.of_error("no")
    assert await Probe(promised, output=OUTPUT).call(Seen(refused).hooks) is refused
    for bad in (ToolResult.of_text("[redacted]"), ToolResult.of_structured({"n": "x"})):
        result = await Probe(promised, output=OUTPUT).call(Seen(bad).hooks)
        assert result.is_error and "a result hook returned an invalid result" in result.text


async def test_o9_a_broken_result_of_the_tool_is_seen_as_its_error():
    seen = Seen()
    result = await Probe(ToolResult.of_text("lost"), output=OUTPUT).call(seen.hooks)
    assert result.is_error and "returned no structured content" in seen.results[0].text


async def test_o9_what_is_no_result_is_not_shown():
    seen = Seen(ToolResult.of_text("changed"))
    waits = ToolResult({"resultType": "input_required", "inputRequests": {}})
    assert await Probe(waits).call(seen.hooks) is waits
    with pytest.raises(UpstreamProtocolError, match="gone"):
        await Probe(UpstreamProtocolError("up", -32000, "gone")).call(seen.hooks)
    assert seen.results == []


async def test_o9_a_hook_may_ask_for_the_context():
    hooks, contexts = HookSet(), list[ToolContext]()

    @hooks.result("*")
    async def look(call: ToolCall, result: ToolResult, context: ToolContext) -> None:
        contexts.append(context)

    await Probe().call(hooks)
    assert contexts == [CONTEXT]


async def test_o9_a_cancelled_call_is_shown_to_nobody():
    seen = Seen()

    async def hang(call: ToolCall, context: ToolContext) -> ToolResult:
        await anyio.sleep_forever()
        raise AssertionError

    definition = ToolDefinition("probe")
    dispatch = tool_table([listed(definition, hang)], hooks=seen.hooks)
    with anyio.move_on_after(0.01) as scope:
        await dispatch.call(ToolCall("probe", {}))
    assert scope.cancelled_caught and seen.results == []


async def short(result: ToolResult) -> None: ...


def sync(call: ToolCall, result: ToolResult) -> None: ...


@pytest.mark.parametrize(("hook", "says"), [(short, r"must take \(call, result\)"), (sync, "async def")])
def test_o9_a_function_that_cannot_be_a_result_hook_is_refused_at_once(hook: Any, says: str):
    with pytest.raises(DefinitionError, match=says):
        HookSet().result("probe")(hook)
