from __future__ import annotations

import copy
import functools
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from tests.naming import steady, steady_repr
from tests.support.calling import tool_table
from tests.tools import handlers

from mcp_toolset import AskUser, Halt, Tool, ToolCall, ToolContext, ToolResult, Toolset, tool
from mcp_toolset.errors import DefinitionError, InvalidOutputError, StateError

pytestmark = pytest.mark.anyio

TEXT = {"text": "string"}


class Said(BaseModel):
    said: str


async def served(made: Tool[..., Any], arguments: dict[str, Any]) -> ToolResult:
    return await tool_table([made.bind()]).call(ToolCall(made.name, arguments))


async def async_one(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


def sync_one(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


async def async_two(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    return {**arguments, "context": isinstance(context, ToolContext)}


def sync_two(arguments: dict[str, Any], ctx: Any) -> dict[str, Any]:
    return {**arguments, "context": isinstance(ctx, ToolContext)}


def with_default(arguments: dict[str, Any], again: int = 2) -> dict[str, Any]:
    return {**arguments, "again": again}


def star(*given: Any) -> dict[str, Any]:
    return {"count": len(given)}


class Object:
    async def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    def method(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return {**arguments, "context": isinstance(context, ToolContext)}


@pytest.mark.parametrize(
    ("handler", "more"),
    [
        (async_one, {}),
        (sync_one, {}),
        (async_two, {"context": True}),
        (sync_two, {"context": True}),
        (with_default, {"again": 2}),
        (Object(), {}),
        (Object().method, {"context": True}),
        (functools.partial(with_default, again=5), {"again": 5}),
        (functools.partial(async_two), {"context": True}),
        (lambda arguments: arguments, {}),
    ],
    ids=steady,
)
async def test_a4_a_handler_takes_the_arguments_or_the_arguments_and_a_context(
    handler: Callable[..., Any], more: dict[str, Any]
):
    made = Tool.from_schema("say", TEXT, handler)
    assert (await served(made, {"text": "Hi"})).structured == {"text": "Hi", **more}
    assert (await made.execute({"text": "Hi"})).structured == {"text": "Hi", **more}


async def test_a4_a_handler_that_takes_anything_gets_the_arguments():
    assert (await Tool.from_schema("say", TEXT, star).execute({"text": "a"})).structured == {"count": 1}


def nothing() -> None: ...


def three(a: Any, b: Any, c: Any) -> None: ...


def keyword(a: Any, *, b: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (nothing, "handler nothing must take (arguments) or (arguments, context)"),
        (three, "handler three must take"),
        (keyword, "handler keyword must take"),
        (5, "handler 5 cannot be called; give a function or its name as 'module:function'"),
        (min, "handler min has no signature that can be read; wrap it in a function"),
        ("no_colon", "a handler is a function or named as 'package.module:function', not 'no_colon'"),
        ("a b:c", "not 'a b:c'"),
        (":c", "not ':c'"),
        ("a:", "not 'a:'"),
        ("a:b:c", "not 'a:b:c'"),
    ],
    ids=steady,
)
def test_a4_a_handler_that_takes_something_else_is_refused_where_it_is_given(handler: Any, says: str):
    for give in (
        lambda: Tool.from_schema("say", TEXT, handler),
        lambda: Tool.from_schema("say", TEXT).with_handler(handler),
    ):
        with pytest.raises(DefinitionError) as refused:
            give()
        assert "tool 'say'" in str(refused.value) and says in str(refused.value)


async def test_a4_a_sync_handler_runs_in_a_worker_thread():
    made = Tool.from_schema(
        "where", {}, lambda arguments: threading.current_thread() is threading.main_thread()
    )
    assert (await made.execute()).text == "false"


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ({"a": 1}, '{"a":1}', {"a": 1}),
        ("hi", "hi", None),
        ([1], "[1]", None),
        (None, "", None),
        (ToolResult.of_text("own"), "own", None),
    ],
    ids=steady,
)
async def test_a5_what_a_handler_returns_is_a_result(value: Any, text: str, structured: Any):
    result = await served(Tool.from_schema("give", {}, lambda arguments: value), {})
    assert (result.text, result.structured, result.is_error) == (text, structured, False)


async def test_a5_a_handler_may_raise_ask_and_halt():
    def failing(arguments: dict[str, Any]) -> None:
        raise ValueError("no such city")

    with pytest.raises(ValueError, match="no such city"):
        await Tool.from_schema("fail", {}, failing).execute()
    assert (await served(Tool.from_schema("fail", {}, failing), {})).text == "fail failed: no such city"
    asked = await Tool.from_schema("ask", {}, lambda arguments: AskUser("Which?")).execute()
    assert asked.ask == AskUser("Which?") and not asked.is_complete
    halted = await Tool.from_schema("stop", {}, lambda arguments: Halt("done", {"n": 1})).execute()
    assert halted.halt is not None and (halted.halt.reason, halted.structured) == ("done", {"n": 1})


async def test_a5_a_question_and_a_halt_are_no_part_of_a_functions_promise():
    @tool
    def choose(n: int) -> int | AskUser | Halt:
        return AskUser("More?") if n == 0 else Halt("enough", n) if n > 9 else n

    @tool
    def always() -> AskUser:
        return AskUser("What?")

    @tool
    def plain() -> int:
        return 1

    assert choose.output_schema == plain.output_schema
    assert always.output_schema is None
    assert (await choose.execute({"n": 3})).structured == {"result": 3}
    assert (await choose.execute({"n": 0})).ask == AskUser("More?")
    halted = await choose.execute({"n": 10})
    assert halted.halt is not None and halted.structured == {"result": 10}


@pytest.mark.parametrize("output", [Said, {"said": "string"}, Said.model_json_schema()], ids=steady)
async def test_o4_a_promised_output_is_a_type_or_a_schema_in_any_notation(output: Any):
    made = Tool.from_schema("say", TEXT, handlers.shout, output=output)
    assert made.output_schema is not None and made.output_schema["required"] == ["said"]
    assert (await served(made, {"text": "hi"})).structured == {"said": "HI"}
    broken = Tool.from_schema("say", TEXT, lambda arguments: {"told": 1}, output=output)
    assert (await served(broken, {"text": "hi"})).is_error


async def test_o4_a_value_of_the_promised_type_is_structured():
    made = Tool.from_schema("say", TEXT, lambda arguments: Said(said="x"), output=Said)
    assert (await served(made, {"text": "hi"})).structured == {"said": "x"}
    with pytest.raises(InvalidOutputError, match="say returned a value that has no JSON form"):
        await Tool.from_schema("say", {}, lambda arguments: object()).execute()


async def test_a1_a_definition_without_a_handler_is_legal_and_its_calls_wait():
    made = Tool.from_schema("charge", {"amount": "number"}, description="Charge a card.")
    assert made.waits and made.bind().manual
    with pytest.raises(
        StateError, match="tool 'charge' has no handler; its result comes from the application"
    ):
        await made.execute({"amount": 1})
    attached = made.with_handler(lambda arguments: {"charged": arguments["amount"]})
    assert not attached.waits and made.waits
    assert (await attached.execute({"amount": 1})).structured == {"charged": 1}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shout", {"said": "HI"}),
        ("whisper", {"said": "hi", "by": "ToolContext"}),
        ("spell", {"result": ["H", "i"]}),
        ("Voice.sing", None),
    ],
)
async def test_a3_a_handler_may_be_named_as_plain_data(name: str, expected: Any):
    made = Tool.from_schema("say", TEXT, f"tests.tools.handlers:{name}")
    stored = json.dumps(made.to_data())
    loaded = Tool.from_data(json.loads(stored))
    for one in (made, loaded):
        result = await one.execute({"text": "Hi"})
        assert result.structured == expected and result.text
    assert loaded.definition == made.definition and loaded.definition.digest == made.definition.digest
    assert json.dumps(loaded.to_data()) == stored


async def test_a3_a_named_handler_is_looked_up_at_the_first_call_with_a_clear_error():
    for name, says in (
        ("no.such.module:run", "handler 'no.such.module:run' cannot be loaded: No module named 'no'"),
        ("tests.tools.handlers:absent", "'tests.tools.handlers' has no 'absent'; correct the name"),
        ("tests.tools.handlers:not_a_function", "it is int, not a function"),
    ):
        made = Tool.from_schema("say", TEXT, name)
        with pytest.raises(DefinitionError) as refused:
            await made.execute({"text": "a"})
        assert "tool 'say'" in str(refused.value) and says in str(refused.value)
        assert (await served(made, {"text": "a"})).is_error


async def test_a1_functions_with_an_importable_name_survive_json_and_others_are_attached_again():
    stored = json.loads(json.dumps(handlers.spell.to_data()))
    assert stored["handler"] == "tests.tools.handlers:spell"
    assert (await Tool.from_data(stored).execute({"text": "ab"})).structured == {"result": ["a", "b"]}
    assert Tool.from_schema("say", TEXT, handlers.shout).to_data()["handler"] == "tests.tools.handlers:shout"
    local = Tool.from_schema(
        "say", TEXT, lambda arguments: 1, manual=True, timeout=3.0, id="say-1", read_only=True
    )
    stored = json.loads(json.dumps(local.to_data()))
    assert stored == {
        "id": "say-1",
        "definition": local.definition.to_wire(),
        "handler": None,
        "manual": True,
        "timeout": 3.0,
    }
    loaded = Tool.from_data(stored, handlers.shout)
    assert (loaded.manual, loaded.timeout, loaded.id, loaded.definition) == (
        True,
        3.0,
        "say-1",
        local.definition,
    )
    assert (await loaded.execute({"text": "a"})).structured == {"said": "A"}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "a stored tool has a 'definition' that is an object"),
        ({"definition": {"name": "a"}}, "tool 'a': inputSchema must be an object, found nothing"),
        ({"definition": {"name": "a b", "inputSchema": {"type": "object"}}}, "cannot be named 'a b'"),
        ({"definition": {"name": "a", "inputSchema": {"type": "object"}}, "handler": 5}, "not 5"),
        ({"definition": {"name": "a", "inputSchema": {"type": "object"}}, "manual": None}, "not None"),
        ({"definition": {"name": "a", "inputSchema": {"type": "object"}}, "timeout": "1"}, "not '1'"),
        ({"definition": {"name": "a", "inputSchema": {"type": "object"}}, "id": 5}, "an id is a text, not 5"),
        ({"definition": {"name": "a", "inputSchema": {"type": "object"}}, "run": 1}, "has no 'run'"),
    ],
    ids=steady,
)
def test_a1_data_that_is_no_tool_is_refused(data: dict[str, Any], says: str):
    with pytest.raises(DefinitionError) as refused:
        Tool.from_data(data)
    assert says in str(refused.value)


@pytest.mark.parametrize("manual", [None, 1, 0, "yes", "false"], ids=steady_repr)
def test_a2_manual_is_a_bool_also_when_none_is_given(manual: Any):
    says = rf"tool 'say': manual is True or False, not {manual!r}"
    with pytest.raises(DefinitionError, match=says):
        Tool.from_schema("say", TEXT, manual=manual)
    with pytest.raises(DefinitionError, match=says):
        tool(name="say", manual=manual)(nothing)


@pytest.mark.parametrize("timeout", [0, -1, "5", float("nan"), True], ids=steady_repr)
def test_a11_a_timeout_is_seconds_above_zero(timeout: Any):
    with pytest.raises(DefinitionError, match="timeout is seconds above 0"):
        Tool.from_schema("say", TEXT, timeout=timeout)


async def test_o1_copies_share_the_handler_and_nothing_given_reaches_into_a_tool():
    notation = {"text": {"type": "string", "enum": ["a"]}}
    made = Tool.from_schema("say", notation, handlers.shout)
    notation["text"]["enum"].append("b")  # type: ignore[union-attr]
    assert made.input_schema["properties"]["text"]["enum"] == ["a"]
    for other in (copy.copy(made), copy.deepcopy(made), copy.deepcopy([made])[0]):
        assert other.handler is handlers.shout and other == made
    assert made.with_handler(handlers.whisper) != made or made.handler is handlers.shout


def test_h2_a_tool_has_a_stable_id_apart_from_its_public_name():
    made = handlers.spell
    assert made.function is not None
    assert made.id == "tests.tools.handlers:spell"
    assert tool(name="other")(made.function).id == "tests.tools.handlers:spell#other"
    assert tool(name="other", id="mine")(made.function).id == "mine"
    assert Tool.from_schema("say", TEXT, handlers.shout).id == "tool:say"
    view = Toolset(made).prefixed("x").renamed({"x_spell": "y"}).described({"y": "New."}).view()
    assert [(binding.name, binding.tool_id) for binding in view.values()] == [("y", made.id)]


def test_h1_a_fixed_toolset_derives_its_definitions_once():
    made = Tool.from_schema("say", TEXT, handlers.shout)
    tools = Toolset(made)
    assert tools.view()["say"].definition is tools.view()["say"].definition is made.definition
    assert tools.view()["say"].arguments is tools.view()["say"].arguments


def test_o8_accessors_and_a_repr_without_the_handler():
    made = Tool.from_schema("say", TEXT, handlers.shout, description="Say it.", output={"said": "string"})
    assert (made.name, made.description, made.input_schema["required"]) == ("say", "Say it.", ["text"])
    assert made.output_schema == {
        "type": "object",
        "properties": {"said": {"type": "string"}},
        "required": ["said"],
    }
    assert repr(made) == "Tool('say', text)"
    assert made({"text": "a"}) == {"said": "A"}
