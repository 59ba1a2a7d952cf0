import datetime
import json
from dataclasses import replace
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from tests.support.calling import listed, tool_table

from mcp_toolset import (
    AskUser,
    Complete,
    Halt,
    HookSet,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolResult,
    tool,
)
from mcp_toolset.errors import (
    GrantError,
    PermissionDeniedError,
    ToolExecutionError,
    UnknownToolError,
    UpstreamProtocolError,
    UpstreamTimeoutError,
)
from mcp_toolset.middleware import CallNext

pytestmark = pytest.mark.anyio

OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Report(BaseModel):
    n: int


def binding(answer: Any, name: str = "probe", **options: Any) -> ToolBinding:
    """A binding that gives an answer or raises it."""

    async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
        if isinstance(answer, BaseException):
            raise answer
        given: Any = answer(call) if callable(answer) else answer
        return given

    definition = ToolDefinition(name, output_schema=options.pop("output", None))
    return listed(definition, execute, **options)


async def call(*bindings: ToolBinding, name: str = "probe", hooks: HookSet | None = None) -> ToolResult:
    with anyio.fail_after(30):
        return await tool_table(bindings, hooks=hooks).call(ToolCall(name, {}))


def answering(output: Any) -> HookSet:
    hooks = HookSet()

    @hooks.execution("*")
    async def answer(call: ToolCall, input: dict[str, Any]) -> Any:
        return Complete(output)

    return hooks


async def test_f34_an_unknown_tool_is_raised_by_its_name():
    with pytest.raises(UnknownToolError, match="Unknown tool: other"):
        await call(binding(ToolResult({})), name="other")


async def test_h2_arguments_are_checked_before_anything_runs():
    ran: list[str] = []

    @tool
    async def add(a: int, b: int = 0) -> int:
        ran.append("tool")
        return a + b

    async def note(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
        ran.append("middleware")
        return await next()

    dispatch = tool_table([add.bind()], middleware=[note])
    for arguments in ({}, {"a": "1"}, {"a": 1, "c": 2}, {"a": None}, {"a": 1.5}):
        result = await dispatch.call(ToolCall("add", arguments))
        assert result.is_error and result.text.startswith("Invalid arguments for add: ")
    assert ran == []
    assert (await dispatch.call(ToolCall("add", {"a": 1}))).structured == {"result": 1}


async def test_h2_arguments_that_no_json_can_carry_are_invalid_and_not_a_fault_of_the_server():
    @tool
    async def echo(text: str) -> str:
        return text

    for arguments in ({"text": datetime.date(2020, 1, 1)}, {"\ud800": 1}, {1: 2}):
        result = await tool_table([echo.bind()]).call(ToolCall("echo", arguments))  # type: ignore[arg-type]
        assert result.is_error and "Invalid arguments for echo: no JSON can carry this" in result.text


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (ValueError("the disk is full"), "probe failed: the disk is full"),
        (ValueError(), "probe failed: ValueError"),
        (KeyError("x"), "probe failed: 'x'"),
        (StopAsyncIteration("x"), "probe failed: x"),
        (SystemExit(3), "probe failed: 3"),
        (SystemExit(), "probe failed: SystemExit"),
        (UnknownToolError("inner"), "probe failed: Unknown tool: inner"),
        (ToolExecutionError("own words"), "own words"),
        (PermissionDeniedError("not you"), "not you"),
        (GrantError("no grant"), "no grant"),
        (UpstreamTimeoutError("erp", "no answer"), "erp: no answer"),
    ],
    ids=repr,
)
async def test_n7_what_a_handler_raises_is_a_result_that_the_model_can_read(fault: BaseException, text: str):
    result = await call(binding(fault))
    assert (result.is_error, result.text) == (True, text)


async def test_n7_a_protocol_error_of_a_mounted_server_is_passed_on():
    fault = UpstreamProtocolError("erp", -32000, "no", {"why": 1})
    with pytest.raises(UpstreamProtocolError) as raised:
        await call(binding(fault))
    assert raised.value is fault


async def test_n7_cancellation_is_not_swallowed():
    started = anyio.Event()

    async def hang(call: ToolCall, context: ToolContext) -> ToolResult:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError

    dispatch = tool_table([replace(binding(None), execute=hang)])
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(dispatch.call, ToolCall("probe", {}))
            await started.wait()
            group.cancel_scope.cancel()
    assert group.cancel_scope.cancelled_caught


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        ({"content": []}, "declares an output schema and returned no structured content"),
        ({"structuredContent": {"n": "x"}}, "does not fit its output schema: n:"),
        ({"structuredContent": None}, "does not fit its output schema"),
    ],
)
async def test_f22_a_result_that_breaks_the_promise_is_an_error_that_says_whose(wire: Any, says: str):
    result = await call(binding(ToolResult(wire), output=OUTPUT, source="erp"))
    assert result.is_error and says in result.text
    assert result.text.startswith("erp: probe ")


@pytest.mark.parametrize(
    "wire",
    [
        {"structuredContent": {"n": 1}},
        {"content": [], "isError": True},
        {"resultType": "input_required", "inputRequests": {}},
    ],
)
async def test_f22_kept_promises_errors_and_open_questions_pass_unchanged(wire: Any):
    result = ToolResult(wire)
    assert await call(binding(result, output=OUTPUT)) is result


@pytest.mark.parametrize(
    ("output", "structured"),
    [({"n": 1}, {"n": 1}), (Report(n=2), {"n": 2}), (ToolResult.of_structured({"n": 3}), {"n": 3})],
)
async def test_f22_a_hooks_answer_keeps_the_tools_promise(output: Any, structured: Any):
    result = await call(binding(None, output=OUTPUT), hooks=answering(output))
    assert result.structured == structured
    json.dumps(result.wire, allow_nan=False)


@pytest.mark.parametrize("output", [5, [1], "five", None])
async def test_f22_a_hooks_answer_is_wrapped_as_the_functions_own_would_be(output: Any):
    @tool
    async def give() -> int | list[int] | str | None:
        raise AssertionError("not to be run")

    wrapped = replace(give.bind(), name="probe")
    assert wrapped.output is not None
    result = await call(wrapped, hooks=answering(output))
    assert not result.is_error and result.structured == {"result": output}


@pytest.mark.parametrize("output", ["text", {"n": "x"}, None, object(), ToolResult.of_text("text")])
async def test_f22_a_hooks_answer_that_breaks_the_promise_is_an_error(output: Any):
    result = await call(binding(None, output=OUTPUT), hooks=answering(output))
    assert result.is_error and "probe" in result.text


@pytest.mark.parametrize(("output", "text"), [("hi", "hi"), ({"a": 1}, '{"a":1}'), (5, "5"), (None, "null")])
async def test_l17_a_hooks_answer_for_a_tool_that_promises_nothing(output: Any, text: str):
    assert (await call(binding(None), hooks=answering(output))).text == text


async def test_l17_a_hooks_answer_without_a_json_form_is_an_error():
    result = await call(binding(None), hooks=answering(object()))
    assert result.is_error and "a value that has no JSON form" in result.text


async def test_f35_a_gate_refuses_before_arguments_are_looked_at():
    def gate(call: ToolCall, context: ToolContext) -> None:
        raise GrantError("no grant")

    gated = replace(binding(AssertionError()), gate=gate)
    result = await tool_table([gated]).call(ToolCall("probe", {"wrong": 1}))
    assert (result.is_error, result.text) == (True, "no grant")


async def test_f35_a_gate_that_is_broken_stays_closed():
    def gate(call: ToolCall, context: ToolContext) -> None:
        raise RuntimeError("store is gone")

    result = await call(replace(binding(AssertionError()), gate=gate))
    assert result.is_error and "store is gone" not in result.text


def standing_for(name: str) -> Any:
    return lambda call, context: ToolCall(name, call.arguments, call.id)


async def test_x1_a_calling_tool_stands_for_another_through_its_gate_and_checks():
    seen: list[ToolCall] = []

    def gate(call: ToolCall, context: ToolContext) -> None:
        seen.append(call)

    target = replace(binding(ToolResult.of_text("target"), "target"), gate=gate)
    caller = replace(binding(AssertionError()), redirect=standing_for("target"))
    assert (await call(caller, target)).text == "target"
    assert [one.name for one in seen] == ["target"]


async def test_x1_a_calling_tool_never_stands_for_a_calling_tool():
    loop = replace(binding(AssertionError()), redirect=standing_for("probe"))
    with pytest.raises(UnknownToolError):
        await call(loop)


async def test_a11_a_tool_with_a_limit_of_its_own_is_cancelled_and_said_so() -> None:
    stopped = anyio.Event()

    @tool(timeout=0.05)
    async def slow() -> int:
        """Take for ever."""
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        return 1

    with anyio.fail_after(30):
        result = await tool_table([slow.bind()]).call(ToolCall("slow", {}))
    assert result.is_error and result.text == "slow gave no answer within 0.05 s and was stopped"
    assert stopped.is_set()


async def test_a5_questions_and_halts_need_not_fit_a_promised_output() -> None:
    @tool
    def ask() -> int | AskUser:
        """Ask."""
        return AskUser("how many?")

    @tool
    def stop() -> int | Halt:
        """Stop."""
        return Halt("enough")

    dispatch = tool_table([ask.bind(), stop.bind()])
    asked = await dispatch.call(ToolCall("ask", {}))
    assert asked.ask == AskUser("how many?") and not asked.is_error
    stopped = await dispatch.call(ToolCall("stop", {}))
    assert stopped.halt == Halt("enough") and not stopped.is_error
