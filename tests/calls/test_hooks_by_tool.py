import pytest
from tests.support.calling import tool_table

from mcp_toolset import Complete, HookSet, Reject, ToolCall, Toolset, tool

pytestmark = pytest.mark.anyio


@tool
def look(what: str = "") -> str:
    """Look."""
    return what


@pytest.mark.needs("model_loop")
async def test_l8_a_hook_of_a_tool_reaches_it_under_whatever_name_it_is_nested():
    from mcp_toolset.rounds import ToolRound

    hooks = HookSet()

    @hooks.execution(look)
    async def answer(call: ToolCall, input: dict[str, str]) -> Complete:
        return Complete("answered")

    @hooks.description(look)
    async def tell(definition: object) -> str:
        return "Told."

    view = Toolset(Toolset(look).prefixed("in")).renamed({"in_look": "see"}).view()
    assert (await tool_table(view.values(), hooks=hooks).call(ToolCall("see", {}))).value() == "answered"
    assert [one.definition.description for one in await hooks.describe(view.values())] == ["Told."]
    plan = await ToolRound.from_calls([ToolCall("see", {}, id="1")], view).apply(hooks)
    assert [done.result.value() for done in plan.handled] == ["answered"]


async def test_u124_a_hook_of_one_of_two_mounts_of_a_toolset_is_not_asked_about_the_other():
    shop, hooks = Toolset(look), HookSet()
    one, other = shop.prefixed("one"), shop.prefixed("other")

    @hooks.execution(one)
    async def refuse(call: ToolCall) -> Reject:
        return Reject("closed")

    for view, names in (
        (Toolset(one, other).view(), ("one_look", "other_look")),
        (Toolset(one, other).prefixed("in").view(), ("in_one_look", "in_other_look")),
        (Toolset(one, other).renamed({"one_look": "see"}).view(), ("see", "other_look")),
    ):
        dispatch = tool_table(view.values(), hooks=hooks)
        told = [await dispatch.call(ToolCall(name, {"what": "it"})) for name in names]
        assert [result.text for result in told] == ["Rejected: closed", "it"]


async def test_u124_a_hook_of_a_toolset_that_is_mounted_twice_is_asked_about_both():
    shop, hooks = Toolset(look), HookSet()

    @hooks.execution(shop)
    async def refuse(call: ToolCall) -> Reject:
        return Reject("closed")

    view = Toolset(shop.prefixed("one"), shop.prefixed("other")).view()
    dispatch = tool_table(view.values(), hooks=hooks)
    told = [await dispatch.call(ToolCall(name, {"what": "it"})) for name in view]
    assert [result.text for result in told] == ["Rejected: closed"] * 2
