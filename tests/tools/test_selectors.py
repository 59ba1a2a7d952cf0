from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset import Tool, Toolset, tool
from mcp_toolset.arguments import rename
from mcp_toolset.errors import DefinitionError, InvalidArgumentsError, NameConflictError, UnknownToolError
from mcp_toolset.rounds import ToolAvailability

pytestmark = pytest.mark.anyio

words = st.text("abc_", min_size=1, max_size=3)


def numbered(name: str) -> Tool[..., str]:
    @tool(name=name)
    def made(value: str = "") -> str:
        """Say the own name."""
        return name + value

    return made


ADD, FIND, DROP = map(numbered, ["add", "find_it", "drop"])
NESTED = Toolset(ADD, Toolset(FIND, Toolset(DROP).prefixed("deep")).prefixed("x").off())


def test_l8_all_selectors_names_and_definitions():
    assert NESTED.names() == ["add", "x_find_it", "x_deep_drop"]
    assert [one.name for one in NESTED.definitions()] == ["add", "find_it", "drop"]
    assert NESTED.deferred().names() == NESTED.names()


@pytest.mark.parametrize("selector", [DROP, "x_deep_drop"])
def test_l8_a_tool_is_found_by_name_and_by_itself(selector: Any):
    assert NESTED.find(selector).name == "x_deep_drop"
    assert NESTED.deferred().find(selector).deferred
    view = NESTED.view(ToolAvailability.all())
    assert view[selector] is view.get(selector) and selector in view
    assert list(NESTED.view(ToolAvailability.only(selector))) == ["x_deep_drop"]
    assert list(NESTED.view(ToolAvailability.default_plus(selector, DROP))) == ["add", "x_deep_drop"]


@given(st.lists(words, max_size=5))
def test_h23_a_tool_is_found_through_any_verbs_without_parsing_a_name(prefixes: list[str]):
    tools = Toolset(ADD, FIND)
    for prefix in prefixes:
        tools = Toolset(DROP, tools.prefixed(prefix)).filtered(exclude=[DROP])
    renamed = tools.described({ADD: "Sum."}).renamed({ADD: "other"}).prepared(lambda one: one.definition)
    assert tools.find(ADD).definition.name == "add"
    assert renamed.find(ADD).name == "other" and renamed.find(ADD).definition.description == "Sum."
    assert list(renamed.view(ToolAvailability.only(ADD))) == ["other"]


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("drop", r"Unknown tool: drop; did you mean x_deep_drop\?"),
        ("x_find_itt", r"did you mean x_find_it"),
        ("ADDD", r"did you mean add\?"),
        ("zzzzzzz", r"Unknown tool: zzzzzzz$"),
        (numbered("drop"), r"Unknown tool: drop; did you mean x_deep_drop\?"),
        (numbered("add"), r"another tool has this name here"),
    ],
)
def test_l8_an_absent_tool_is_an_error_with_near_matches(wanted: Any, hint: str):
    for ask in (NESTED.find, NESTED.view(ToolAvailability.all()).__getitem__):
        with pytest.raises(UnknownToolError, match=hint):
            ask(wanted)
    with pytest.raises(UnknownToolError, match=hint):
        NESTED.view(ToolAvailability.only(wanted))


@pytest.mark.parametrize("wanted", [5, None, ["add"]])
def test_l8_what_is_no_selector_is_a_definition_error(wanted: Any):
    with pytest.raises(DefinitionError, match="selected by its public name or by the tool itself"):
        NESTED.find(wanted)
    with pytest.raises(DefinitionError, match="selected by its public name"):
        NESTED.view(ToolAvailability.only(wanted))


def test_l8_a_tool_that_stands_there_twice_is_selected_by_name():
    twice = Toolset(Toolset(ADD).prefixed("a"), Toolset(ADD).prefixed("b"))
    with pytest.raises(DefinitionError, match="2 names here, a_add, b_add"):
        twice.find(ADD)
    assert twice.find("b_add").name == "b_add"


def test_l27_a_group_that_stands_there_twice_or_not_at_all_is_an_error():
    group = Toolset(ADD, FIND)
    twice = Toolset(group.prefixed("a"), group.prefixed("b"))
    with pytest.raises(DefinitionError, match="more than once, as a_add and b_add"):
        twice.view(ToolAvailability.only(group))
    with pytest.raises(UnknownToolError, match="none of its tools is here"):
        Toolset(DROP).view(ToolAvailability.only(group))
    assert list(Toolset(ADD).view(ToolAvailability.only(Toolset()))) == []


@pytest.mark.parametrize(
    "verb",
    [
        lambda tools, one: tools.off(one),
        lambda tools, one: tools.renamed({one: "other"}),
        lambda tools, one: tools.described({one: "Other."}),
        lambda tools, one: tools.filtered(exclude=[one]),
        lambda tools, one: tools.with_arguments({one: {"value": rename("text")}}),
    ],
)
def test_l8_verbs_take_tools_and_refuse_those_that_are_not_there(verb: Callable[[Toolset, Any], Toolset]):
    by_tool, by_name = verb(NESTED, FIND), verb(NESTED, "x_find_it")
    shown = [[(one.name, one.on, one.definition) for one in tools.bindings()] for tools in (by_tool, by_name)]
    assert shown[0] == shown[1]
    with pytest.raises(UnknownToolError, match="did you mean x_find_it"):
        verb(NESTED, numbered("find_it"))


@pytest.mark.needs("model_loop")
def test_l26_a_description_for_one_view_and_the_last_one_wins():
    view = NESTED.view()
    other = view.describe(ADD, "One.").describe("add", "Two.")
    assert other["add"].definition.description == "Two."
    assert view["add"].definition.description == "Say the own name."
    assert list(other) == list(view)
    assert other.to_openai()[0]["function"]["description"] == "Two."
    with pytest.raises(UnknownToolError):
        view.describe(FIND, "Off, so not here.")


def test_n1_a_toolset_grows_into_a_new_one_and_refuses_a_second_tool_of_a_name():
    tools = Toolset(ADD, name="app")
    grown = tools.including(FIND) + Toolset(DROP).prefixed("x")
    assert grown.names() == ["add", "find_it", "x_drop"] and grown.name == "app"
    assert tools.names() == ["add"]
    with pytest.raises(NameConflictError, match=r"two tools are named 'add'.*test_selectors\.py"):
        tools.including(numbered("add"))
    with pytest.raises(NameConflictError):
        _ = tools + tools


async def test_n1_one_tool_is_run_by_name_after_its_arguments_are_checked():
    chosen = NESTED.view(ToolAvailability.only("x_deep_drop"))
    assert (await chosen.execute("x_deep_drop", {"value": "!"})).value() == "drop!"
    with pytest.raises(UnknownToolError, match="switched off"):
        await NESTED.execute("x_deep_drop", {"value": "!"})
    assert (await NESTED.view().execute(ADD)).value() == "add"
    with pytest.raises(InvalidArgumentsError, match="value: "):
        await NESTED.execute(ADD, {"value": 3})
    with pytest.raises(UnknownToolError, match="did you mean add"):
        await NESTED.execute("ad")
    with pytest.raises(UnknownToolError):
        await NESTED.deferred().execute("add")


def test_h4_granting_adds_up_from_the_inside_out():
    tools = Toolset(Toolset(ADD).granting("sample"), DROP).granting("ask", "log")
    assert tools.find(ADD).capabilities == {"sample", "ask", "log"}
    assert tools.find(DROP).capabilities == {"ask", "log"}
    assert Toolset(ADD).find(ADD).capabilities is None


@pytest.mark.parametrize("names", [(), ("",), (3,)])
def test_h4_granting_nothing_is_an_error(names: Any):
    with pytest.raises(DefinitionError, match="names of capabilities"):
        Toolset(ADD).granting(*names)


def test_x1_a_view_takes_deferred_tools_for_providers_that_defer_themselves():
    tools = Toolset(ADD, Toolset(DROP).deferred())
    assert list(tools.view()) == ["add"]
    assert list(tools.view(deferred=True)) == ["add", "drop"]
    assert tools.view(deferred=True)[DROP].deferred
