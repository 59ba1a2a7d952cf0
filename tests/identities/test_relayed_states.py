"""The request state of a mounted server of 2026-07-28 belongs to the caller, the call and the mount."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from mcp.server.lowlevel import Server
from tests.support.asking import text_of
from tests.support.callers import Callers, client_of
from tests.support.served import served

from mcp_toolset import RemoteToolset, Toolset, ToolsetServer
from mcp_toolset.shared import KeyRing

pytestmark = pytest.mark.anyio
MODERN = "2026-07-28"
FORM = types.ElicitRequestFormParams(message="Sure?", requested_schema={"type": "object", "properties": {}})
ANSWER: Any = {"q": types.ElicitResult(action="accept", content={})}


class Bank:
    """A server that trusts the state that it gave out, and answers with what the state says."""

    def __init__(self) -> None:
        self.states: list[str | None] = []

    def server(self) -> Server[Any]:
        async def tools(ctx: Any, params: Any) -> types.ListToolsResult:
            tool = types.Tool(name="balance", description="Show.", input_schema={"type": "object"})
            return types.ListToolsResult(tools=[tool])

        async def call(ctx: Any, params: types.CallToolRequestParams) -> Any:
            if (asked := self._asked(params)) is not None:
                return asked
            said = types.TextContent(type="text", text=f"{params.request_state} has 100")
            return types.CallToolResult(content=[said])

        async def prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
            return types.ListPromptsResult(prompts=[types.Prompt(name="letter")])

        async def prompt(ctx: Any, params: types.GetPromptRequestParams) -> Any:
            if (asked := self._asked(params)) is not None:
                return asked
            said = types.TextContent(type="text", text=f"Dear {params.request_state}")
            return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=said)])

        return Server(
            "bank", on_list_tools=tools, on_call_tool=call, on_list_prompts=prompts, on_get_prompt=prompt
        )

    def _asked(self, params: Any) -> types.InputRequiredResult | None:
        self.states.append(params.request_state)
        if params.request_state is not None:
            return None
        requests: Any = {"q": types.ElicitRequest(params=FORM)}
        return types.InputRequiredResult(input_requests=requests, request_state="ann-secret-state")


async def elicit(context: Any, params: Any) -> Any:
    raise AssertionError("these clients answer by hand")


def bridge(*banks: Bank, **options: Any) -> ToolsetServer:
    mounts = [RemoteToolset(bank.server(), name=f"bank{number}") for number, bank in enumerate(banks)]
    return ToolsetServer(Toolset(*mounts), auth=Callers(), **options)


@asynccontextmanager
async def asking(url: str, name: str) -> AsyncGenerator[Any]:
    async with client_of(url, name, MODERN, elicitation_callback=elicit) as client:
        yield client.session


async def balance(session: Any, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
    return await session.call_tool("balance", arguments or {}, allow_input_required=True, **more)


async def letter(session: Any, **more: Any) -> Any:
    return await session.get_prompt("letter", {}, allow_input_required=True, **more)


REQUESTS: dict[str, Callable[..., Any]] = {"tools/call": balance, "prompts/get": letter}


@pytest.mark.parametrize("method", REQUESTS)
async def test_u77_another_caller_cannot_continue_a_call_of_a_mounted_server(method: str) -> None:
    bank, send = Bank(), REQUESTS[method]
    async with served(bridge(bank)) as url, asking(url, "ann") as ann, asking(url, "bob") as bob:
        state = (await send(ann)).request_state
        assert "ann-secret-state" not in state
        for stolen in (state, "ann-secret-state"):
            with pytest.raises(MCPError, match="another caller|none of this server's"):
                await send(bob, input_responses=ANSWER, request_state=stolen)
        assert bank.states == [None]
        done = await send(ann, input_responses=ANSWER, request_state=state)
    assert "ann-secret-state" in str(done) and bank.states == [None, "ann-secret-state"]


async def test_u77_the_state_continues_no_other_call_of_its_caller() -> None:
    bank = Bank()
    async with served(bridge(bank)) as url, asking(url, "ann") as ann:
        state = (await balance(ann)).request_state
        with pytest.raises(MCPError, match="another call"):
            await balance(ann, {"account": 2}, input_responses=ANSWER, request_state=state)
    assert bank.states == [None]


async def test_u77_the_state_of_one_mount_never_reaches_another() -> None:
    bank, thief = Bank(), Bank()
    server = bridge()
    async with served(server) as url, asking(url, "ann") as ann:
        mount = await server.attach(RemoteToolset(bank.server(), name="bank"))
        state = (await letter(ann)).request_state
        await server.replace(mount, RemoteToolset(thief.server(), name="thief"))
        await letter(ann, input_responses=ANSWER, request_state=state)
    assert thief.states == [None]


async def test_u77_another_server_under_the_same_name_gets_no_state_of_the_one_before() -> None:
    bank, thief = Bank(), Bank()
    server = bridge()
    async with AsyncExitStack() as stack:
        here, there = [
            await stack.enter_async_context(served(ToolsetServer(RemoteToolset(each.server(), name="in"))))
            for each in (bank, thief)
        ]
        url = await stack.enter_async_context(served(server))
        ann = await stack.enter_async_context(asking(url, "ann"))
        mount = await server.attach(RemoteToolset(f"{here}/mcp", name="bank"))
        state = (await letter(ann)).request_state
        await server.replace(mount, RemoteToolset(f"{there}/mcp", name="bank"))
        await letter(ann, input_responses=ANSWER, request_state=state)
    assert (bank.states, thief.states) == ([None], [None])


@pytest.mark.needs("suspended")
async def test_u77_a_replica_with_the_same_key_continues_the_call(tmp_path: Path) -> None:
    from mcp_toolset.shared import Suspension

    banks = Bank(), Bank()
    keys = KeyRing([b"k" * 32])
    one, two = (bridge(bank, suspended=Suspension(tmp_path / "s", keys=keys)) for bank in banks)
    async with served(one) as here, served(two) as there:
        async with asking(here, "ann") as ann:
            state = (await balance(ann)).request_state
        async with asking(there, "bob") as bob:
            with pytest.raises(MCPError, match="another caller"):
                await balance(bob, input_responses=ANSWER, request_state=state)
        async with asking(there, "ann") as ann:
            done = await balance(ann, input_responses=ANSWER, request_state=state)
    assert text_of(done) == "ann-secret-state has 100"
    assert banks[1].states == ["ann-secret-state"]
