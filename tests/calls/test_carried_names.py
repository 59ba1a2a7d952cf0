"""Names in carried rules are those that the tools had in the toolset that brings the rules."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.calling import tool_table

from mcp_toolset import (
    Descriptions,
    HookSet,
    Reject,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.errors import UnknownNameError, UnknownToolError
from mcp_toolset.policy import Policy

pytestmark = pytest.mark.anyio


@tool
def delete(id: str) -> str:
    """Delete something."""
    return f"deleted {id}"


@tool
def look(id: str) -> str:
    """Look at something."""
    return f"saw {id}"


@tool
def crm_look(id: str) -> str:
    """Look at a customer."""
    return f"saw customer {id}"


def refusing(selector: str) -> HookSet:
    hooks = HookSet()

    @hooks.execution(selector)
    async def refuse(call: ToolCall, input: dict[str, Any], context: ToolContext) -> RunNormally | Reject:
        return Reject("never")

    return hooks


async def answer(tools: Toolset[Any], name: str) -> str:
    dispatch = tool_table(tools.bindings())
    return (await dispatch.call(ToolCall(name, {"id": "1"}), ToolContext())).content[0]["text"]


@pytest.mark.parametrize("selector", ["delete", "del*", "*"])
async def test_s6_names_and_patterns_hold_after_prefixes_and_renames(selector: str) -> None:
    tools: Toolset[Any] = Toolset(delete).carrying(Rules(hooks=refusing(selector)))
    assert await answer(tools.prefixed("crm"), "crm_delete") == "Rejected: never"
    assert await answer(tools.prefixed("crm").prefixed("shop"), "shop_crm_delete") == "Rejected: never"
    assert await answer(tools.renamed({"delete": "remove"}), "remove") == "Rejected: never"
    both = Toolset(tools.prefixed("one"), tools.prefixed("two"))
    assert [await answer(both, name) for name in ("one_delete", "two_delete")] == ["Rejected: never"] * 2


async def test_s6_a_tool_that_takes_the_name_of_another_does_not_take_its_carried_rules() -> None:
    tools: Toolset[Any] = Toolset(delete, look).carrying(Rules(hooks=refusing("delete")))
    swapped = tools.renamed({"delete": "look", "look": "delete"})
    assert await answer(swapped, "look") == "Rejected: never"
    assert await answer(swapped, "delete") == "saw 1"


async def test_s6_a_pattern_in_carried_rules_does_not_match_names_given_by_the_host() -> None:
    tools: Toolset[Any] = Toolset(delete, look).carrying(Rules(hooks=refusing("del*")))
    assert await answer(tools.prefixed("del"), "del_look") == "saw 1"
    assert await answer(tools.prefixed("del"), "del_delete") == "Rejected: never"


async def test_s6_texts_follow_names_in_the_toolset_in_each_of_its_mounts() -> None:
    tools: Toolset[Any] = Toolset(delete, look).carrying(
        Rules(descriptions=Descriptions({"del*": "Take it away."}))
    )
    mounts = Toolset(tools.prefixed("one"), tools.renamed({"delete": "look", "look": "delete"}))
    view = await Rules(hooks=HookSet()).describe(mounts.view())
    told = {one.name: one.definition.description for one in view}
    assert told == {
        "one_delete": "Take it away.",
        "one_look": "Look at something.",
        "look": "Take it away.",
        "delete": "Look at something.",
    }


@pytest.mark.needs("approvals")
@pytest.mark.parametrize("pattern", ["delete", "del*"])
async def test_s6_a_carried_policy_holds_after_prefixes_and_renames(pattern: str) -> None:
    from mcp_toolset.policy import PolicyGuard

    guard = PolicyGuard(Policy(deny=[pattern]))
    tools: Toolset[Any] = Toolset(delete, look).carrying(Rules(guards=[guard]))
    for mounted, name in (
        (tools, "delete"),
        (tools.prefixed("crm"), "crm_delete"),
        (tools.renamed({"delete": "remove"}), "remove"),
    ):
        with pytest.raises(UnknownToolError):
            await answer(mounted, name)
    assert await answer(tools.prefixed("crm"), "crm_look") == "saw 1"


@pytest.mark.needs("approvals")
async def test_s6_a_carried_policy_judges_tools_by_their_names_in_the_toolset() -> None:
    from mcp_toolset.policy import PolicyGuard

    guard = PolicyGuard(Policy(allow=["look"], deny=["crm_look"]))
    tools: Toolset[Any] = Toolset(delete, look, crm_look).carrying(Rules(guards=[guard]))
    assert await answer(tools.prefixed("crm"), "crm_look") == "saw 1"
    for name in ("crm_delete", "crm_crm_look"):
        with pytest.raises(UnknownToolError):
            await answer(tools.prefixed("crm"), name)
    opened: Toolset[Any] = Toolset(look).carrying(Rules(guards=[PolicyGuard(Policy(allow=["crm_*"]))]))
    with pytest.raises(UnknownToolError):
        await answer(opened.prefixed("crm"), "crm_look")


@pytest.mark.needs("approvals")
def test_s6_a_carried_policy_for_a_tool_that_the_toolset_lacks_is_refused() -> None:
    from mcp_toolset.policy import PolicyGuard

    guard = PolicyGuard(Policy(deny=["crm_delete"]))
    with pytest.raises(
        UnknownNameError, match="policy.deny.'crm_delete'. has no effect: there is no such tool"
    ):
        Toolset(delete).carrying(Rules(guards=[guard]))


@pytest.mark.needs("approvals")
async def test_s6_carried_rules_apply_to_a_call_from_python_without_rules() -> None:
    from mcp_toolset.policy import PolicyGuard

    guard = PolicyGuard(Policy(deny=["delete"]))
    tools: Toolset[Any] = Toolset(delete, look).carrying(Rules(hooks=refusing("look"), guards=[guard]))
    mounted = Toolset(tools.prefixed("crm"))
    for each in (mounted, mounted.view()):
        with pytest.raises(UnknownToolError):
            await each.execute("crm_delete", {"id": "1"})
        assert (await each.execute("crm_look", {"id": "1"})).text == "Rejected: never"
    assert (await delete.execute({"id": "1"})).text == "deleted 1"


@pytest.mark.needs("approvals")
async def test_s6_a_tool_that_a_carried_policy_denies_to_all_is_not_offered() -> None:
    from mcp_toolset.policy import PolicyGuard

    guard = PolicyGuard(Policy(deny=["delete"]))
    tools: Toolset[Any] = Toolset(delete, look).carrying(Rules(guards=[guard]))
    assert list(tools.prefixed("crm").view()) == ["crm_look"]
    async with ToolsetServer(tools.prefixed("crm").deferred()) as server:
        hits = (await server.call_tool("search_tools", {"query": "delete something"})).structured["hits"]
        assert not any("delete" in hit["id"] for hit in hits)
        answer = await server.call_tool("resolve_tools", {"ids": ["crm_delete"]})
        assert '"granted"' not in answer.text
