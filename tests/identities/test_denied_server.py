"""A server that a caller is denied is as one that is not mounted: every answer is the same, at every door."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from mcp.server.lowlevel import Server
from tests.identities.doors import DOORS, Answer, Door, reached

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.auth import StaticTokens
from mcp_toolset.policy import Policy

pytestmark = [pytest.mark.anyio, pytest.mark.needs("inbound_auth")]
ANN, BOB = "the-token-of-ann-0123456789", "the-token-of-bob-0123456789"


def upstream(name: str) -> Server[Any]:
    """A server with one of everything."""

    async def tools(ctx: Any, params: Any) -> types.ListToolsResult:
        schema = {"type": "object"}
        named = {f"{name}_tool": f"Keeps the {name} things.", f"{name}_other": f"Finds the {name} things."}
        return types.ListToolsResult(
            tools=[types.Tool(name=key, description=text, input_schema=schema) for key, text in named.items()]
        )

    async def call(ctx: Any, params: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"{params.name} ran")])

    async def resources(ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri=f"{name}://one", name=f"{name} one")])

    async def templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        one = types.ResourceTemplate(uri_template=f"{name}://of/{{id}}", name=f"{name} of")
        return types.ListResourceTemplatesResult(resource_templates=[one])

    async def read(ctx: Any, params: Any) -> types.ReadResourceResult:
        if not params.uri.startswith(name):
            raise MCPError(-32002, "Resource not found", {"uri": params.uri})
        said = types.TextResourceContents(uri=params.uri, text=f"what {name} has")
        return types.ReadResourceResult(contents=[said])

    async def prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
        argument = types.PromptArgument(name="id")
        return types.ListPromptsResult(prompts=[types.Prompt(name=f"{name}_prompt", arguments=[argument])])

    async def prompt(ctx: Any, params: Any) -> types.GetPromptResult:
        said = types.PromptMessage(role="user", content=types.TextContent(type="text", text=f"ask {name}"))
        return types.GetPromptResult(messages=[said])

    async def complete(ctx: Any, params: Any) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[f"{name} value"]))

    return Server(
        name,
        instructions=f"Use {name} with care.",
        on_list_tools=tools,
        on_call_tool=call,
        on_list_resources=resources,
        on_list_resource_templates=templates,
        on_read_resource=read,
        on_list_prompts=prompts,
        on_get_prompt=prompt,
        on_completion=complete,
    )


def called(name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": name, "arguments": arguments}


def completed(**ref: str) -> tuple[str, dict[str, Any]]:
    return "completion/complete", {"ref": ref, "argument": {"name": "id", "value": ""}}


def asked(name: str) -> list[tuple[str, dict[str, Any]]]:
    """What a client can ask that knows, or guesses, all names of a server."""
    return [
        ("tools/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("prompts/list", {}),
        ("resources/read", {"uri": f"{name}://one"}),
        ("resources/read", {"uri": f"{name}://of/1"}),
        ("prompts/get", {"name": f"{name}_prompt"}),
        completed(type="ref/prompt", name=f"{name}_prompt"),
        completed(type="ref/resource", uri=f"{name}://of/{{id}}"),
        called(f"{name}_tool"),
        called(f"{name}_tool", wrong=1),
        called("search_tools", query=f"{name} things"),
        called("search_tools", query="things", server=name),
        called("resolve_tools", ids=[f"{name}_tool"]),
        called("call_tool", grant=f"{name}_tool"),
        called("call_read_only_tool", grant=f"{name}_other"),
    ]


LEGACY = [
    ("resources/subscribe", {"uri": "hidden://one"}),
    ("resources/unsubscribe", {"uri": "hidden://one"}),
]


def server(*, deferred: bool, with_hidden: bool) -> ToolsetServer:
    names = ("open", "hidden") if with_hidden else ("open",)
    mounts: list[Toolset] = [RemoteToolset(upstream(name), name=name) for name in names]
    tokens = StaticTokens({"ann": ANN, "bob": BOB})
    policy = (
        Policy(principals={"bob": Policy(deny=["hidden/*"])}) if with_hidden else Policy(deny=["nothing"])
    )
    shown = [mount.deferred() if deferred else mount for mount in mounts]
    return ToolsetServer(Toolset(*shown), auth=tokens, policy=policy, list_timeout=60, keep=False)


async def answers(door: Door, token: str) -> list[Answer]:
    door.token = token
    hello = ("server/discover", {}) if door.era == "2026-07-28" else ("ping", {})
    wanted = [hello, *asked("hidden"), *([] if door.era == "2026-07-28" else LEGACY)]
    return [await door.ask(method, **params) for method, params in wanted]


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("kind", DOORS)
async def test_i3_nothing_tells_a_denied_server_from_one_that_is_not_mounted(
    kind: str, deferred: bool
) -> None:
    told: dict[tuple[bool, str], list[Any]] = {}
    heard: list[str] = []
    with anyio.fail_after(120):
        for with_hidden in (False, True):
            async with AsyncExitStack() as stack:
                bridge = server(deferred=deferred, with_hidden=with_hidden)
                http, group = await stack.enter_async_context(reached(bridge))
                await bridge.settled()
                for token in (BOB, ANN):
                    heard.clear()
                    door = DOORS[kind](http, lambda text, _: heard.append(text), group)
                    found = await answers(door, token)
                    told[with_hidden, token] = [(one.status, one.raw) for one in found]
                    if door.era != "2026-07-28":
                        told[with_hidden, token].append(heard[0])
    assert told[True, BOB] == told[False, BOB]
    assert "Keeps the hidden things" in str(told[True, ANN]) and "ask hidden" in str(told[True, ANN])
