import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from tests.support.calling import tool_table

from mcp_toolset import (
    HookSet,
    ToolBinding,
    ToolCall,
    ToolContext,
    ToolDefinition,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.arguments import hide, rename
from mcp_toolset.errors import CallError, DefinitionError, InvalidArgumentsError

pytestmark = pytest.mark.anyio


@dataclass
class Turn:
    user: str
    admin: bool = False


@tool
def pay(amount: int, user: str) -> str:
    """Pay."""
    return f"{user} pays {amount}"


@tool
def look(what: str = "") -> str:
    """Look."""
    return what


TOOLS = Toolset(pay, look)


def for_admins(binding: ToolBinding, turn: Turn) -> ToolDefinition | None:
    if binding.origin is pay and not turn.admin:
        return None
    return binding.definition.described(f"{binding.definition.description} For {turn.user}.")


def with_user(call: ToolCall, turn: Turn) -> Mapping[str, Any]:
    return {**call.arguments, "user": turn.user} if call.name.endswith("pay") else call.arguments


def test_p1_a_view_has_what_the_turn_makes_of_the_tools():
    tools = TOOLS.prepared(for_admins).prefixed("x")
    plain, admin = tools.view(turn=Turn("ann")), tools.view(turn=Turn("bob", admin=True))
    assert list(plain) == ["x_look"]
    assert [one.description for one in admin.definitions()] == ["Pay. For bob.", "Look. For bob."]
    assert tools.names() == ["x_pay", "x_look"]
    assert tools.find(pay).definition.description == "Pay."


def test_p1_the_function_is_asked_for_every_view_and_never_before():
    asked: list[str] = []

    def note(binding: ToolBinding) -> ToolDefinition:
        asked.append(binding.name)
        return binding.definition

    tools = Toolset(TOOLS.prepared(note).prefixed("x")).described({"x_look": "Other."})
    assert repr(tools) and tools.names() and not asked
    tools.view()
    tools.view()
    assert asked == ["pay", "look"] * 2


def test_p1_later_verbs_see_what_was_prepared():
    tools = TOOLS.prepared(for_admins).filtered(lambda one: "bob" in (one.definition.description or ""))
    assert list(tools.view(turn=Turn("bob"))) == ["look"]
    assert list(tools.view(turn=Turn("ann"))) == []


@pytest.mark.parametrize("turn", [None, "ann", 5])
def test_h6_a_turn_of_another_type_is_an_error_that_says_the_mend(turn: Any):
    with pytest.raises(
        DefinitionError, match=r"for_admins of .prepared\(\) needs a turn of type Turn.*turn=…"
    ):
        TOOLS.prepared(for_admins).view(turn=turn)
    with pytest.raises(DefinitionError, match="with_user .* needs a turn of type Turn"):
        TOOLS.prepared(call=with_user).view(turn=turn)


def test_h6_a_turn_may_be_optional_or_of_no_type_that_can_be_checked():
    def optional(binding: ToolBinding, turn: Turn | None) -> ToolDefinition | None:
        return binding.definition if turn else None

    def loose(binding: ToolBinding, turn: Any) -> ToolDefinition:
        return binding.definition.described(str(turn))

    def mapping(binding: ToolBinding, turn: dict[str, int]) -> ToolDefinition:
        return binding.definition.described(str(turn["n"]))

    assert list(TOOLS.prepared(optional).view()) == []
    assert list(TOOLS.prepared(optional).view(turn=Turn("a"))) == ["pay", "look"]
    assert TOOLS.prepared(loose).view(turn=3)["pay"].definition.description == "3"
    assert TOOLS.prepared(mapping).view(turn={"n": 7})["pay"].definition.description == "7"
    with pytest.raises(DefinitionError, match="needs a turn of type dict"):
        TOOLS.prepared(mapping).view(turn=3)


async def test_p1_a_prepared_schema_is_the_one_that_is_checked():
    def short(binding: ToolBinding) -> ToolDefinition:
        schema = {"type": "object", "properties": {"what": {"type": "string", "maxLength": 3}}}
        return replace(binding.definition, input_schema=schema)

    view = TOOLS.prepared(short).view()
    assert (await view.execute(look, {"what": "abc"})).value() == "abc"
    with pytest.raises(InvalidArgumentsError, match="what: "):
        await view.execute(look, {"what": "abcd"})


def raises(binding: ToolBinding) -> ToolDefinition:
    raise LookupError("gone")


def renames(binding: ToolBinding) -> ToolDefinition:
    return replace(binding.definition, name="other")


def returns_text(binding: ToolBinding) -> Any:
    return "no definition"


def breaks_schema(binding: ToolBinding) -> ToolDefinition:
    return replace(binding.definition, input_schema={"type": "nonsense"})


@pytest.mark.parametrize("function", [raises, renames, returns_text, breaks_schema])
def test_f41_a_tool_that_cannot_be_prepared_is_hidden_and_logged(
    function: Any, caplog: pytest.LogCaptureFixture
):
    tools = Toolset(Toolset(pay).prepared(function), look)
    assert list(tools.view()) == ["look"]
    (line,) = [line for line in caplog.records if line.levelno == logging.ERROR]
    assert function.__name__ in line.getMessage() and line.exc_info


async def wait(binding: ToolBinding) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (wait, "must be a plain function"),
        (lambda: None, r"must take \(binding\) or \(binding, turn\)"),
        (lambda a, b, c: None, r"must take \(binding\) or \(binding, turn\)"),
        ("text", "must be a plain function"),
    ],
)
def test_p1_a_function_that_cannot_be_asked_is_refused_where_it_is_given(function: Any, reason: str):
    with pytest.raises(DefinitionError, match=reason):
        TOOLS.prepared(function)
    with pytest.raises(DefinitionError, match=reason):
        TOOLS.prepared(call=function)
    with pytest.raises(DefinitionError, match="needs a function"):
        TOOLS.prepared()


async def test_h6_a_call_is_prepared_before_its_arguments_are_validated():
    view = TOOLS.prepared(call=with_user).view(turn=Turn("ann"))
    with pytest.raises(InvalidArgumentsError):
        await TOOLS.view().execute(pay, {"amount": 3})
    assert (await view.execute(pay, {"amount": 3})).value() == "ann pays 3"
    done = await tool_table(view.values()).call(ToolCall("pay", {"amount": 4, "user": "eve"}))
    assert done.value() == "ann pays 4"


async def test_h6_the_call_keeps_what_the_model_sent():
    def shout(call: ToolCall) -> Mapping[str, Any]:
        return {"what": call.arguments["what"].upper()}

    (binding,) = Toolset(look).prepared(call=shout).view().values()
    assert binding.prepare is not None
    call = binding.prepare(ToolCall("look", {"what": "a"}, id="1"), ToolContext())
    assert (call.arguments, call.original, call.id) == ({"what": "A"}, {"what": "a"}, "1")


async def test_h6_calls_are_prepared_from_the_outside_in_through_transforms_too():
    def adding(text: str) -> Any:
        def add(call: ToolCall) -> Mapping[str, Any]:
            return {key: value + text for key, value in call.arguments.items()}

        return add

    tools = Toolset(look).prepared(call=adding("1")).with_arguments({look: {"what": rename("w")}})
    tools = tools.prepared(call=adding("2")).prepared(call=adding("3"))
    assert (await tools.view().execute(look, {"w": "0"})).value() == "0321"
    hidden = Toolset(look).prepared(call=adding("1")).with_arguments({look: {"what": hide(value="h")}})
    assert (await hidden.view().execute(look, {})).value() == "h1"


@pytest.mark.needs("model_loop")
async def test_h6_the_calls_of_a_round_are_prepared_once_with_the_turn_s_input():
    from mcp_toolset.rounds import ToolRound

    def more(call: ToolCall, turn: Turn) -> Mapping[str, Any]:
        if "amount" not in call.arguments:
            raise CallError("say how much")
        return {"amount": call.arguments["amount"] + 1, "user": turn.user}

    view = Toolset(pay).prepared(call=more).view(turn=Turn("ann"))
    calls = [ToolCall("pay", {"amount": 3}, id="1"), ToolCall("pay", {}, id="2")]
    round = ToolRound.from_calls(calls, view)
    assert [issue.message for issue in round.issues] == ["say how much"]
    assert [(call.arguments, call.original) for call in round.calls] == [
        ({"amount": 4, "user": "ann"}, {"amount": 3})
    ]
    plan = await round.apply(HookSet())
    report = await plan.run_pending()
    assert [done.result.value() for done in report.results] == ["ann pays 4"]


@pytest.mark.parametrize("answer", [LookupError("secret"), "no mapping"])
async def test_h6_a_call_that_cannot_be_prepared_does_not_run(answer: Any, caplog: pytest.LogCaptureFixture):
    def fails(call: ToolCall) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    done = await tool_table(TOOLS.prepared(call=fails).view().values()).call(ToolCall("look", {}))
    assert done.is_error
    assert done.text == "the arguments of look could not be prepared, so it was not run"
    assert [line for line in caplog.records if line.exc_info]


async def test_h6_a_call_can_be_refused_with_a_reason_for_the_model():
    def refuse(call: ToolCall) -> Mapping[str, Any]:
        raise CallError("not on Sundays")

    done = await tool_table(TOOLS.prepared(call=refuse).view().values()).call(ToolCall("look", {}))
    assert done.is_error and done.text == "not on Sundays"


async def test_p1_a_served_toolset_is_prepared_for_no_turn():
    def anonymous(binding: ToolBinding, turn: Turn | None) -> ToolDefinition | None:
        return None if binding.origin is pay and turn is None else binding.definition

    def fill(call: ToolCall, turn: Turn | None) -> Mapping[str, Any]:
        return {"what": str(turn)}

    with anyio.fail_after(30):
        async with ToolsetServer(TOOLS.prepared(anonymous, call=fill)) as server:
            assert [one["name"] for one in server.tools()] == ["look"]
            assert (await server.call_tool("look", {"what": "x"})).value() == "None"
