"""A round and a call from Python take a hook, a middleware, a policy object or a list of them as it is."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from mcp_toolset import Complete, HookSet, Reject, Rules, ToolCall, Toolset, tool
from mcp_toolset.errors import DefinitionError
from mcp_toolset.middleware import PermissionChecker

RUNS: list[str] = []


@tool
async def delete(path: str) -> str:
    """Delete."""
    RUNS.append(path)
    return f"deleted {path}"


TOOLS = Toolset(delete).prefixed("files")


async def hook(call: ToolCall, input: dict[str, Any]) -> Reject:
    return Reject("no")


async def of_the_call(call: ToolCall) -> Complete:
    return Complete("no")


class Policy:
    async def delete_hook(self, call: ToolCall, input: dict[str, Any]) -> Reject:
        return Reject("no")


def deny(call: ToolCall) -> Literal["deny"]:
    return "deny"


def one_hook() -> HookSet:
    hooks = HookSet()
    hooks.execution("delete")(hook)
    return hooks


RULES = {
    "hook": hook,
    "hook of the call": of_the_call,
    "method": Policy().delete_hook,
    "policy": Policy(),
    "middleware": PermissionChecker(deny),
    "hooks": one_hook(),
    "rules": Rules(middleware=[PermissionChecker(deny)]),
    "list": [PermissionChecker(deny), hook],
}


@pytest.mark.needs("model_loop")
@pytest.mark.anyio
@pytest.mark.parametrize("kind", RULES)
async def test_u31_a_round_takes_any_rule_as_it_is(kind: str) -> None:
    from mcp_toolset.rounds import ToolRound

    RUNS.clear()
    for name in ("apply_hooks", "apply"):
        round = ToolRound.from_calls([ToolCall("files_delete", {"path": "a"}, "c1")], TOOLS.view())
        plan = await getattr(round, name)(RULES[kind])
        await plan.run_pending()
        assert "delete" not in plan.commit().results[0].result.text.removeprefix("Rejected: files_delete")
    assert not RUNS


@pytest.mark.anyio
@pytest.mark.parametrize("kind", sorted(RULES.keys() - {"rules"}))
async def test_u106_a_call_from_python_takes_any_rule_as_it_is(kind: str) -> None:
    RUNS.clear()
    rule: Any = RULES[kind]
    for made in (TOOLS, TOOLS.view()):
        result = await made.execute("files_delete", {"path": "a"}, rules=rule)
        assert "deleted" not in result.text
    assert not RUNS


@pytest.mark.needs("model_loop")
@pytest.mark.anyio
@pytest.mark.parametrize("rule", [deny, "delete", Policy, 3, [deny]])
async def test_u28_what_is_no_rule_is_refused_where_it_is_given(rule: Any) -> None:
    from mcp_toolset.rounds import ToolRound

    RUNS.clear()
    round = ToolRound.from_calls([ToolCall("files_delete", {"path": "a"}, "c1")], TOOLS.view())
    with pytest.raises(DefinitionError):
        await round.apply(rule)
    with pytest.raises(DefinitionError):
        await TOOLS.execute("files_delete", {"path": "a"}, rules=rule)
    assert not RUNS


@pytest.mark.anyio
async def test_u69_middleware_and_hooks_run_around_a_tool_without_a_server() -> None:
    RUNS.clear()
    rules = Rules(middleware=[PermissionChecker(lambda call: "allow")], hooks=one_hook())
    assert (await TOOLS.execute("files_delete", {"path": "a"}, rules=rules)).text == "Rejected: no"
    assert (await TOOLS.execute("files_delete", {"path": "a"}, rules=Rules())).text == "deleted a"
    assert RUNS == ["a"]
