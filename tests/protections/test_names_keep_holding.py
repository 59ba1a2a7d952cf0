"""A rule keeps holding for the tool that its name meant when another source brings a tool of this name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from mcp_toolset import (
    DynamicToolset,
    HookSet,
    Reject,
    RemoteToolset,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
    ToolsetServer,
    tool,
)
from mcp_toolset.testing import ScriptedServer

pytestmark = [pytest.mark.anyio, pytest.mark.needs("dynamic_tools")]


@tool
async def pay() -> str:
    """Pay."""
    return "paid"


@tool(name="pay")
async def other() -> str:
    """Pay somewhere else."""
    return "paid elsewhere"


class Provider(ToolProvider):
    async def list_definitions(self) -> list[ToolDefinition]:
        return [ToolDefinition("pay")]

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        return ToolResult.of_text("provided")


def mounted(name: str) -> Toolset:
    server = ScriptedServer(name, "pay")
    server.script("pay", "paid")
    return RemoteToolset(server, name=name)


async def layer(call: ToolCall, context: ToolContext, next: Any) -> ToolResult:
    return ToolResult.of_error("Rejected: no")


def hooked() -> dict[str, Any]:
    hooks = HookSet()

    @hooks.execution("pay")
    async def no(call: ToolCall) -> Reject:
        return Reject("no")

    return {"hooks": hooks}


RULES: dict[str, Callable[[], dict[str, Any]]] = {
    "a hook": hooked,
    "middleware": lambda: {"tool_middleware": {"pay": [layer]}},
}
BASES: dict[str, Callable[[], Toolset]] = {
    "a local tool": lambda: Toolset(pay).prefixed("shop"),
    "a mounted tool": lambda: mounted("shop").prefixed("shop"),
}
OTHERS: dict[str, Callable[[], Toolset]] = {
    "a toolset": lambda: Toolset(other, name="other"),
    "a server": lambda: mounted("other"),
    "a provider": lambda: DynamicToolset(Provider(), name="other"),
}


@pytest.mark.parametrize(
    "rule, base, joining",
    [
        ("a hook", "a local tool", "a toolset"),
        ("a hook", "a mounted tool", "a server"),
        ("a hook", "a local tool", "a provider"),
        ("middleware", "a mounted tool", "a toolset"),
        ("middleware", "a local tool", "a server"),
        ("middleware", "a mounted tool", "a provider"),
    ],
)
async def test_u73_a_rule_keeps_holding_when_another_source_is_attached_with_the_name(
    rule: str, base: str, joining: str
) -> None:
    async with ToolsetServer(BASES[base](), **RULES[rule]()) as server:
        await server.settled()
        assert (await server.call_tool("shop_pay")).text == "Rejected: no"
        attached = await server.attach(OTHERS[joining]())
        await server.settled()
        for name in ("shop_pay", "pay"):
            assert (await server.call_tool(name)).text == "Rejected: no"
        await server.detach(attached)
        assert (await server.call_tool("shop_pay")).text == "Rejected: no"


@pytest.mark.parametrize(
    "rule, base, joining",
    [
        ("a hook", "a local tool", "a server"),
        ("a hook", "a mounted tool", "a provider"),
        ("middleware", "a mounted tool", "a server"),
        ("middleware", "a local tool", "a provider"),
    ],
)
async def test_u73_a_source_cannot_take_a_rule_from_a_tool_by_listing_its_former_name(
    rule: str, base: str, joining: str
) -> None:
    both = Toolset(BASES[base](), OTHERS[joining]())
    async with ToolsetServer(both, **RULES[rule]()) as server:
        await server.settled()
        for name in ("shop_pay", "pay"):
            assert (await server.call_tool(name)).text == "Rejected: no"


@pytest.mark.parametrize("rule", RULES)
async def test_u73_a_server_cannot_take_a_rule_from_a_tool_by_listing_its_former_name_later(
    rule: str,
) -> None:
    late = ScriptedServer("late", "look")
    both = Toolset(mounted("shop").prefixed("shop"), RemoteToolset(late, name="late"))
    async with ToolsetServer(both, **RULES[rule]()) as server:
        await server.settled()
        await late.attach(Toolset(other, name="more"))
        with anyio.fail_after(20):
            while "pay" not in server.registry.names:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert (await server.call_tool("shop_pay")).text == "Rejected: no"


async def test_u73_a_name_that_is_public_from_the_start_means_the_local_tool_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    both = Toolset(Toolset(pay).prefixed("shop"), other)
    async with ToolsetServer(both, **hooked()) as server:
        assert (await server.call_tool("shop_pay")).text == "paid"
        assert (await server.call_tool("pay")).text == "Rejected: no"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
