import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from tests.support.calling import tool_table

from mcp_toolset import Complete, HookSet, Reject, RunNormally, ToolCall, ToolResult, tool

pytestmark = pytest.mark.anyio


class Span(trace.NonRecordingSpan):
    """A span that keeps its events, as one of the SDK does; the package depends on the interface alone."""

    def __init__(self, *, recording: bool = True) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.recording = recording
        self.events: list[tuple[str, Mapping[str, Any]]] = []

    def is_recording(self) -> bool:
        return self.recording

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        self.events.append((name, attributes))


@contextmanager
def traced(*, recording: bool = True) -> Iterator[Span]:
    span = Span(recording=recording)
    with trace.use_span(span):
        yield span


def deciding(decision: Any) -> HookSet:
    hooks = HookSet(timeout=0.01)

    @hooks.execution("weather")
    async def decide(call: ToolCall, input: dict[str, Any]) -> Any:
        if isinstance(decision, BaseException):
            raise decision
        if not isinstance(decision, RunNormally | Complete | Reject):
            await anyio.sleep_forever()
            raise AssertionError
        return decision

    return hooks


async def call(hooks: HookSet, *middleware: Any, city: str = "Oslo") -> ToolResult:
    @tool
    async def weather(city: str) -> str:
        return f"sunny in {city}"

    dispatch = tool_table([weather.bind()], hooks=hooks, middleware=middleware)
    with anyio.fail_after(30):
        return await dispatch.call(ToolCall("weather", {"city": city}, "c1"))


DECISIONS: list[tuple[Any, str, dict[str, Any], str]] = [
    (RunNormally({"city": "Rome"}), "RunNormally", {"city": "Rome"}, ""),
    (Complete("x"), "Complete", {"city": "Oslo"}, ""),
    (Reject("no"), "Reject", {"city": "Oslo"}, "no"),
    (ValueError("bug"), "Reject", {"city": "Oslo"}, "the check of weather failed, so it was not run"),
    (None, "Reject", {"city": "Oslo"}, "the check of weather gave no answer in 0.01 s; try again later"),
]


@pytest.mark.parametrize(("decision", "name", "effective", "reason"), DECISIONS)
async def test_l20_a_decision_is_logged_and_is_an_event_on_the_current_span(
    decision: Any, name: str, effective: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
):
    with traced() as span, caplog.at_level(logging.INFO, "mcp_toolset.hooks"):
        await call(deciding(decision))
    (record,) = [one for one in caplog.records if one.levelno == logging.INFO]
    assert (record.name, record.getMessage()) == ("mcp_toolset.hooks", f"weather (call c1): {name}")
    fields = vars(record)
    assert (fields["tool"], fields["call_id"], fields["decision"]) == ("weather", "c1", name)
    assert (fields["effective_input"], fields["reason"]) == (effective, reason)
    ((event, attributes),) = span.events
    assert event == "mcp_toolset.decision"
    assert json.loads(attributes["gen_ai.tool.call.arguments"]) == effective
    rest = {key: value for key, value in attributes.items() if key != "gen_ai.tool.call.arguments"}
    expected = {"gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "c1", "mcp_toolset.decision": name}
    assert rest == (expected | {"mcp_toolset.reason": reason} if reason else expected)


async def test_l20_values_of_arguments_are_in_no_text_above_debugging(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG, "mcp_toolset.hooks"):
        await call(deciding(RunNormally({"city": "hush"})), city="hush")
    texts = {record.levelno: record.getMessage() for record in caplog.records}
    assert "hush" not in texts[logging.INFO]
    assert texts[logging.DEBUG] == "weather (call c1): effective input {'city': 'hush'}"


async def test_l20_a_span_that_does_not_record_is_left_alone():
    with traced(recording=False) as span:
        await call(deciding(Reject("no")))
    assert span.events == []


async def test_l20_decisions_of_result_hooks_are_recorded_too():
    hooks = HookSet()

    @hooks.result("weather")
    async def keep(call: ToolCall, result: ToolResult) -> None: ...

    @hooks.result("weather")
    async def change(call: ToolCall, result: ToolResult) -> ToolResult:
        return ToolResult.of_text("changed")

    @hooks.result("weather")
    async def fail(call: ToolCall, result: ToolResult) -> ToolResult:
        raise ValueError

    with traced() as span:
        await call(hooks)
    decisions = [attributes["mcp_toolset.decision"] for _, attributes in span.events]
    assert decisions == ["ResultKept", "ResultChanged", "ResultWithheld"]


@pytest.mark.needs("limits")
async def test_l20_a_refusal_by_a_limit_is_recorded_too():
    from mcp_toolset.middleware import RateLimit

    limit = RateLimit(1, 60)
    await call(HookSet(), limit)
    with traced() as span:
        await call(HookSet(), limit)
    ((_, attributes),) = span.events
    assert attributes["mcp_toolset.decision"] == "Reject"
    assert "limited to 1 call in 60 s" in attributes["mcp_toolset.reason"]
