"""What the fixed tools make of calls that are not as their schemas say, and what they never make of them."""

from __future__ import annotations

import json
import logging
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.calling import Caller, listed, tool_table

from mcp_toolset import (
    CallReport,
    HookSet,
    Rules,
    RunNormally,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolResult,
)
from mcp_toolset.catalog.deferred.catalog import DeferredCatalog
from mcp_toolset.errors import UnknownToolError
from mcp_toolset.grants import GrantLedger

pytestmark = pytest.mark.anyio


ANN, BOB = Caller("ann"), Caller("bob")
SCHEMAS: dict[str, dict[str, Any]] = {
    "clock_convert": {
        "type": "object",
        "properties": {"time": {"type": "string"}, "timezone": {"type": "string"}},
        "required": ["time", "timezone"],
        "additionalProperties": False,
    },
    "users_create": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    },
    "db_export": {"type": "object", "properties": {"table": {"type": "string"}, "input": {"type": "object"}}},
    "any_run": {"type": "object"},
}


class Desk:
    """Four tools behind a table; `ran` is what reached them."""

    def __init__(self, observers: Any = (), hooks: HookSet | None = None) -> None:
        self.ran: list[tuple[str, dict[str, Any]]] = []
        self.calls: list[ToolCall] = []
        catalog = DeferredCatalog(GrantLedger(), scorer=None)
        catalog.update(map(self._tool, SCHEMAS))
        rules = Rules(hooks or HookSet(), (), {}, observers=tuple(observers))
        self.dispatch = tool_table(catalog.bindings(), rules=rules)
        self.handles = {(who, name): self._granted(name, who) for name in SCHEMAS for who in (ANN, BOB)}

    def _tool(self, name: str) -> ToolBinding:
        async def execute(call: ToolCall, context: ToolContext) -> ToolResult:
            self.ran.append((name, call.arguments))
            self.calls.append(call)
            return ToolResult.of_text("ran")

        definition = ToolDefinition(name, "Do it.", SCHEMAS[name])
        return listed(definition, execute, source=name.split("_")[0], deferred=True)

    def _granted(self, name: str, who: Caller) -> str:
        return self.said("resolve_tools", {"ids": [name]}, who).structured["tools"][0]["grant"]

    def said(self, name: str, arguments: dict[str, Any], who: Caller = ANN) -> ToolResult:
        async def call() -> ToolResult:
            with anyio.fail_after(30):
                return await self.dispatch.call(ToolCall(name, arguments), who)

        return anyio.run(call)


@pytest.fixture(scope="module")
def desk() -> Desk:
    return Desk()


CONVERT = {"time": "12:00", "timezone": "Asia/Tokyo"}


def test_u49_flat_arguments_are_those_of_the_tool(desk: Desk) -> None:
    handle = desk.handles[ANN, "clock_convert"]
    desk.ran.clear()
    desk.said("call_tool", {"grant": handle, **CONVERT})
    desk.said("call_tool", {"grant": handle, "arguments": {"time": "12:00"}, "timezone": "Asia/Tokyo"})
    assert desk.ran == [("clock_convert", CONVERT)] * 2


@pytest.mark.parametrize("key", ["arguments", "args", "params", "parameters", "input", "toolInput"])
@pytest.mark.parametrize("dumped", [False, True])
def test_u50_arguments_are_read_under_other_keys_and_out_of_a_text(
    desk: Desk, key: str, dumped: bool
) -> None:
    desk.ran.clear()
    sent = json.dumps(CONVERT) if dumped else CONVERT
    desk.said("call_tool", {"tool": "clock_convert", key: sent})
    assert desk.ran == [("clock_convert", CONVERT)]


@pytest.mark.parametrize(
    "sent", [{"ids": "any_run"}, {"id": "any_run"}, {"tool": "`any_run`"}, {"ids": '["any_run"]'}]
)
def test_u50_one_id_is_read_as_a_list_of_one(desk: Desk, sent: dict[str, Any]) -> None:
    assert [one["id"] for one in desk.said("resolve_tools", sent).structured["tools"]] == ["any_run"]
    assert desk.said("search_tools", {"q": "convert", "resolve": "1"}).structured["resolved"]


@pytest.mark.parametrize("around", ["`{}`", " {}\n", '"{}"', "'{}'", "`{}` "])
def test_u51_marks_around_a_handle_or_a_name_do_not_count(desk: Desk, around: str) -> None:
    desk.ran.clear()
    for reference in (desk.handles[ANN, "any_run"], "any_run"):
        assert not desk.said("call_tool", {"grant": around.format(reference)}).is_error
    assert desk.ran == [("any_run", {})] * 2


def test_u52_a_wrong_name_is_answered_with_the_right_one_the_signature_and_the_next_call(desk: Desk) -> None:
    handle = desk.handles[ANN, "clock_convert"]
    said = desk.said("call_tool", {"grant": handle, "arguments": {"time": "12:00", "tz": "UTC"}}).text
    assert "did you mean timezone for tz?" in said
    head, signature, following = said.split("\n")
    assert signature == "Signature: clock_convert(time: string, timezone: string)"
    name, _, arguments = following.removeprefix("Next: ").partition(" ")
    assert name == "call_tool" and "Invalid arguments for clock_convert" in head
    desk.ran.clear()
    assert not desk.said(name, json.loads(arguments)).is_error
    assert desk.ran == [("clock_convert", {"time": "12:00", "timezone": "UTC"})]


def test_m3_a_hook_that_spoils_the_arguments_is_not_told_to_the_model_as_its_own_fault() -> None:
    hooks = HookSet()

    @hooks.execution("clock_convert")
    async def spoil(call: ToolCall) -> RunNormally:
        return RunNormally({"secret": "of the hook"})

    spoiled = Desk(hooks=hooks)
    said = spoiled.said("call_tool", {"grant": "clock_convert", "arguments": CONVERT})
    assert said.is_error and "Next:" not in said.text


def test_m3_hooks_observers_and_the_log_are_told_what_was_repaired(caplog: pytest.LogCaptureFixture) -> None:
    reports: list[CallReport] = []
    desk = Desk(observers=[reports.append])
    with caplog.at_level(logging.INFO, "mcp_toolset.calls"):
        sent = {"tool": "`clock_convert`", "args": json.dumps(CONVERT)}
        desk.said("call_tool", sent)
    (call,) = desk.calls
    done = ("tool is read as grant", "args is read as arguments", "arguments is read as an object")
    assert (call.original, call.repairs, reports[-1].repairs) == (sent, done, done)
    assert "call_tool: arguments were repaired: tool is read as grant" in caplog.text
    assert "Asia/Tokyo" not in caplog.text
    desk.said("call_tool", {"grant": "clock_convert", "arguments": CONVERT})
    assert (desk.calls[-1].original, desk.calls[-1].repairs, reports[-1].repairs) == (None, (), ())


def test_m3_two_readings_are_both_shown_and_none_is_run(desk: Desk) -> None:
    desk.ran.clear()
    said = desk.said("call_tool", {"grant": "db_export", "input": {"table": "t"}})
    readings = [json.loads(line.partition("call_tool ")[2]) for line in said.text.split("\n")[1:]]
    assert [one["arguments"] for one in readings] == [{"table": "t"}, {"input": {"table": "t"}}]
    assert said.is_error and desk.ran == []


@pytest.mark.parametrize(
    "sent",
    [
        {"grant": "any_run", "name": "users_create", "arguments": {"age": 3}},
        {"grant": "any_run", "tool": "clock_convert"},
        {"id": "any_run", "tool": "users_create"},
        {"grant": "clock_convert", "name": "any_run", "arguments": CONVERT},
        {"grant": "never_granted", "name": "any_run"},
        {"grant": "", "name": "any_run"},
    ],
)
def test_m3_a_call_that_names_two_tools_runs_neither(desk: Desk, sent: dict[str, Any]) -> None:
    desk.ran.clear()
    assert desk.said("call_tool", sent).is_error
    assert desk.ran == []


def test_m3_a_parameter_that_is_called_like_a_key_of_ours_is_a_parameter(desk: Desk) -> None:
    desk.ran.clear()
    desk.said("call_tool", {"grant": "users_create", "name": "Bob", "age": 3})
    desk.said("call_tool", {"grant": "users_create", "arguments": {"name": "any_run", "age": 3}})
    assert desk.ran == [
        ("users_create", {"name": "Bob", "age": 3}),
        ("users_create", {"name": "any_run", "age": 3}),
    ]


# What forgiving never does, whatever is sent.

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["x", "any_run", "`users_create`", "{}", '{"age": 1}']),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["age", "name", "input"]), inner, max_size=2)
    ),
    max_leaves=4,
)
keys = st.sampled_from(
    [
        "grant",
        "arguments",
        "args",
        "name",
        "tool",
        "id",
        "input",
        "params",
        "server",
        "handle",
        "age",
        "table",
        "time",
    ]
)
fitting = {
    "clock_convert": st.fixed_dictionaries({"time": st.text(max_size=5), "timezone": st.text(max_size=5)}),
    "users_create": st.fixed_dictionaries(
        {},
        optional={
            "name": st.text(max_size=5),
            "age": st.integers(0, 9),
            "arguments": values,
            "grant": values,
        },
    ),
    "db_export": st.fixed_dictionaries(
        {}, optional={"table": st.text(max_size=5), "input": st.dictionaries(keys, values)}
    ),
    "any_run": st.dictionaries(keys, values, max_size=4),
}


@given(data=st.data(), name=st.sampled_from(sorted(SCHEMAS)), by_handle=st.booleans())
def test_m3_a_call_that_fits_is_passed_on_unchanged(
    desk: Desk, data: st.DataObject, name: str, by_handle: bool
) -> None:
    arguments = data.draw(fitting[name])
    desk.ran.clear()
    desk.calls.clear()
    desk.said("call_tool", {"grant": desk.handles[ANN, name] if by_handle else name, "arguments": arguments})
    assert desk.ran == [(name, arguments)]
    assert (desk.calls[0].original, desk.calls[0].repairs) == (None, ())


@given(
    sent=st.dictionaries(keys, values, max_size=4),
    name=st.sampled_from(sorted(SCHEMAS)),
    mark=st.sampled_from(["{}", "`{}`", " {} "]),
)
def test_m3_a_grant_never_runs_another_tool(desk: Desk, sent: dict[str, Any], name: str, mark: str) -> None:
    """With a grant in the call, only its tool runs; and every value that reaches it was sent."""
    desk.ran.clear()
    desk.said("call_tool", {**sent, "grant": mark.format(desk.handles[ANN, name])})
    assert {tool for tool, _ in desk.ran} <= {name}
    everything = json.dumps(sent)
    for _, arguments in desk.ran:
        assert all(key in everything for key in arguments)


@given(
    sent=st.dictionaries(keys, values, max_size=3),
    key=st.sampled_from(["grant", "handle", "tool", "id", "name"]),
)
def test_f34_no_shape_of_a_call_uses_the_grant_of_another(desk: Desk, sent: dict[str, Any], key: str) -> None:
    desk.ran.clear()
    others = {value for (who, _), value in desk.handles.items() if who is BOB}
    for handle in sorted(others):
        assert desk.said("call_tool", {**sent, "grant": "", key: handle}, Caller("eve")).is_error
    assert desk.ran == []


@given(
    tool=st.sampled_from(["search_tools", "resolve_tools", "call_tool", "call_read_only_tool"]),
    sent=st.dictionaries(keys | st.text(max_size=3), values, max_size=4),
)
def test_m3_whatever_is_sent_is_answered(desk: Desk, tool: str, sent: dict[str, Any]) -> None:
    said = desk.said(tool, sent, Caller("eve"))
    assert not said.is_error or "Next: " in said.text
    with pytest.raises(UnknownToolError):
        desk.said("users_create", sent, Caller("nobody who ever resolved a tool"))


def test_m3_hostile_shapes_are_answered_and_no_fault_of_the_server(desk: Desk) -> None:
    deep: Any = {}
    for _ in range(900):
        deep = {"a": deep}
    shapes: list[tuple[str, dict[str, Any]]] = [
        ("call_tool", {"grant": "clock_convert", "arguments": deep}),
        ("call_tool", {"grant": "clock_convert", "x": deep}),
        ("call_tool", {"grant": "clock_convert", "arguments": '{"a":' * 20_000 + "}" * 20_000}),
        ("call_tool", {"grant": "clock_convert\ud800", "arguments": {"a": "\ud800"}}),
        ("call_tool", {"grant": "clock_convert", "arguments": {"time": float("nan")}}),
        ("call_tool", {key: json.dumps({"a": 1}) for key in ("tool", "args", "params", "input", "kwargs")}),
        ("resolve_tools", {"ids": deep}),
        ("resolve_tools", {"ids": json.loads("[" * 500 + "]" * 500)}),
        ("resolve_tools", {"ids": " ".join(["a"] * 5_000)}),
        ("search_tools", {"query": ["a"] * 1_000}),
        ("search_tools", {"query": deep, "server": deep}),
        ("search_tools", {"query": "x" * 3_000}),
    ]
    for name, arguments in shapes:
        said = desk.said(name, arguments)
        assert said.is_error and "fault of the server" not in said.text and len(said.text) < 2_000, name


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("resolve_tools", {"ids": ["any_run"] * 20_000}),
        ("resolve_tools", {"id": [[]] * 20_000}),
        ("search_tools", {"query": {str(number): 1 for number in range(20_000)}}),
        ("search_tools", {"query": "convert", "server": [{"a": 1}] * 20_000}),
    ],
)
def test_u113_a_search_of_too_many_values_is_refused_before_it_is_read(
    desk: Desk, name: str, sent: dict[str, Any]
) -> None:
    told = desk.said(name, sent)
    assert told.is_error and "more than 10,000 values" in told.text and len(told.text) < 500


@pytest.mark.parametrize(("marks", "ran"), [(50_000, 1), (150_000, 0)])
def test_u113_json_of_too_many_values_is_no_slip_of_a_model(desk: Desk, marks: int, ran: int) -> None:
    desk.ran.clear()
    long = json.dumps({**CONVERT, "time": "," * marks})
    desk.said("call_tool", {"grant": desk.handles[ANN, "clock_convert"], "arguments": long})
    assert len(desk.ran) == ran


def test_u113_the_next_call_repeats_no_object_of_thousands(desk: Desk) -> None:
    wrong = {f"k{number}": 1 for number in range(5_000)}
    for sent in ({"arguments": wrong}, wrong):
        told = desk.said("call_tool", {"grant": desk.handles[ANN, "clock_convert"], **sent})
        assert told.is_error and len(told.text) < 10_000
