"""Observers are told what came of each call, and a call that nobody observes does nothing for it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable
from types import FrameType
from typing import Any

import anyio
import pytest
from tests.support.calling import tool_table

from mcp_toolset import (
    AskUser,
    CallReport,
    HookSet,
    Reject,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolResult,
    Toolset,
    tool,
)
from mcp_toolset.errors import DefinitionError, PermissionDeniedError, UnknownToolError, UpstreamProtocolError
from mcp_toolset.middleware import CallNext, PermissionChecker

pytestmark = pytest.mark.anyio
SECRET = "s3cret-of-the-caller"


@tool
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
async def fail(text: str) -> str:
    """Fail."""
    raise ValueError(f"no {text}")


@tool
async def wait() -> str:
    """Wait for ever."""
    await anyio.sleep_forever()
    return ""


@tool
async def seat() -> str | AskUser:
    """Ask for a seat."""
    return AskUser("which seat?")


@tool(manual=True)
async def pay(amount: int) -> str:
    """Pay; the application does it."""
    raise AssertionError


TOOLS = Toolset(add, fail, wait, seat, pay)


class Heard(list[CallReport]):
    """An observer that keeps what it is told."""

    def __call__(self, report: CallReport) -> None:
        self.append(report)

    @property
    def told(self) -> list[tuple[str, str, str, bool]]:
        return [(report.tool, report.outcome, report.reason, report.ran) for report in self]


class Caller(ToolContext):
    """Somebody on a wire."""

    session = "s1"
    principal = "ann"
    protocol_version = "2025-11-25"


def dispatch(heard: Heard, **rules: Any) -> Any:
    return tool_table(TOOLS.view().values(), rules=Rules(observers=[heard], **rules))


async def test_u60_an_observer_is_told_of_results_errors_and_refusals():
    heard = Heard()
    table = dispatch(heard)
    await table.call(ToolCall("add", {"a": 1}, "c1"), Caller())
    await table.call(ToolCall("fail", {"text": SECRET}), Caller())
    await table.call(ToolCall("add", {"a": SECRET}), Caller())
    with pytest.raises(UnknownToolError):
        await table.call(ToolCall("ad", {"a": 1}), Caller())
    assert heard.told == [
        ("add", "result", "", True),
        ("fail", "error", "", True),
        ("add", "refused", "invalid arguments", False),
        ("", "refused", "unknown tool", False),
    ]
    assert [report.called for report in heard] == ["add", "fail", "add", "ad"]
    assert SECRET not in repr(heard)
    first = heard[0]
    assert (first.id, first.session, first.principal) == ("c1", "s1", "ann")
    assert (first.protocol_version, first.server, first.round) == ("2025-11-25", "", "")
    assert first.duration >= 0 and first.started > 1_600_000_000


async def test_u60_hooks_and_middleware_that_answer_or_refuse_are_told_and_the_tool_did_not_run():
    hooks, heard = HookSet(), Heard()

    @hooks.execution("add")
    async def small(call: ToolCall, input: dict[str, Any]) -> RunNormally | Reject:
        return RunNormally(input) if input["a"] < 10 else Reject("too big")

    async def answering(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        return ToolResult.of_text("kept") if call.arguments.get("b") == 7 else await next()

    async def broken(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        raise RuntimeError(SECRET)

    async def denying(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        raise PermissionDeniedError(SECRET)

    table = dispatch(
        heard,
        hooks=hooks,
        middleware=[answering],
        tool_middleware={"fail": [broken], "wait": [denying], "seat": [PermissionChecker(lambda _: "deny")]},
    )
    for call in ({"a": 1}, {"a": 11}, {"a": 1, "b": 7}):
        await table.call(ToolCall("add", call))
    for name, arguments in (("fail", {"text": "x"}), ("wait", {}), ("seat", {})):
        await table.call(ToolCall(name, arguments))
    assert heard.told == [
        ("add", "result", "", True),
        ("add", "refused", "too big", False),
        ("add", "result", "", False),
        ("fail", "error", "RuntimeError", False),
        ("wait", "refused", "permission denied", False),
        ("seat", "refused", "seat is not permitted by the policy of this server", False),
    ]
    assert [report.decisions for report in heard[:3]] == [("RunNormally",), ("Reject",), ()]
    assert SECRET not in repr(heard)


async def test_u60_a_middleware_that_fails_by_a_cancelled_task_of_its_own_is_an_error():
    heard = Heard()

    async def waiting(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        raise asyncio.CancelledError

    assert (await dispatch(heard, middleware=[waiting]).call(ToolCall("add", {"a": 1}))).is_error
    assert heard.told == [("add", "error", "", False)]


async def test_u60_a_cancelled_call_a_question_and_a_protocol_error_are_told():
    heard = Heard()

    async def no(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        raise UpstreamProtocolError("erp", -32000, "no")

    table = dispatch(heard, tool_middleware={"fail": [no]})
    with anyio.move_on_after(0):
        await table.call(ToolCall("wait", {}))
    await table.call(ToolCall("seat", {}))
    with pytest.raises(UpstreamProtocolError):
        await table.call(ToolCall("fail", {"text": ""}))
    assert heard.told == [
        ("wait", "cancelled", "", True),
        ("seat", "asked", "", True),
        ("fail", "error", "UpstreamProtocolError", False),
    ]


@pytest.mark.needs("model_loop")
async def test_u60_a_round_tells_of_calls_that_ran_were_refused_by_hooks_or_are_invalid():
    from mcp_toolset.rounds import ToolRound

    hooks, heard = HookSet(), Heard()

    @hooks.execution("fail")
    async def never(call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject("never")

    @hooks.execution("wait")
    async def edited(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally({SECRET: 1})

    calls = [
        ToolCall("add", {"a": 1}, "c1"),
        ToolCall("fail", {"text": "x"}, "c2"),
        ToolCall("wait", {}, "c3"),
        ToolCall("pay", {"amount": 1}, "c4"),
        ToolCall("add", {"a": SECRET}, "c5"),
        ToolCall("ad", {}, "c6"),
    ]
    plan = await ToolRound.from_calls(calls, TOOLS.view()).apply(Rules(hooks=hooks, observers=[heard]))
    await plan.run_pending()
    plan.submit("c4", "paid")
    assert {(report.id, *told) for report, told in zip(heard, heard.told, strict=True)} == {
        ("c1", "add", "result", "", True),
        ("c2", "fail", "refused", "never", False),
        ("c3", "wait", "refused", "invalid arguments", False),
        ("c4", "pay", "result", "", False),
        ("c5", "add", "refused", "invalid arguments", False),
        ("c6", "", "refused", "unknown tool", False),
    }
    (round,) = {report.round for report in heard}
    assert len(round) == 16
    assert SECRET not in repr(heard)
    stored = ToolRound.from_state(plan.to_state(), TOOLS.view(), rules=Rules(hooks=hooks))
    assert stored.plan.progress.id == round


@pytest.mark.needs("model_loop")
async def test_u60_a_call_of_a_round_that_asks_is_told_again_when_it_is_answered():
    from mcp_toolset.rounds import ToolRound

    heard = Heard()
    rules = Rules(middleware=[PermissionChecker(lambda call: "ask")], observers=[heard])
    plan = await ToolRound.from_calls([ToolCall("add", {"a": 1}, "c1")], TOOLS.view()).apply(rules)
    report = await plan.run_pending()
    plan.answer(report.questions[0].id, True)
    await plan.run_pending()
    assert heard.told == [("add", "asked", "", False), ("add", "result", "", True)]


async def test_u60_one_call_from_python_is_told_and_merged_rules_tell_all_observers():
    first, second = Heard(), Heard()
    rules = Rules(observers=[first]).merged(Rules(observers=[second]))
    await TOOLS.execute("add", {"a": 1}, rules=rules)
    assert first.told == second.told == [("add", "result", "", True)]


async def test_u60_an_observer_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture):
    heard = Heard()

    def broken(report: CallReport) -> None:
        raise ValueError("no")

    table = tool_table(TOOLS.view().values(), rules=Rules(observers=[broken, heard]))
    with caplog.at_level(logging.ERROR, "mcp_toolset.calls"):
        assert (await table.call(ToolCall("add", {"a": 1}))).structured == {"result": 2}
    assert len(heard) == 1 and "raised" in caplog.text


async def waiting(report: CallReport) -> None:
    raise AssertionError


class Waiting:
    async def __call__(self, report: CallReport) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    "observers", ["text", Heard, [waiting], [Waiting()], [3], [Heard]], ids=lambda one: repr(one)[:20]
)
def test_u60_what_cannot_be_an_observer_is_refused_where_it_is_given(observers: Any):
    with pytest.raises(DefinitionError, match="observer"):
        Rules(observers=observers)


async def calls_of(run: Awaitable[object]) -> list[str]:
    """The functions of the package that are called, by name."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "mcp_toolset" in frame.f_code.co_filename:
            found.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        await run
    finally:
        sys.setprofile(None)
    return found


async def test_u60_a_call_that_nobody_observes_runs_no_function_for_it():
    call, context = ToolCall("add", {"a": 1}), Caller()
    await tool_table(TOOLS.view().values()).call(call, context)  # the first call loads what all need
    quiet = await calls_of(tool_table(TOOLS.view().values()).call(call, context))
    heard = Heard()
    loud = await calls_of(dispatch(heard).call(call, context))
    assert len(heard) == 1
    assert len(quiet) < len(loud)
