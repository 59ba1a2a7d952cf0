"""Rules of every form are taken at every door alike, and a view knows the tools of its toolset."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from mcp_toolset import (
    Complete,
    HookSet,
    Reject,
    RemoteToolset,
    Rules,
    RunNormally,
    ToolCall,
    ToolContext,
    ToolInput,
    ToolResult,
    Toolset,
    ToolsetServer,
    serve,
    tool,
    tool_input,
)
from mcp_toolset.errors import DefinitionError
from mcp_toolset.middleware import CallNext
from mcp_toolset.rounds import FunctionCall, RejectedInput
from mcp_toolset.serving.serve import capturing
from mcp_toolset.testing import Client


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool_input
class Pay(BaseModel, ToolInput[int]):
    """Pay."""

    amount: int


async def refuse(call: ToolCall) -> Reject:
    return Reject("refused by a rule")


class Refusing:
    async def add_hook(self, call: ToolCall) -> Reject:
        return Reject("refused by a rule")


async def layer(call: ToolCall, context: ToolContext, next: CallNext) -> ToolResult:
    return ToolResult.of_error("refused by a rule")


def hook_set() -> HookSet:
    hooks = HookSet()
    hooks.execution("add")(refuse)
    return hooks


FORMS: dict[str, Any] = {
    "function": lambda: refuse,
    "hooks": hook_set,
    "object": Refusing,
    "middleware": lambda: layer,
    "rules": lambda: Rules(hooks=hook_set()),
    "list": lambda: [refuse],
}


def text_of(result: Any) -> str:
    return str(result.content[0].text)


async def served(server: ToolsetServer, name: str = "add") -> str:
    with anyio.fail_after(30):
        async with Client(server) as client:
            return text_of(await client.call_tool(name, {"a": 1, "b": 2}))


def handed_over(tools: Toolset, rules: Any) -> ToolsetServer:
    """The server that `serve` runs."""
    held: list[ToolsetServer] = []
    token = capturing.set(held.append)
    try:
        serve(tools, rules=rules)
    finally:
        capturing.reset(token)
    return held[0]


async def mounted(tools: Toolset) -> str:
    """The answer of the tools through another server that has mounted theirs."""
    inner = RemoteToolset(ToolsetServer(tools), name="m")
    return await served(ToolsetServer(Toolset(inner)))


async def in_round(rules: Any, toolset: Toolset) -> str:
    from mcp_toolset.rounds import ToolRound

    round = ToolRound.from_calls([ToolCall("add", {"a": 1, "b": 2}, id="1")], toolset.view())
    plan = await round.apply(rules)
    return str(plan.commit(await plan.run_pending()).to_openai()[-1]["content"])


@pytest.mark.needs("model_loop")
@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS)
async def test_u106_a_rule_of_any_form_is_taken_at_every_door(form: str):
    make, tools = FORMS[form], Toolset(add)
    found = {
        "serve": await served(handed_over(tools, make())),
        "server": await served(ToolsetServer(tools, rules=make())),
        "carried": await served(ToolsetServer(tools.carrying(make()))),
        "nested": await served(ToolsetServer(Toolset(tools.carrying(make()).prefixed("n"))), "n_add"),
        "mounted": await mounted(tools.carrying(make())),
        "around a mount": await served(
            ToolsetServer(RemoteToolset(ToolsetServer(tools), name="m").carrying(make()))
        ),
        "merged": await served(ToolsetServer(tools, rules=Rules().merged(make()))),
        "execute": (await tools.execute("add", {"a": 1, "b": 2}, rules=make())).text,
        "view": (await tools.view().execute("add", {"a": 1, "b": 2}, rules=make())).text,
        "round": await in_round(make(), tools),
    }
    assert all("refused by a rule" in text for text in found.values()), found


@pytest.mark.anyio
@pytest.mark.parametrize("form", [name for name in FORMS if name != "middleware"])
async def test_u106_one_call_takes_a_hook_of_any_form(form: str):
    call = add.decode(ToolCall("add", {"a": 1, "b": 2}, id="1"))
    refused = await call.hook(FORMS[form]())
    assert isinstance(refused, RejectedInput)
    assert "refused by a rule" in refused.reason


@pytest.mark.needs("model_loop")
@pytest.mark.anyio
async def test_u106_a_value_that_is_no_rule_is_refused_at_every_door():
    from mcp_toolset.rounds import ToolRound

    tools = Toolset(add)
    with pytest.raises(DefinitionError):
        serve(tools, rules=3)
    with pytest.raises(DefinitionError):
        ToolsetServer(tools, rules=3)
    with pytest.raises(DefinitionError):
        Rules().merged(3)
    with pytest.raises(DefinitionError):
        await ToolRound.from_calls([], tools.view()).apply(3)
    with pytest.raises(DefinitionError):
        tools.carrying(3)
    with pytest.raises(DefinitionError):
        await tools.execute("add", {"a": 1, "b": 2}, rules=3)
    with pytest.raises(DefinitionError):
        await add.decode(ToolCall("add", {"a": 1, "b": 2})).hook(3)
    with pytest.raises(DefinitionError, match=r"hooks alone; for middleware"):
        await add.decode(ToolCall("add", {"a": 1, "b": 2})).hook(layer)


@pytest.mark.anyio
async def test_u106_the_call_of_a_function_has_what_the_call_of_an_input_has():
    async def more(call: ToolCall, input: dict[str, Any]) -> RunNormally:
        return RunNormally({**input, "b": 40})

    async def answer(call: ToolCall) -> Complete:
        return Complete(7)

    call = add.decode(ToolCall("add", {"a": 1, "b": 2}, id="1"))
    assert call.parts() == (call.metadata, {"a": 1, "b": 2})
    call.input["a"] = 2
    edited = await call.hook(more)
    assert isinstance(edited, FunctionCall)
    assert await edited.call() == 42
    answered: Any = await call.hook(answer)
    assert (answered.output, answered.completed.result.structured) == (7, {"result": 7})
    assert call.handled(3).completed.result.structured == {"result": 3}


@pytest.mark.anyio
async def test_u106_a_function_hooks_the_call_of_an_input():
    refused = await Pay.decode(ToolCall("Pay", {"amount": 3}, id="1")).hook(refuse)
    assert isinstance(refused, RejectedInput)


@pytest.mark.needs("model_loop")
@pytest.mark.parametrize(
    "tools",
    [
        Toolset(add, Pay).off("Pay"),
        Toolset(Toolset(add), Toolset(Pay).off()),
        Toolset(add, Toolset(Pay).deferred()),
        Toolset(add, Pay).filtered(exclude=Pay),
    ],
    ids=["off", "nested", "deferred", "filtered"],
)
def test_u106_the_call_of_a_tool_that_was_not_offered_is_told_as_unavailable(tools: Toolset):
    from mcp_toolset.rounds import ToolRound

    calls = [ToolCall("Pay", {"amount": 3}, id="1"), ToolCall("Play", {}, id="2")]
    issues = ToolRound.from_calls(calls, tools.view()).issues
    assert [issue.reason for issue in issues] == ["unavailable_tool", "unknown_tool"]
    assert issues[0].message.replace("Pay", "Play") == issues[1].message
